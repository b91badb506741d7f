"""Appending to a key-value cache."""

from typing import Any

from . import _core
from ._errors import InvalidArgument
from ._memory import empty_like
from ._torch_part import TorchPart


def _load() -> Any:
    import penstock._append_kv_torch as torch_part

    return torch_part


_torch = TorchPart(_load)


def append_kv(k: Any, v: Any, k_cache: Any, v_cache: Any, *, lengths: Any = None, length: int = 0,
              advance: bool = False, pages: Any = None, cu_new: Any = None, cos: Any = None,
              sin: Any = None, interleaved: bool = False, positions: Any = None, q: Any = None,
              q_out: Any = None, check: bool = False, stream: Any = None) -> Any:
    """Writes new rows of K and V behind the rows that a key-value cache has, and rotates K and `q` by
    their positions (rotary embedding), in one kernel. Returns the rotated `q`, or None without `q`.

    `k` has shape (B, Snew, Hk, D): sequences, new rows, heads, head dimension; `v` (B, Snew, Hk, Dv).
    `k_cache` (B, S, Hk, D) and `v_cache` (B, S, Hk, Dv) have room for S rows per sequence. All have
    the same dtype: bf16, f16 or f32, any strides, and a contiguous last dimension. `lengths` (B), i32,
    says how many rows each sequence has; without it, every sequence has `length` rows. With
    ``advance=True`` the call then adds the numbers of new rows to `lengths`.

    >>> import numpy, penstock
    >>> cache, lengths = numpy.zeros((2, 2, 5, 1, 8), numpy.float32), numpy.array([0, 2], numpy.int32)
    >>> new = numpy.ones((2, 1, 1, 8), numpy.float32)
    >>> penstock.append_kv(new, 2 * new, cache[0], cache[1], lengths=lengths, advance=True)
    >>> cache[0, :, :, 0, 0]  # the keys
    array([[1., 0., 0., 0., 0.],
           [0., 0., 1., 0., 0.]], dtype=float32)
    >>> lengths
    array([1, 3], dtype=int32)

    Sequences with several numbers of new rows lie one after the other in (rows, H, D), and `cu_new`
    (B + 1), i32, says where they begin and where the last one ends. With `pages` (B, most pages of a
    sequence), i32, the cache consists of pages: `k_cache` has shape (pages, rows of a page, Hk, D), and
    row r of sequence b is in page ``pages[b, r // rows]``.

    `cos` and `sin` (positions, R / 2), f32 or the dtype of `k`, are the tables of the rotary
    embedding, which rotates the first R elements of each head. Pairs are the elements i and
    i + R / 2, as in Llama and GPT-NeoX, or with ``interleaved=True`` the elements 2 i and 2 i + 1, as
    in GPT-J. A row's position is its row in the sequence, or is given by `positions` (B, Snew), or
    (rows) with `cu_new`, i32 or i64. `q` (B, Snew, Hq, D) is rotated into `q_out`, a new array by
    default, or `q` itself.

    >>> angles = numpy.outer(numpy.arange(5), 100.0 ** -numpy.linspace(0, 1, 4, endpoint=False))
    >>> cos, sin = (each(angles).astype(numpy.float32) for each in (numpy.cos, numpy.sin))
    >>> q = penstock.append_kv(new, new, cache[0], cache[1], lengths=lengths, cos=cos, sin=sin, q=new)
    >>> bool((q[0] == cache[0, 0, 1]).all())
    True

    Arrays are NumPy arrays, torch tensors, Penstock arrays or other DLPack arrays. On a GPU the work
    is enqueued on `stream`; for torch tensors the default is torch's current stream. Rows that have no
    room in the cache, or whose page is not one, are left out, and positions outside the tables are
    clamped; only ``check=True`` waits for the arrays that say so, to raise InvalidArgument before
    anything is written. The results are the same bits on the CPU and on every GPU. torch can compile
    and capture the call. It has no backward.
    """
    if getattr(k, "shape", None) is None:
        raise TypeError(f"k: expected an array, given {type(k).__name__}")
    inputs = k, v, lengths, pages, cu_new, cos, sin, positions, q
    options = int(length), bool(advance), bool(interleaved), bool(check)
    torch_part = _torch.of(k)
    if torch_part is not None:
        return torch_part.append_kv(inputs, options, (k_cache, v_cache, q_out), stream)
    q_out = rotated(q, q_out, empty_like)
    _core.append_kv(k, v, k_cache, v_cache, lengths, pages, cu_new, cos, sin, positions, q, q_out,
                    *options, stream)
    return q_out


def rotated(q: Any, q_out: Any, empty: Any) -> Any:
    """The array for the rotated `q`, made by ``empty(q, shape)`` if there is none."""
    if q is None or q_out is not None:
        return q_out
    if getattr(q, "shape", None) is None:
        raise InvalidArgument("q", "an array", type(q).__name__)
    return empty(q, tuple(q.shape))
