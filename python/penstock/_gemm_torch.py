"""gemm() for torch tensors: operators that torch traces and compiles. They have no backward.

This module is imported at the first call with a tensor.
"""

from typing import Any

import torch

from . import _core
from ._gemm import product_shape
from ._operators import EXCHANGES, bypasses, current_stream, define, no_backward, tell_of_write

_NAMES = ("a", "b")


def gemm(a: Any, b: Any, out: Any, kernel: str, stream: Any) -> Any:
    product_shape(a, b)
    if not bypasses("gemm", (a, b), _NAMES, stream):
        if out is None:
            return torch.ops.penstock.gemm(a, b, kernel)
        torch.ops.penstock.gemm_out(a, b, out, kernel)
        return out
    if out is None:
        out = _new(a, b)
    else:
        tell_of_write("out", out)
    _run(a, b, out, kernel, stream)
    return out


def _new(a: Any, b: Any) -> Any:
    return a.new_empty(*product_shape(a, b))


def _run(a: Any, b: Any, out: Any, kernel: str, stream: Any = None) -> None:
    if not EXCHANGES:
        stream = current_stream(stream, a)
    if stream is not None or not EXCHANGES:
        a, b = a.detach(), b.detach()
    _core.gemm(a, b, out, kernel, stream)


def _gemm(a: Any, b: Any, kernel: str) -> Any:
    out = _new(a, b)
    _run(a, b, out, kernel)
    return out


define("gemm", "(Tensor a, Tensor b, str kernel) -> Tensor", _gemm, lambda a, b, _: _new(a, b))
define("gemm_out", "(Tensor a, Tensor b, Tensor(a!) out, str kernel) -> ()", _run, lambda *_: None)
no_backward("gemm")
