"""StreamedExperts.forward() for torch tensors."""

import warnings
from typing import Any

import torch
from torch import contiguous_format, empty_like, uint8

from ._errors import Unsupported
from ._operators import EXCHANGES, bypasses, current_stream, tell_of_write

_NAMES = ("x", "ids", "weights", "shared_gate_up", "shared_down", "shared_weights")
_NEEDED = 3


def refuse_if_deterministic() -> None:
    """For host_experts="balanced", whose split depends on measured times: raises what
    torch.use_deterministic_algorithms() asks for, or warns."""
    if not torch.are_deterministic_algorithms_enabled():
        return
    text = ("host_experts='balanced': results depend on measured times, but "
            "torch.use_deterministic_algorithms() is set; use host_experts='fixed' with a host_share, or 'none'")
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise Unsupported(text)
    warnings.warn(text, stacklevel=2)


def forward(core: Any, layer: int, inputs: tuple[Any, ...], options: tuple[Any, ...], out: Any,
            stream: Any) -> Any:
    if not bypasses("StreamedExperts.forward", inputs[:_NEEDED], _NAMES, stream, inputs[_NEEDED:]):
        raise Unsupported("StreamedExperts.forward: torch cannot trace it, because experts are copied "
                          "as tokens need them; exclude it by torch.compiler.disable")
    x, ids, shared_gate_up = inputs[0], inputs[1], inputs[3]
    if out is None:
        out = empty_like(x, memory_format=contiguous_format)
    else:
        tell_of_write("out", out)
    workspace = None
    if stream is None and x.is_cuda and core.slots:
        # From torch's allocator, which reuses it on the current stream.
        size = core.workspace_bytes(x, ids, shared_gate_up)
        workspace = x.new_empty(size, dtype=uint8) if size else None
    if not EXCHANGES:
        stream = current_stream(stream, x)
    if stream is not None or not EXCHANGES:
        inputs = tuple(each if each is None else each.detach() for each in inputs)
    core.forward(layer, *inputs, *options, out, workspace, stream)
    return out
