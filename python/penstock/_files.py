"""Reading and writing files in one call."""

import os
from typing import Any

from . import _core
from ._check import not_negative
from ._dtypes import SIZES, dtype_name
from ._errors import InvalidArgument
from ._memory import empty

Path = str | bytes | os.PathLike[str]


def read_file(path: Path, *, offset: int = 0, count: int | None = None, dtype: Any = "u8",
              out: Any = None, device: str | _core.Device | None = None,
              like: str = "numpy") -> Any:
    """Reads `count` elements of a file, or all to its end, starting at byte `offset`.

    The page cache is bypassed. The result is a NumPy array, a tensor (``like="torch"``) or a
    :class:`penstock.Array` (``like="penstock"``); the latter two may be on a GPU (`device`). If
    `out` is given, that array is filled and returned; it may be in host or in device memory.

    >>> import os, penstock, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "numbers")
    >>> penstock.write_file(path, bytes([1, 0, 0, 0, 2, 0, 0, 0]))
    >>> penstock.read_file(path, dtype="i32")
    array([1, 2], dtype=int32)
    >>> penstock.read_file(path, offset=4, count=2)
    array([2, 0], dtype=uint8)
    """
    not_negative("offset", offset)
    if count is not None:
        not_negative("count", count)
    if like not in ("numpy", "torch", "penstock"):
        raise InvalidArgument("like", "'numpy', 'torch' or 'penstock'", repr(like))
    if out is not None and device is not None:
        raise InvalidArgument("device", "None, as `out` determines the device", repr(device))
    place = _core.Device("cpu" if device is None else device)
    if like == "numpy" and place.kind != "cpu":
        raise InvalidArgument("like", f"'torch' or 'penstock' on {place.name}", "'numpy'")
    with _core.File(path) as file:
        if out is not None:
            file.read(out, offset)
            return out
        if like == "numpy":
            return _as_numpy(file, offset, count, dtype)
        room = _as_array(file, offset, count, dtype, place)
    if like == "penstock":
        return room
    import torch

    return torch.from_dlpack(room)


def _as_numpy(file: _core.File, offset: int, count: int | None, dtype: Any) -> Any:
    import numpy  # here, as importing it takes longer than importing this package

    # Penstock's names count bits (u8), NumPy's bytes; Penstock's take precedence.
    element = numpy.dtype(_NUMPY.get(dtype, dtype) if isinstance(dtype, str) else dtype)
    if element.hasobject:
        raise InvalidArgument("dtype", "a type without Python objects", repr(dtype))
    elements = _elements(file, offset, count, element.itemsize)
    room = empty(elements * element.itemsize, "u8", device="cpu")
    file.read(room, offset)
    return room.numpy().view(element) if elements else numpy.empty(0, element)


_NUMPY = {"f64": "f8", "f32": "f4", "f16": "f2", "i64": "i8", "i32": "i4", "u8": "u1"}


def _as_array(file: _core.File, offset: int, count: int | None, dtype: Any,
              place: _core.Device) -> _core.Array:
    name = dtype_name(dtype)
    elements = _elements(file, offset, count, SIZES[name])
    memory = "pinned" if place.kind == "cpu" else "device"
    room = empty(elements, name, device=place, memory=memory)
    file.read(room, offset)
    return room


def _elements(file: _core.File, offset: int, count: int | None, size: int) -> int:
    if count is not None:
        return count
    left = file.size - offset
    if left < 0:
        raise InvalidArgument("offset", f"at most {file.size}, the size of the file", str(offset))
    if left % size:
        raise InvalidArgument("dtype", f"a type whose size divides the {left} bytes from offset "
                              f"{offset} to the end", f"one of {size} bytes")
    return left // size


def write_file(path: Path, source: Any, *, flush: bool = False) -> None:
    """Writes an array or bytes to a file, which is created or replaced.

    With `flush` the call returns only when the data is on the disk, as after fsync.

    >>> import numpy, os, penstock, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "numbers")
    >>> penstock.write_file(path, numpy.arange(3, dtype=numpy.uint8))
    >>> open(path, "rb").read()
    b'\\x00\\x01\\x02'
    """
    with _core.File(path, "w") as file:
        file.write(source)
        if flush:
            file.flush()
