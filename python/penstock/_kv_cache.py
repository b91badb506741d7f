"""A key-value cache that grows in place."""

from typing import Any

from . import _core
from ._append_kv import _torch, rotated
from ._dtypes import dtype_name
from ._memory import empty_like


class KVCache(_core.KVCache):
    """The keys and values of all layers of a generation, in device memory that grows in place.

    The addresses of `capacity` rows per sequence are reserved at once, without memory behind them, and
    a thread of the library maps memory before the rows are appended: `ahead` rows beyond those that
    there are. So growth copies nothing, a step does not wait for it, and no stream is stalled.

    `layers`, `sequences`, `heads` of K and V, their head dimension `dim`, or `dim` of K and `dim_v` of
    V, and `dtype`, bf16, f16 or f32, are those of the model and the batch. All sequences have the
    same number of rows; pad shorter ones on the left. `device` is the first GPU by default, or the CPU
    if there is none. Memory for `initial` rows is mapped at once. Memory is mapped and given back in
    blocks of `block_bytes` for K, and for V, of every layer; by default a block holds 512 rows, or 64
    or more if that is above 32 MiB. Larger blocks take more memory and disturb fewer steps.

    >>> import numpy, penstock
    >>> cache = penstock.KVCache(layers=2, sequences=1, heads=1, dim=8, dtype="f32", capacity=4096,
    ...                          device="cpu")
    >>> row = numpy.ones((1, 1, 1, 8), numpy.float32)
    >>> for layer in range(2):
    ...     cache.append(layer, row, 2 * row)
    >>> cache.length(0), cache.k(0).shape
    (1, (1, 1, 1, 8))
    >>> penstock.attention(row, cache.k(1), cache.v(1), causal=True)[0, 0, 0, 0]
    np.float32(2.0)

    :meth:`k` and :meth:`v` return the rows of a layer as arrays of shape (sequences, rows, heads, dim),
    which :func:`attention` takes beside NumPy arrays and torch tensors.
    ``torch.from_dlpack(cache.k(layer))`` is a tensor of the same memory. They stay valid while the
    cache grows.
    """

    def __init__(self, *, layers: int, sequences: int, heads: int, dim: int, capacity: int,
                 dim_v: int | None = None, dtype: Any = "bf16", initial: int = 0, ahead: int = 256,
                 block_bytes: int | None = None, device: Any = None) -> None:
        super().__init__(device, layers, sequences, heads, dim, dim if dim_v is None else dim_v,
                         dtype_name(dtype), capacity, initial, ahead, block_bytes or 0)
        self.layers, self.capacity = layers, capacity

    def append(self, layer: int, k: Any, v: Any, *, cos: Any = None, sin: Any = None,
               interleaved: bool = False, positions: Any = None, q: Any = None, q_out: Any = None,
               stream: Any = None) -> Any:
        """Appends rows to a layer: `k` (sequences, new rows, heads, dim) and `v`, and rotates them and
        `q` as :func:`append_kv` does. Returns the rotated `q`, or None without `q`.

        On a GPU the work is enqueued on `stream`; for torch tensors the default is torch's current
        stream. A stream that is being captured into a CUDA graph is refused, since the graph would
        write the same rows again; capture :func:`append_kv` on :meth:`whole_k` and :meth:`whole_v`
        with lengths on the device, after :meth:`reserve`, and call :meth:`set_length` after the
        replays. Raises InvalidArgument that names the capacity if the cache is full.
        """
        interleaved = bool(interleaved)
        torch_part = _torch.of(k)
        if torch_part is not None:
            inputs = k, v, None, None, None, cos, sin, positions, q
            return torch_part.append_to(self, layer, inputs, q_out, interleaved, stream)
        q_out = rotated(q, q_out, empty_like)
        self._append(layer, k, v, cos, sin, positions, q, q_out, interleaved, stream)
        return q_out

    def __repr__(self) -> str:
        rows = [self.length(layer) for layer in range(self.layers)]
        return (f"<penstock.KVCache: {self.layers} layers, {max(rows)} of {self.capacity} rows, "
                f"{self.mapped_bytes} bytes mapped>")
