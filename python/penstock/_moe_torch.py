"""moe() and its steps for torch tensors: operators that torch traces and compiles. They have no
backward.

This module is imported at the first call with a tensor.
"""

from typing import Any

import torch
from torch import contiguous_format, empty, empty_like, uint8

from . import _core
from ._operators import EXCHANGES, bypasses, current_stream, define, no_backward, tell_of_write

_NAMES = ("x", "gate_up", "down", "ids", "weights")
_INPUTS = "Tensor x, Tensor gate_up, Tensor down, Tensor ids, Tensor weights"
_OPTIONS = "Tensor? slots, str layout, str kernel"
_FLAGS = "bool batch_invariant, bool check"


def moe(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, out: Any, slots: Any, layout: str,
        kernel: str, workspace: Any, batch_invariant: bool, check: bool, stream: Any) -> Any:
    if not bypasses("moe", (x, gate_up, down, ids, weights), _NAMES, stream):
        if out is None and workspace is None:
            return torch.ops.penstock.moe(x, gate_up, down, ids, weights, slots, layout, kernel,
                                          batch_invariant, check)
        if out is None:
            out = _result(x)
        torch.ops.penstock.moe_out(x, gate_up, down, ids, weights, out, slots, layout, kernel,
                                   workspace, batch_invariant, check)
        return out
    if out is None:
        out = _result(x)
    else:
        tell_of_write("out", out)
    if workspace is not None:
        tell_of_write("workspace", workspace)
    _moe_out(x, gate_up, down, ids, weights, out, slots, layout, kernel, workspace, batch_invariant,
             check, stream)
    return out


def step(name: str, x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, out: Any, slots: Any,
         layout: str, kernel: str, workspace: Any, batch_invariant: bool, check: bool,
         stream: Any) -> None:
    """moe_plan(), moe_experts() or moe_combine()."""
    if not bypasses(name, (x, gate_up, down, ids, weights), _NAMES, stream):
        getattr(torch.ops.penstock, name)(x, gate_up, down, ids, weights, out, slots, layout,
                                          kernel, workspace, batch_invariant, check)
        return
    tell_of_write("workspace", workspace)
    if name == "moe_combine":
        tell_of_write("out", out)
    _call(getattr(_core, name), x, gate_up, down, ids, weights, out, slots, layout, kernel,
          workspace, batch_invariant, check, stream)


def _result(x: Any) -> Any:
    return empty_like(x, memory_format=contiguous_format)


def _call(function: Any, x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, out: Any,
          slots: Any, layout: str, kernel: str, workspace: Any, batch_invariant: bool, check: bool,
          stream: Any = None) -> None:
    if not EXCHANGES:
        stream = current_stream(stream, x)
    if stream is not None or not EXCHANGES:
        x, gate_up, down, weights = (each.detach() for each in (x, gate_up, down, weights))
    function(x, gate_up, down, ids, weights, out, slots, layout, kernel, workspace, batch_invariant,
             check, stream)


def _moe_out(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, out: Any, slots: Any,
             layout: str, kernel: str, workspace: Any, batch_invariant: bool, check: bool,
             stream: Any = None) -> None:
    if workspace is None and stream is None and x.is_cuda:
        # From torch's allocator, which knows the current stream and CUDA graphs. Otherwise the
        # library allocates.
        workspace = empty(_core.moe_workspace_bytes(x, gate_up, ids, slots), dtype=uint8,
                          device=x.device)
    _call(_core.moe, x, gate_up, down, ids, weights, out, slots, layout, kernel, workspace,
          batch_invariant, check, stream)


def _moe(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, slots: Any, layout: str,
         kernel: str, batch_invariant: bool, check: bool) -> Any:
    out = _result(x)
    _moe_out(x, gate_up, down, ids, weights, out, slots, layout, kernel, None, batch_invariant,
             check)
    return out


def _fake(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, slots: Any, layout: str,
          kernel: str, batch_invariant: bool, check: bool) -> Any:
    return _result(x)


def _kernel(name: str) -> Any:
    function = getattr(_core, name)

    def kernel(*arguments: Any) -> None:
        _call(function, *arguments)

    return kernel


define("moe", f"({_INPUTS}, {_OPTIONS}, {_FLAGS}) -> Tensor", _moe, _fake)
define("moe_out", f"({_INPUTS}, Tensor(a!) out, {_OPTIONS}, Tensor(b!)? workspace, {_FLAGS}) -> ()",
       _moe_out, lambda *_: None)
# All steps take the same arguments, but only moe_combine writes out.
for _name in ("moe_plan", "moe_experts", "moe_combine"):
    _out = "Tensor(a!)" if _name == "moe_combine" else "Tensor"
    define(_name, f"({_INPUTS}, {_out} out, {_OPTIONS}, Tensor(b!) workspace, {_FLAGS}) -> ()",
           _kernel(_name), lambda *_: None)
no_backward("moe")
