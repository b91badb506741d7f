"""Matrix products."""

from typing import Any

from . import _core
from ._errors import InvalidArgument
from ._memory import empty_like
from ._torch_part import TorchPart


def _load() -> Any:
    import penstock._gemm_torch as torch_part

    return torch_part


_torch = TorchPart(_load)


def gemm(a: Any, b: Any, *, out: Any = None, kernel: str = "best", stream: Any = None) -> Any:
    """Multiplies `a` (M, K) by the transpose of `b` (N, K), as `torch.nn.functional.linear` does.

    Both arrays are bf16 or both f16; sums are f32, and each is rounded once. The result, of shape
    (M, N) and the same dtype, is written to `out`, or to a new array of the library that `a` belongs
    to. Rows may be strided; the elements of a row follow each other in memory.

    >>> import numpy, penstock
    >>> a = numpy.array([[1, 2, 3], [4, 5, 6]], numpy.float16)
    >>> b = numpy.array([[1, 0, 0], [1, 1, 1]], numpy.float16)
    >>> penstock.gemm(a, b)
    array([[ 1.,  6.],
           [ 4., 15.]], dtype=float16)

    Arrays are NumPy arrays, torch tensors, Penstock arrays or other DLPack arrays. On a GPU the work
    is enqueued on `stream`; for torch tensors the default is torch's current stream. torch can
    compile and capture the call. It has no backward.

    On GPUs of compute capability 9.0, N and K should be multiples of 8 and rows should begin at
    multiples of 16 bytes; other products run a slower kernel. `kernel` names one kernel of
    `penstock/ops/gemm.h`, for measurements. It is ignored on the CPU.
    """
    torch_part = _torch.of(a)
    if torch_part is not None:
        return torch_part.gemm(a, b, out, kernel, stream)
    if out is None:
        out = empty_like(a, product_shape(a, b))
    _core.gemm(a, b, out, kernel, stream)
    return out


def product_shape(a: Any, b: Any) -> tuple[int, int]:
    """(M, N). Both must have two dimensions; the library checks everything else."""
    for name, each, expected in (("a", a, "(M, K)"), ("b", b, "(N, K)")):
        shape = getattr(each, "shape", None)
        if shape is None:
            raise TypeError(f"{name}: expected an array, given {type(each).__name__}")
        if len(shape) != 2:
            raise InvalidArgument(name, expected, str(tuple(shape)))
    return a.shape[0], b.shape[0]
