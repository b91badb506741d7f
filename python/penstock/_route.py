"""Chooses the experts of every token from the router's logits."""

from typing import Any

from . import _core
from ._check import whole
from ._dtypes import dtype_name
from ._errors import InvalidArgument
from ._memory import empty_like
from ._torch_part import TorchPart

MOST_CHOICES = 16


def _load() -> Any:
    import penstock._route_torch as torch_part

    return torch_part


_torch = TorchPart(_load)


def route(logits: Any, k: int, *, scoring: str = "softmax_topk", bias: Any = None, groups: int = 1,
          top_groups: int = 1, renormalise: bool = False, scale: float = 1.0, ids: Any = None,
          weights: Any = None, id_dtype: Any = "int32", stream: Any = None) -> tuple[Any, Any]:
    """Chooses `k` experts per token from the router's `logits`, and their weights, for :func:`moe`.

    `logits` has shape (T, E): T tokens, at most 512 experts. The result is the tuple (ids, weights),
    both of shape (T, k), the best expert first. `k` is at most 16. `scoring` says how weights are
    computed:

    - ``"softmax_topk"``: softmax over all experts, then the `k` largest (Qwen3, OLMoE);
    - ``"topk_softmax"``: the `k` largest logits, then softmax over these (Mixtral, gpt-oss);
    - ``"sigmoid"``: sigmoid of each logit; the `k` experts with the largest sigmoid + `bias` are
      chosen (DeepSeek-V3). `bias` (E), f32, does not change the weights. The experts may form
      `groups` of equal size, of which only the `top_groups` with the largest sum of their two best
      scores take part.

    `renormalise` divides the weights of a token by their sum, and `scale` then multiplies them.

    >>> import numpy, penstock
    >>> logits = numpy.log(numpy.array([[1, 5, 2, 2], [4, 3, 2, 1]], numpy.float32))
    >>> ids, weights = penstock.route(logits, 2)
    >>> ids
    array([[1, 2],
           [0, 1]], dtype=int32)
    >>> weights.round(3)
    array([[0.5, 0.2],
           [0.4, 0.3]], dtype=float32)

    If scores are equal, the expert with the lower index wins. Logits that are NaN or -infinity are
    never chosen; a token with fewer than `k` experts to choose from gets id E and weight 0 in the
    remaining places, which moe() skips. Results are the same bits on the CPU and on every GPU.

    The results are written to `ids` (i32 or i64) and `weights` (f32), or to new arrays of the
    library that `logits` belongs to; `id_dtype` is the dtype of new ids. On a GPU the work is
    enqueued on `stream`; for torch tensors the default is torch's current stream. torch can compile
    and capture the call. It has no backward.
    """
    k, renormalise, scale = whole("k", k), bool(renormalise), float(scale)
    shape = getattr(logits, "shape", None)
    if shape is None:
        raise TypeError(f"logits: expected an array, given {type(logits).__name__}")
    if len(shape) != 2:
        raise InvalidArgument("logits", "(T, E)", str(tuple(shape)))
    tokens, experts = shape
    if not 1 <= k <= MOST_CHOICES or k > experts:
        expected = f"1 to {MOST_CHOICES}, and at most {experts}, the number of experts"
        raise InvalidArgument("k", expected, str(k))
    torch_part = _torch.of(logits)
    if torch_part is not None:
        routed: tuple[Any, Any] = torch_part.route(logits, k, ids, weights, scoring, bias, groups,
                                                   top_groups, renormalise, scale, id_dtype, stream)
        return routed
    if ids is None:
        ids = empty_like(logits, (tokens, k), id_name(id_dtype))
    if weights is None:
        weights = empty_like(logits, (tokens, k), "f32")
    _core.route(logits, k, ids, weights, scoring, bias, groups, top_groups, renormalise, scale,
                stream)
    return ids, weights


def id_name(dtype: Any) -> str:
    """Penstock's name of a dtype of ids."""
    name = dtype_name(dtype)
    if name not in ("i32", "i64"):
        raise InvalidArgument("id_dtype", "int32 or int64", repr(dtype))
    return name
