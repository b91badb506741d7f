"""Attention."""

from typing import Any

from . import _core
from ._attention_arguments import count, number, result_shapes, sides
from ._memory import empty_like
from ._torch_part import TorchPart


def _load() -> Any:
    import penstock._attention_torch as torch_part

    return torch_part


_torch = TorchPart(_load)


def attention(q: Any, k: Any, v: Any, *, causal: bool = False,
              window: tuple[int | None, int | None] | None = None, softcap: float = 0.0,
              sinks: Any = None, scale: float | None = None, cu_q: Any = None, cu_k: Any = None,
              max_q: int | None = None, max_k: int | None = None, first_k: Any = None,
              lengths_k: Any = None, pages: Any = None, return_lse: bool = False, out: Any = None,
              kernel: str = "best", batch_invariant: bool = False, check: bool = False,
              stream: Any = None) -> Any:
    """Computes attention, forward, without storing the scores: softmax(`scale` * q k^T) v.

    `q` has shape (B, Sq, Hq, D): sequences, rows, heads, head dimension; `k` (B, Sk, Hk, D) and `v`
    (B, Sk, Hk, Dv). Hq is a multiple of Hk, and query head h uses head h // (Hq / Hk) of `k` and `v`.
    All have the same dtype: bf16, f16 or f32. D and Dv are multiples of 8, at most 256. Any strides
    are accepted, with a contiguous last dimension; tensors that are stored as (B, H, S, D) are passed
    as views, ``q.transpose(1, 2)`` in torch. `scale` is 1 / sqrt(D) by default. The result has shape
    (B, Sq, Hq, Dv).

    >>> import numpy, penstock
    >>> q = numpy.zeros((1, 3, 1, 8), numpy.float32)
    >>> v = numpy.arange(3, dtype=numpy.float32).repeat(8).reshape(1, 3, 1, 8)
    >>> penstock.attention(q, q, v, causal=True)[0, :, 0, 0]  # means of 0; of 0 and 1; of 0, 1 and 2
    array([0. , 0.5, 1. ], dtype=float32)

    The last query is at the position of the last key. With `causal`, a query attends to no key after
    its own position; for Sq = Sk, this is the usual triangle. With ``window=(left, right)`` it
    attends to at most `left` keys before its position and `right` keys after it; None or -1 is no
    limit. With `softcap`, a score s becomes softcap * tanh(s / softcap). `sinks` (Hq), f32, bf16 or
    f16, adds a key with this score and a value of 0 to every query of a head. A query without keys
    gets 0.

    Sequences of several lengths lie one after the other in (rows, H, D). `cu_q` (B + 1) and `cu_k`
    (B + 1), i32, then say where they begin, and where the last one ends. `max_q` and `max_k` are the
    most rows of a sequence, if known; rows of `q` beyond them, or outside `cu_q`, are not computed. If
    `out` is not given, these rows of the result are uninitialised. `first_k` (B) and `lengths_k` (B),
    i32, describe padding: sequence b has only the keys [first_k[b], lengths_k[b]). The contents of the
    other rows of `k` and `v` have no effect.

    >>> long = numpy.ones((5, 1, 8), numpy.float32)
    >>> begins = numpy.array([0, 2, 5], numpy.int32)  # sequences of 2 and 3 rows
    >>> penstock.attention(long, long, long, cu_q=begins, cu_k=begins).shape
    (5, 1, 8)

    `k` and `v` may be stored in pages of R rows, as (pages, R, Hk, D) and (pages, R, Hk, Dv). Row r of
    sequence b is then row r % R of page ``pages[b, r // R]``; `pages` has shape (B, most pages of a
    sequence), i32. `lengths_k` says how many rows a sequence has. A page that does not exist reads as
    zeros.

    >>> cache = numpy.arange(3, dtype=numpy.float32).repeat(16).reshape(3, 2, 1, 8)  # 3 pages of 2 rows
    >>> table = numpy.array([[2, 0]], numpy.int32)
    >>> penstock.attention(numpy.zeros((1, 1, 1, 8), "f"), cache, cache, pages=table,
    ...                    lengths_k=numpy.array([3], numpy.int32))[0, 0, 0, :2]  # mean of 2, 2 and 0
    array([1.3333334, 1.3333334], dtype=float32)

    With ``return_lse=True`` the call returns (result, lse): lse, f32, of shape (B, Hq, Sq), or (Hq,
    rows) with `cu_q`, is the logarithm of the sum of exp(score) over the keys of a query, -infinity
    without keys.

    Arrays are NumPy arrays, torch tensors, Penstock arrays or other DLPack arrays. The result is
    written to `out`, or to a new array of the library that `q` belongs to. On a GPU the work is
    enqueued on `stream`; for torch tensors the default is torch's current stream. Rows begin at
    multiples of 16 bytes there. Only ``check=True`` waits for the lengths and pages, to raise
    InvalidArgument for wrong ones; without it, lengths are clamped to the rows that there are. torch
    can compile and capture the call. It has no backward. Repeated calls give bitwise identical results.

    `kernel` names a kernel on a GPU, to compare them: ``"sm90"``, for compute capability 9.0 and head
    dimensions 64, 96, 128, 192 with 128 for `v`, and 256, not for f32; ``"portable"``; and for few
    queries per sequence ``"decode"`` and ``"decode_portable"``, which divide the keys of a
    sequence among many thread blocks. A call that the kernel does not take raises InvalidArgument.
    ``"best"`` uses ``"decode"`` for at most 16 queries, given by `max_q` if there is `cu_q`. With
    `batch_invariant`, the result of a sequence is bitwise identical whatever other sequences are in
    the call, as long as the same kernel computes it. ``"best"`` then chooses by `max_q` alone, which
    calls with `cu_q` must give: pass the same one in all calls whose results are compared.
    """
    left, right = sides(window)
    inputs = q, k, v, sinks, cu_q, cu_k, first_k, lengths_k, pages
    options = (bool(causal), left, right, softcap, number("scale", scale), count("max_q", max_q),
               count("max_k", max_k), kernel, bool(batch_invariant), bool(check))
    torch_part = _torch.of(q)
    if torch_part is not None:
        return torch_part.attention(inputs, options, out, return_lse, stream)
    shape, lse_shape = result_shapes(q, v, cu_q)
    if out is None:
        out = empty_like(q, shape)
    lse = empty_like(q, lse_shape, "f32") if return_lse else None
    arguments: tuple[Any, ...] = *inputs, *options, out, lse, None, stream
    _core.attention(*arguments)
    return (out, lse) if return_lse else out


def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, *,
                                 scale: float | None = None, enable_gqa: bool = False) -> Any:
    """Does what `torch.nn.functional.scaled_dot_product_attention` does, by :func:`attention`
    wherever it can. Tensors have shape (B, H, S, D).

    `is_causal` is torch's: query i attends to keys 0 to i, also if there are more keys than queries.
    Calls with `attn_mask` or dropout, calls that need a gradient, backward or forward, calls that
    autocast computes in another dtype, f32 on a GPU, and shapes, dtypes and strides that
    :func:`attention` does not take go to torch.

    >>> import torch, penstock
    >>> q = torch.zeros(1, 2, 3, 8)
    >>> k, v = torch.zeros(1, 2, 4, 8), torch.ones(1, 2, 4, 8)
    >>> penstock.scaled_dot_product_attention(q, k, v).shape
    torch.Size([1, 2, 3, 8])
    """
    torch_part = _torch.of(query)
    if torch_part is None:
        raise TypeError(f"query: expected a torch tensor, given {type(query).__name__}; use "
                        "penstock.attention for other arrays")
    return torch_part.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal,
                                                   scale, enable_gqa)
