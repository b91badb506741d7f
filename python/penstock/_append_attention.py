"""One step of a generation."""

from typing import Any

from . import _core
from ._attention_arguments import count, number, result_shapes, sides
from ._memory import empty_like
from ._torch_part import TorchPart


def _load() -> Any:
    import penstock._append_attention_torch as torch_part

    return torch_part


_torch = TorchPart(_load)


def append_attention(q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, *, lengths: Any = None,
                     length: int = 0, advance: bool = False, pages: Any = None, cu_new: Any = None,
                     cos: Any = None, sin: Any = None, interleaved: bool = False,
                     positions: Any = None, causal: bool = False,
                     window: tuple[int | None, int | None] | None = None, softcap: float = 0.0,
                     sinks: Any = None, scale: float | None = None, max_q: int | None = None,
                     max_k: int | None = None, first_k: Any = None, return_lse: bool = False,
                     out: Any = None, kernel: str = "best", batch_invariant: bool = False,
                     check: bool = False, stream: Any = None) -> Any:
    """Writes new rows of K and V behind the rows that a key-value cache has, and computes the
    attention of their queries to the cache with these rows, with the rotary embedding of K and `q`.

    The result and the caches are those of :func:`append_kv` and then :func:`attention`, whose
    arguments these are:

    >>> import numpy, penstock
    >>> q, k, v = numpy.random.default_rng(1).normal(size=(3, 2, 1, 4, 8)).astype("f")
    >>> angles = numpy.outer(numpy.arange(9), 100.0 ** -numpy.linspace(0, 1, 4, endpoint=False))
    >>> tables = {"cos": numpy.cos(angles).astype("f"), "sin": numpy.sin(angles).astype("f")}
    >>> cache, lengths = numpy.zeros((2, 2, 9, 4, 8), "f"), numpy.array([0, 0], "i4")
    >>> for _ in range(3):
    ...     out = penstock.append_attention(q, k, v, *cache, lengths=lengths, advance=True, **tables)
    >>> lengths
    array([3, 3], dtype=int32)
    >>> rotated = penstock.append_kv(k, v, *cache, length=2, q=q, **tables)  # the same row again
    >>> same = penstock.attention(rotated, *cache, lengths_k=lengths)
    >>> bool((out == same).all())
    True

    `q` has shape (B, Snew, Hq, D), the new rows `k` (B, Snew, Hk, D) and `v` (B, Snew, Hk, Dv), or
    without B, with one dimension for the rows of all sequences, with `cu_new`. The result has shape
    (B, Snew, Hq, Dv). Row i of the new ones is the position of query i. With ``return_lse=True`` the
    call returns (result, lse).

    On a GPU, calls with at most 16 new rows per sequence, given by `max_q` if there is `cu_new`, are
    computed by one kernel, which writes the rows before it reads them; other calls run the two
    functions one after the other. The bits are the same. ``advance=True`` adds a small kernel:
    in a model whose layers have the same lengths, only the last layer needs it.

    Arrays are NumPy arrays, torch tensors, Penstock arrays or other DLPack arrays. D and Dv are
    multiples of 8, at most 256. On a GPU the work is enqueued on `stream`; for torch tensors the
    default is torch's current stream. Only ``check=True`` waits for the arrays that say where rows
    are, to raise InvalidArgument before anything is written. Without it, rows that have no room, or
    whose page is not one, are left out. Pages that get new rows belong to one sequence. torch can
    compile and capture the call. It has no backward.
    """
    left, right = sides(window)
    inputs = q, k, v, lengths, pages, cu_new, cos, sin, positions, sinks, first_k
    options = (int(length), bool(advance), bool(interleaved), bool(causal), left, right, softcap,
               number("scale", scale), count("max_q", max_q), count("max_k", max_k), kernel,
               bool(batch_invariant), bool(check))
    shape, lse_shape = result_shapes(q, v, cu_new, ("cu_new", "cu_new"))
    torch_part = _torch.of(q)
    empty = empty_like if torch_part is None else torch_part.empty_like
    if out is None:
        out = empty(q, shape, None)
    lse = empty(q, lse_shape, "f32") if return_lse else None
    written = k_cache, v_cache, out, lse
    if torch_part is not None:
        torch_part.append_attention(inputs, options, written, stream)
    else:
        run(inputs, options, written, None, stream)
    return (out, lse) if return_lse else out


def run(inputs: tuple[Any, ...], options: tuple[Any, ...], written: tuple[Any, ...], workspace: Any,
        stream: Any) -> None:
    q, k, v, *others = inputs
    k_cache, v_cache, out, lse = written
    arguments: tuple[Any, ...] = (q, k, v, k_cache, v_cache, *others, *options, out, lse, workspace,
                                  stream)
    _core.append_attention(*arguments)
