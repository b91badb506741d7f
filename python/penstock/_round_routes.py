"""Rounds the number of tokens of every expert to whole tiles."""

from typing import Any

from . import _core
from ._check import whole
from ._dtypes import dtype_name
from ._errors import InvalidArgument
from ._memory import empty_like
from ._route import MOST_CHOICES
from ._torch_part import TorchPart


def _load() -> Any:
    import penstock._round_routes_torch as torch_part

    return torch_part


_torch = TorchPart(_load)


def usual_extra(choices: int, experts: int) -> int:
    """The default of `extra`. moe() takes at most as many ids per token as there are experts."""
    return max(0, min(4, MOST_CHOICES - choices, experts - choices))


def round_routes(logits: Any, ids: Any, weights: Any, *, tile: int = 128, extra: int | None = None,
                 scoring: str = "softmax_topk", stream: Any = None) -> tuple[Any, Any, Any]:
    """Changes the experts that :func:`route` chose so that each has a multiple of `tile` tokens.

    Matrix products pad the tokens of every expert to whole tiles. With many small experts the padding
    is a large part of the work, and rounding the routes avoids it. Each expert's number of tokens is
    rounded to the nearest multiple of `tile`, or down if it cannot be rounded up, so it changes by less
    than one tile: the expert drops its tokens with the smallest weights, or takes the tokens with the
    largest weights of those that did not choose it. This changes the result of the layer; it is meant
    for models that are trained with rounded routes.

    `logits` (T, E), `ids` and `weights` (T, K) are the arguments and results of route(), with the
    same `scoring`. The result is the tuple (ids, weights, changes): ids and weights of shape
    (T, K + `extra`), for :func:`moe`, and the number of tokens that each expert took, or minus the
    number it dropped, (E). The first K places of a token are its choices, with id E and weight 0
    where one was dropped; then come the experts that took the token. Weights that stay are not
    changed.

    At most `extra` experts can take a token: those with the largest weights for it. An expert rounds
    down instead of up if it does not get a token that it would take, or if too few tokens can be taken.
    With the default `extra`, 4 if K + 4 is at most 16 and E, nearly all experts round to the nearest
    multiple if the logits are random; with a smaller one, more of them drop tokens.

    >>> import numpy, penstock
    >>> logits = numpy.log(numpy.array([[6, 4], [7, 3], [8, 2]], numpy.float32))
    >>> ids, weights = penstock.route(logits, 1)
    >>> ids, weights, changes = penstock.round_routes(logits, ids, weights, tile=2, extra=1)
    >>> ids  # all chose expert 0; no fourth token can be taken, so it drops the first, the least
    array([[2, 2],
           [0, 2],
           [0, 2]], dtype=int32)
    >>> changes
    array([-1,  0], dtype=int32)

    K + `extra` is at most 16. If it is more than E, :func:`moe` refuses the result, because it takes at
    most E ids per token. Results are the same bits on the CPU and on every GPU. On a GPU the
    work is enqueued on `stream`; for torch tensors the default is torch's current stream. torch can
    compile and capture the call. It has no backward.
    """
    tile = whole("tile", tile)
    for name, array, meaning in (("logits", logits, "(T, E)"), ("ids", ids, "(T, K)")):
        shape = getattr(array, "shape", None)
        if shape is None:
            raise TypeError(f"{name}: expected an array, given {type(array).__name__}")
        if len(shape) != 2:
            raise InvalidArgument(name, meaning, str(tuple(shape)))
    tokens, choices = ids.shape
    if choices > MOST_CHOICES:
        raise InvalidArgument("ids", f"at most {MOST_CHOICES} choices per token", str(tuple(ids.shape)))
    extra = usual_extra(choices, logits.shape[1]) if extra is None else whole("extra", extra)
    if not 0 <= extra <= MOST_CHOICES - choices:
        expected = f"0 to {MOST_CHOICES - choices}, for {choices} choices per token"
        raise InvalidArgument("extra", expected, str(extra))
    torch_part = _torch.of(logits)
    if torch_part is not None:
        rounded: tuple[Any, Any, Any] = torch_part.round_routes(logits, ids, weights, tile, extra,
                                                                scoring, stream)
        return rounded
    results = (empty_like(logits, (tokens, choices + extra), dtype_name(ids.dtype)),
               empty_like(logits, (tokens, choices + extra), "f32"),
               empty_like(logits, (logits.shape[1],), "i32"))
    _core.round_routes(logits, ids, weights, *results, tile, scoring, stream)
    return results
