"""route() for torch tensors: operators that torch traces and compiles. They have no backward.

This module is imported at the first call with a tensor.
"""

from typing import Any

import torch
from torch import float32

from . import _core
from ._dtypes import FULL_NAMES
from ._operators import EXCHANGES, bypasses, current_stream, define, no_backward, tell_of_write
from ._route import id_name

_NAMES = ("logits", "bias")
_ID_TYPES = {"int32": torch.int32, torch.int32: torch.int32, "int64": torch.int64,
             torch.int64: torch.int64}
_OPTIONS = "str scoring, Tensor? bias, int groups, int top_groups, bool renormalise, float scale"


def route(logits: Any, k: int, ids: Any, weights: Any, scoring: str, bias: Any, groups: int,
          top_groups: int, renormalise: bool, scale: float, id_dtype: Any,
          stream: Any) -> tuple[Any, Any]:
    element = None if ids is not None else _ID_TYPES.get(id_dtype)
    if ids is None and element is None:
        element = getattr(torch, FULL_NAMES[id_name(id_dtype)])
    if not bypasses("route", (logits,) if bias is None else (logits, bias), _NAMES, stream):
        if ids is None and weights is None:
            ids, weights = torch.ops.penstock.route(logits, k, scoring, bias, groups, top_groups,
                                                    renormalise, scale, element)
            return ids, weights
        ids, weights = _outputs(logits, k, ids, weights, element)
        torch.ops.penstock.route_out(logits, k, ids, weights, scoring, bias, groups, top_groups,
                                     renormalise, scale)
        return ids, weights
    for name, given in (("ids", ids), ("weights", weights)):
        if given is not None:
            tell_of_write(name, given)
    ids, weights = _outputs(logits, k, ids, weights, element)
    _run(logits, k, ids, weights, scoring, bias, groups, top_groups, renormalise, scale, stream)
    return ids, weights


def _outputs(logits: Any, k: int, ids: Any, weights: Any, element: Any) -> tuple[Any, Any]:
    tokens = logits.shape[0]
    if ids is None:
        ids = logits.new_empty(tokens, k, dtype=element)
    if weights is None:
        weights = logits.new_empty(tokens, k, dtype=float32)
    return ids, weights


def _run(logits: Any, k: int, ids: Any, weights: Any, scoring: str, bias: Any, groups: int,
         top_groups: int, renormalise: bool, scale: float, stream: Any = None) -> None:
    if not EXCHANGES:
        stream = current_stream(stream, logits)
    if stream is not None or not EXCHANGES:
        logits, bias = logits.detach(), None if bias is None else bias.detach()
    _core.route(logits, k, ids, weights, scoring, bias, groups, top_groups, renormalise, scale,
                stream)


def _fake(logits: Any, k: int, scoring: str, bias: Any, groups: int, top_groups: int,
          renormalise: bool, scale: float, element: Any) -> tuple[Any, Any]:
    return _outputs(logits, k, None, None, element)


def _route(logits: Any, k: int, scoring: str, bias: Any, groups: int, top_groups: int,
           renormalise: bool, scale: float, element: Any) -> tuple[Any, Any]:
    ids, weights = _outputs(logits, k, None, None, element)
    _run(logits, k, ids, weights, scoring, bias, groups, top_groups, renormalise, scale)
    return ids, weights


define("route", f"(Tensor logits, int k, {_OPTIONS}, ScalarType id_dtype) -> (Tensor, Tensor)",
       _route, _fake)
define("route_out", f"(Tensor logits, int k, Tensor(a!) ids, Tensor(b!) weights, {_OPTIONS}) -> ()",
       _run, lambda *_: None)
no_backward("route")
