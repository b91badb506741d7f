"""Columns of Arrow as arrays of NumPy: no loop over rows, and no copy where the bytes allow it."""

from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from .._errors import InvalidArgument
from . import _arrow

_NAMES = {"halffloat": "f2", "float": "f4", "double": "f8"}  # of Arrow's types; others are NumPy's


def as_array(column: Any, name: str, path: Path) -> NDArray[Any]:
    """(S) of numbers, (S, D) of lists, which all have one length, (S, D, E) of lists of them."""
    parts = [_one_chunk(chunk, f"{path}, column {name!r}") for chunk in column.chunks]
    if not parts:
        return numpy.empty(0, _type_of(column.type, f"{path}, column {name!r}"))
    filled = [part for part in parts if len(part)] or parts[:1]
    if len({part.shape[1:] for part in filled}) > 1:
        raise InvalidArgument(f"{path}, column {name!r}", "lists of one length",
                              " and ".join(sorted({str(part.shape[1:]) for part in filled})))
    return filled[0] if len(filled) == 1 else numpy.concatenate(filled)


def _one_chunk(array: Any, what: str) -> NDArray[Any]:
    arrow = _arrow.module()
    shape = [len(array)]
    while True:
        if array.null_count:
            raise InvalidArgument(what, "a value in every row", f"{array.null_count} without one")
        if isinstance(array, arrow.ExtensionArray):
            array = array.storage
        elif arrow.types.is_fixed_size_list(array.type):
            shape.append(array.type.list_size)
            array = array.flatten()
        elif arrow.types.is_list(array.type) or arrow.types.is_large_list(array.type):
            shape.append(_width(array, what))
            array = array.flatten()  # of a slice, its own values only
        else:
            break
    _type_of(array.type, what)
    # Bits become bytes; every other number is shared.
    return numpy.reshape(array.to_numpy(zero_copy_only=False), shape)


def _width(array: Any, what: str) -> int:
    offsets = array.offsets.to_numpy()
    widths = numpy.diff(offsets)
    if len(widths) == 0:
        return 0
    if (widths != widths[0]).any():
        row = int(numpy.argmax(widths != widths[0]))
        raise InvalidArgument(what, f"lists of one length, {widths[0]} as in the first row",
                              f"{widths[row]} in row {row}")
    return int(widths[0])


def _type_of(arrow_type: Any, what: str) -> numpy.dtype[Any]:
    types = _arrow.module().types
    inner = arrow_type
    while types.is_nested(inner) and getattr(inner, "value_type", None) is not None:
        inner = inner.value_type
    if not (types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)):
        raise InvalidArgument(what, "numbers, or lists of numbers", str(arrow_type))
    name = str(inner)
    return numpy.dtype(_NAMES.get(name, name))  # to_pandas_dtype() wants pandas in older pyarrow
