"""Lossless compression of bf16 weights."""

from collections.abc import Sequence
from typing import Any

from . import _core
from ._errors import InvalidArgument
from ._memory import as_shape, tell_autograd
from ._torch_part import TorchPart


def _load() -> Any:
    import torch

    return torch


_torch = TorchPart(_load)


def compressed_bytes_limit(elements: int) -> int:
    """The most bytes that `elements` bf16 values take when compressed.

    >>> import penstock
    >>> penstock.compressed_bytes_limit(1_000_000)
    2004944
    """
    return _core.compressed_bytes_limit(elements)


def compress(x: Any, *, out: Any = None) -> Any:
    """Compresses bf16 values without loss, on all cores, and returns bytes for :func:`decompress`.

    `x` is contiguous, of any shape, in host memory: a torch tensor of dtype bfloat16, a bf16 array of
    Penstock, or a NumPy array of dtype uint16, which holds the bits of bf16 values, or of the dtype
    bfloat16 of ml_dtypes. Normally distributed weights take 0.67 of their bytes; values that do not
    compress take 0.3 % more. The shape is not stored.

    The result is a torch tensor or, unless `x` is one, a NumPy array of bytes: a new one, or the
    beginning of `out`, for which :func:`compressed_bytes_limit` bytes always suffice.

    >>> import numpy, penstock
    >>> weights = numpy.random.default_rng(1).normal(0, 0.02, 100_000).astype(numpy.float32)
    >>> bits = (weights.view(numpy.uint32) >> 16).astype(numpy.uint16)  # bf16
    >>> small = penstock.compress(bits)
    >>> small.nbytes / bits.nbytes < 0.68
    True
    >>> numpy.array_equal(penstock.decompress(small), bits)
    True
    """
    torch = _torch.of(x)
    given = out
    if out is None:
        limit = _core.compressed_bytes_limit(_elements(x, "x"))
        out = _new_bytes(torch, limit)
    else:
        tell_autograd(out)
    values, bits = _values(x if torch is None else x.detach(), "x")
    bytes_ = _core.compress(values, out, bits)
    if given is not None:
        return given[:bytes_]
    return out[:bytes_].copy() if torch is None else out[:bytes_].clone()


def decompress(compressed: Any, *, out: Any = None, shape: int | Sequence[int] | None = None,
               thread_blocks: int = 0, stream: Any = None) -> Any:
    """Restores what :func:`compress` compressed, on the device of `out`.

    `compressed` is an array of bytes, aligned to 16 bytes, that may extend past the end of the data.
    If `out` is on a GPU, it is there too, or in page-locked memory, which the GPU then reads over the
    link. The values are written to `out`, which is contiguous and aligned to 16 bytes, or to a new
    array of this `shape` where `compressed` is; without a shape, it has one dimension. NumPy has no
    bf16: its arrays hold the bits as uint16. `thread_blocks` is the most thread blocks that the GPU
    runs at once, to leave the rest of it to other kernels; 0 means no limit.

    Values that cannot be decoded are NaN with all bits set, and so are all of them if `out` has
    another number of elements than were compressed. On a GPU the work is enqueued on `stream`; for
    torch tensors the default is torch's current stream.

    >>> import numpy, penstock
    >>> bits = numpy.arange(6, dtype="u2")
    >>> penstock.decompress(penstock.compress(bits), shape=(2, 3))
    array([[0, 1, 2],
           [3, 4, 5]], dtype=uint16)
    """
    if out is None:
        out = _new_values(compressed, shape)
    elif shape is not None:
        raise InvalidArgument("shape", "None, as out has one", repr(shape))
    else:
        tell_autograd(out)
    values, bits = _values(out, "out")
    _core.decompress(compressed, values, bits, thread_blocks, stream)
    return out


def _elements(x: Any, name: str) -> int:
    shape = getattr(x, "shape", None)
    if shape is None:
        raise TypeError(f"{name}: expected an array, given {type(x).__name__}")
    elements = 1
    for extent in shape:
        elements *= extent
    return elements


def _new_bytes(torch: Any, count: int) -> Any:
    if torch is not None:
        return torch.empty(count, dtype=torch.uint8)
    import numpy

    return numpy.empty(count, numpy.uint8)


def _new_values(compressed: Any, shape: int | Sequence[int] | None) -> Any:
    torch = _torch.of(compressed)
    if shape is None:
        if getattr(compressed, "is_cuda", False):
            raise InvalidArgument("out", "an array to write to, or a shape, as the number of elements "
                                  "is in GPU memory", "None")
        shape = _core.compressed_info(compressed)[0]
    if torch is not None:
        return torch.empty(as_shape(shape), dtype=torch.bfloat16, device=compressed.device)
    import numpy

    return numpy.empty(shape, numpy.uint16)


def _values(x: Any, name: str) -> tuple[Any, bool]:
    """The array for the extension module, and whether these are bytes that hold bf16 values."""
    dtype: Any = getattr(x, "dtype", None)
    if not hasattr(dtype, "kind") or dtype.name not in ("uint16", "bfloat16"):
        return x, False  # not NumPy's, or refused with its dtype
    if not x.flags.c_contiguous:
        raise InvalidArgument(name, "a contiguous array", f"strides {x.strides}")
    return x.reshape(-1).view("uint8"), True
