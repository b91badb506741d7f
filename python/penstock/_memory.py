"""Memory that the caller makes."""

from collections.abc import Sequence
from typing import Any

from . import _core
from ._dtypes import NAMES_ELSEWHERE, dtype_name
from ._errors import InvalidArgument


def as_shape(shape: int | Sequence[int]) -> list[int]:
    return [shape] if isinstance(shape, int) else list(shape)


def empty(shape: int | Sequence[int], dtype: Any = "f32", *, memory: str = "pinned",
          device: str | _core.Device | None = None) -> _core.Array:
    """Memory for an array, not initialised: page-locked memory of the host, or the device's own.

    >>> import penstock
    >>> penstock.empty((4, 128), "f32", device="cpu")
    <penstock.Array f32[4, 128] on pinned>
    """
    return _core.allocate(as_shape(shape), dtype_name(dtype), memory, _core.Device(device))


def room_like(x: Any, shape: Sequence[int], dtype: str | None = None) -> Any:
    """Room for a result, made by the library of `x`; of the type of `x` where `dtype` is None."""
    if isinstance(x, _core.Array):
        gpu = x.place.startswith("cuda")
        return empty(shape, x.dtype if dtype is None else dtype,
                     memory="device" if gpu else "pinned", device=x.place if gpu else "cpu")
    if type(x).__module__.partition(".")[0] == "torch":
        import torch

        element = x.dtype if dtype is None else getattr(torch, NAMES_ELSEWHERE[dtype])
        return torch.empty(shape, dtype=element, device=x.device)
    import numpy

    if not isinstance(x, numpy.ndarray):
        raise InvalidArgument("out", "an array for the result, as the input is none of NumPy, "
                              "torch or Penstock", "None")
    if dtype == "bf16":
        raise InvalidArgument("out", "an array for the result: NumPy has no bf16", "None")
    return numpy.empty(shape, x.dtype if dtype is None else NAMES_ELSEWHERE[dtype])
