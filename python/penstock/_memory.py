"""Memory that the caller makes."""

from collections.abc import Sequence
from typing import Any

from . import _core
from ._dtypes import dtype_name


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
