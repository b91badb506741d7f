"""Arrow columns as NumPy arrays, without loops over rows, and without copies where possible."""

from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from .._errors import InvalidArgument
from . import _arrow

# By the names of Arrow types.
_TYPES = {"bool": "?", "halffloat": "f2", "float": "f4", "double": "f8",
          **{f"{kind}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}}


def as_array(column: Any, name: str, path: Path) -> NDArray[Any]:
    """Numbers give shape (S), lists of one length (S, D), lists of such lists (S, D, E)."""
    what = f"{path}, column {name!r}"
    parts = [_one_chunk(chunk, what) for chunk in column.chunks]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        inner = column.type
        while _arrow.module().types.is_nested(inner) and hasattr(inner, "value_type"):
            inner = inner.value_type
        return numpy.empty(0, _type_of(inner, what))
    filled = [part for part in parts if len(part)] or parts[:1]
    if len({part.shape[1:] for part in filled}) > 1:
        raise InvalidArgument(what, "lists of the same length",
                              " and ".join(sorted({str(part.shape[1:]) for part in filled})))
    return filled[0] if len(filled) == 1 else numpy.concatenate(filled)


def _one_chunk(array: Any, what: str) -> NDArray[Any]:
    arrow = _arrow.module()
    shape = [len(array)]
    while True:
        if array.null_count:
            raise InvalidArgument(what, "a value in every row", f"{array.null_count} missing")
        if isinstance(array, arrow.ExtensionArray):
            array = array.storage
        elif isinstance(array, arrow.FixedSizeListArray):
            size = array.type.list_size
            shape.append(size)
            array = array.values.slice(array.offset * size, len(array) * size)
        elif isinstance(array, (arrow.ListArray, arrow.LargeListArray)):
            offsets = _numbers(array.offsets, what)
            shape.append(_width(offsets, what))
            array = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        else:
            break
    return numpy.reshape(_numbers(array, what), shape)


def _numbers(array: Any, what: str) -> NDArray[Any]:
    """A view of the values. to_numpy() and flatten() release and reacquire the GIL several times,
    which takes longer than their work."""
    dtype = _type_of(array.type, what)
    if dtype.kind == "b" or len(array) == 0:  # bits must be expanded; empty arrays may have no buffer
        made: NDArray[Any] = array.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
        return made
    shared = numpy.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
    shared.flags.writeable = False  # the decoded data is shared
    return shared


def _width(offsets: NDArray[Any], what: str) -> int:
    if len(offsets) == 1:
        return 0
    widths = numpy.diff(offsets)
    if (widths != widths[0]).any():
        row = int(numpy.argmax(widths != widths[0]))
        raise InvalidArgument(what, f"lists of the same length, {widths[0]} as in the first row",
                              f"{widths[row]} in row {row}")
    return int(widths[0])


def _type_of(arrow_type: Any, what: str) -> numpy.dtype[Any]:
    name = _TYPES.get(str(arrow_type))
    if name is None:
        raise InvalidArgument(what, "numbers or lists of numbers", str(arrow_type))
    return numpy.dtype(name)
