"""moe() and its steps for torch tensors: operators that torch traces and compiles. They have no
backward.

Functions take the input tensors, some of which may be None, and the other options as two tuples, in
the order of the schema. This module is imported at the first call with a tensor.
"""

from typing import Any, TypeAlias

import torch
from torch import contiguous_format, empty_like, uint8

from . import _core
from ._operators import EXCHANGES, bypasses, current_stream, define, no_backward, tell_of_write

_NEEDED = ("x", "gate_up", "down", "ids", "weights")
_OPTIONAL = ("gate_up_bias", "down_bias", "shared_gate_up", "shared_down", "shared_weights", "slots")
_NAMES = _NEEDED + _OPTIONAL
_TENSORS = [f"Tensor {name}" for name in _NEEDED] + [f"Tensor? {name}" for name in _OPTIONAL]
_SCHEMA = (", ".join(_TENSORS) + ", str activation, float alpha, float limit, str layout, str kernel, "
           "bool batch_invariant, bool check")
Tuple: TypeAlias = tuple[Any, ...]


def moe(inputs: Tuple, options: Tuple, out: Any, workspace: Any, stream: Any) -> Any:
    if not _bypasses("moe", inputs, stream):
        if out is None and workspace is None:
            return torch.ops.penstock.moe(*inputs, *options)
        if out is None:
            out = _result(inputs[0])
        torch.ops.penstock.moe_out(*inputs, *options, out, workspace)
        return out
    if out is None:
        out = _result(inputs[0])
    else:
        tell_of_write("out", out)
    if workspace is not None:
        tell_of_write("workspace", workspace)
    _run_moe(inputs, options, out, workspace, stream)
    return out


def step(name: str, inputs: Tuple, options: Tuple, out: Any, workspace: Any, stream: Any) -> None:
    """moe_plan(), moe_experts() or moe_combine()."""
    if not _bypasses(name, inputs, stream):
        getattr(torch.ops.penstock, name)(*inputs, *options, out, workspace)
        return
    tell_of_write("workspace", workspace)
    if name == "moe_combine":
        tell_of_write("out", out)
    _run(getattr(_core, name), inputs, options, out, workspace, stream)


def _bypasses(operator: str, inputs: Tuple, stream: Any) -> bool:
    return bypasses(operator, inputs[:len(_NEEDED)], _NAMES, stream, inputs[len(_NEEDED):])


def _result(x: Any) -> Any:
    return empty_like(x, memory_format=contiguous_format)


def _run(function: Any, inputs: Tuple, options: Tuple, out: Any, workspace: Any,
         stream: Any = None) -> None:
    if not EXCHANGES:
        stream = current_stream(stream, inputs[0])
    if stream is not None or not EXCHANGES:
        inputs = tuple(each if each is None else each.detach() for each in inputs)
    function(*inputs, *options, out, workspace, stream)


def _run_moe(inputs: Tuple, options: Tuple, out: Any, workspace: Any, stream: Any = None) -> None:
    x, gate_up, _, ids, _, _, _, shared_gate_up, _, _, slots = inputs
    if workspace is None and stream is None and x.is_cuda:
        # From torch's allocator, which knows the current stream and CUDA graphs. Otherwise the
        # library allocates.
        size = _core.moe_workspace_bytes(x, gate_up, ids, slots, shared_gate_up)
        workspace = x.new_empty(size, dtype=uint8)
    _run(_core.moe, inputs, options, out, workspace, stream)


def _moe(*arguments: Any) -> Any:
    inputs, options = arguments[:len(_NAMES)], arguments[len(_NAMES):]
    out = _result(inputs[0])
    _run_moe(inputs, options, out, None)
    return out


def _moe_out(*arguments: Any) -> None:
    inputs, (*options, out, workspace) = arguments[:len(_NAMES)], arguments[len(_NAMES):]
    _run_moe(inputs, tuple(options), out, workspace)


def _kernel(name: str) -> Any:
    function = getattr(_core, name)

    def kernel(*arguments: Any) -> None:
        inputs, (*options, out, workspace) = arguments[:len(_NAMES)], arguments[len(_NAMES):]
        _run(function, inputs, tuple(options), out, workspace)

    return kernel


define("moe", f"({_SCHEMA}) -> Tensor", _moe, lambda x, *_: _result(x))
define("moe_out", f"({_SCHEMA}, Tensor(a!) out, Tensor(b!)? workspace) -> ()", _moe_out,
       lambda *_: None)
# All steps take the same arguments, but only moe_combine writes out.
for _name in ("moe_plan", "moe_experts", "moe_combine"):
    _out = "Tensor(a!)" if _name == "moe_combine" else "Tensor"
    define(_name, f"({_SCHEMA}, {_out} out, Tensor(b!) workspace) -> ()", _kernel(_name),
           lambda *_: None)
no_backward("moe")
