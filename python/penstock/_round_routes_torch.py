"""round_routes() for torch tensors: an operator that torch traces and compiles. It has no backward.

This module is imported at the first call with a tensor.
"""

from typing import Any

import torch

from . import _core
from ._operators import EXCHANGES, bypasses, current_stream, define, no_backward

_NAMES = ("logits", "ids", "weights")


def round_routes(logits: Any, ids: Any, weights: Any, tile: int, extra: int, scoring: str,
                 stream: Any) -> tuple[Any, Any, Any]:
    if not bypasses("round_routes", (logits, ids, weights), _NAMES, stream):
        rounded: tuple[Any, Any, Any] = torch.ops.penstock.round_routes(logits, ids, weights, tile,
                                                                        extra, scoring)
        return rounded
    return _run(logits, ids, weights, tile, extra, scoring, stream)


def _results(logits: Any, ids: Any, weights: Any, tile: int, extra: int,
             scoring: str) -> tuple[Any, Any, Any]:
    tokens, width = ids.shape[0], ids.shape[1] + extra
    return (ids.new_empty(tokens, width), weights.new_empty(tokens, width, dtype=torch.float32),
            ids.new_empty(logits.shape[1], dtype=torch.int32))


def _run(logits: Any, ids: Any, weights: Any, tile: int, extra: int, scoring: str,
         stream: Any = None) -> tuple[Any, Any, Any]:
    results = _results(logits, ids, weights, tile, extra, scoring)
    if not EXCHANGES:
        stream = current_stream(stream, logits)
    if stream is not None or not EXCHANGES:
        logits, weights = logits.detach(), weights.detach()
    _core.round_routes(logits, ids, weights, *results, tile, scoring, stream)
    return results


define("round_routes", "(Tensor logits, Tensor ids, Tensor weights, int tile, int extra, "
       "str scoring) -> (Tensor, Tensor, Tensor)", _run, _results)
no_backward("round_routes")
