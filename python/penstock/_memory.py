"""Creating arrays."""

import sys
from collections.abc import Sequence
from typing import Any

from . import _core
from ._dtypes import FULL_NAMES, dtype_name
from ._errors import InvalidArgument


def as_shape(shape: int | Sequence[int]) -> list[int]:
    return [shape] if isinstance(shape, int) else list(shape)


def empty(shape: int | Sequence[int], dtype: Any = "f32", *, memory: str = "pinned",
          device: str | _core.Device | None = None) -> _core.Array:
    """Returns an uninitialised array in page-locked host memory, or with ``memory="device"`` in the
    device's own memory. `device` is the first GPU by default, or the CPU if there is none.

    >>> import penstock
    >>> penstock.empty((4, 128), "f32", device="cpu")
    <penstock.Array f32[4, 128] on pinned>
    """
    return _core.allocate(as_shape(shape), dtype_name(dtype), memory, _core.Device(device))


def empty_like(x: Any, shape: Sequence[int], dtype: str | None = None) -> Any:
    """An array for a result, of the library and on the device of `x`; with the dtype of `x` if
    `dtype` is None."""
    if isinstance(x, _core.Array):
        gpu = x.place.startswith("cuda")
        return empty(shape, x.dtype if dtype is None else dtype,
                     memory="device" if gpu else "pinned", device=x.place if gpu else "cpu")
    if is_torchs(x):
        import torch

        element = x.dtype if dtype is None else getattr(torch, FULL_NAMES[dtype])
        return torch.empty(shape, dtype=element, device=x.device)
    import numpy

    if not isinstance(x, numpy.ndarray):
        raise InvalidArgument("out", "an array to write to, as the input is not an array of NumPy, "
                              "torch or Penstock", "None")
    if dtype == "bf16":
        raise InvalidArgument("out", "an array to write to, as NumPy has no bf16", "None")
    return numpy.empty(shape, x.dtype if dtype is None else FULL_NAMES[dtype])


def torch_stream(arrays: Sequence[Any]) -> Any:
    """torch's current stream on the GPU of the first torch tensor on a GPU; None without one."""
    for each in arrays:
        if is_torchs(each) and each.is_cuda:
            import torch

            return torch.cuda.current_stream(each.device)
    return None


def tell_autograd(array: Any) -> None:
    """Marks a torch tensor as modified, so that autograd notices if it has saved the tensor."""
    if is_torchs(array):
        from torch.autograd.graph import increment_version

        increment_version(array)


def is_torchs(array: Any) -> bool:
    """Whether it is a torch tensor; without importing torch."""
    return "torch" in sys.modules and isinstance(array, sys.modules["torch"].Tensor)
