"""The layer in plain torch operations, eager: grouped products over the tokens sorted by expert."""

from typing import Any

import torch
from torch.nn import functional

MISSING = "needs torch._grouped_mm, which torch has since 2.8"


def is_there() -> bool:
    return hasattr(torch, "_grouped_mm")


class TorchLayer:
    """Multiplies with `_grouped_mm`; sorts, gathers, activates and adds up in operations of their own."""

    def __init__(self, choices: int) -> None:
        self._choices = choices

    def __call__(self, inputs: dict[str, Any], out: Any) -> None:
        x, gate_up, down = inputs["x"], inputs["gate_up"], inputs["down"]
        logits = functional.linear(x, inputs["router"])
        best, ids = torch.topk(logits.float(), self._choices)
        weights = torch.softmax(best, -1).to(x.dtype)
        expert_of, order = ids.flatten().sort()
        token_of = order // self._choices
        # Not torch.bincount, which waits for the GPU.
        experts = torch.arange(len(gate_up), device=x.device)
        ends = torch.searchsorted(expert_of, experts, right=True, out_int32=True)
        gate, up = torch._grouped_mm(x[token_of], gate_up.transpose(1, 2), ends).chunk(2, -1)
        results = torch._grouped_mm(functional.silu(gate) * up, down.transpose(1, 2), ends)
        out.zero_().index_add_(0, token_of, results * weights.flatten()[order, None])
