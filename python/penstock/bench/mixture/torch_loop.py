"""The layer in plain torch operations: one expert after the other."""

from typing import Any

import torch
from torch.nn import functional


class TorchLoop:
    def __init__(self, choices: int) -> None:
        self._choices = choices

    def __call__(self, inputs: dict[str, Any], out: Any) -> None:
        x = inputs["x"]
        best, ids = torch.topk(functional.linear(x, inputs["router"]).float(), self._choices)
        weights = torch.softmax(best, -1).to(x.dtype)
        out.zero_()
        for expert in ids.unique().tolist():
            tokens, places = (ids == expert).nonzero(as_tuple=True)
            gate, up = functional.linear(x[tokens], inputs["gate_up"][expert]).chunk(2, -1)
            result = functional.linear(functional.silu(gate) * up, inputs["down"][expert])
            out.index_add_(0, tokens, result * weights[tokens, places, None])
