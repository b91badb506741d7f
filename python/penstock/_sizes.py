"""Sizes of memory as arguments."""

from typing import Any

from . import _core
from ._check import not_negative
from ._errors import InvalidArgument


def as_bytes(argument: str, size: Any) -> int:
    """A number of bytes, given as a number or as text such as "20GiB" or "512 MiB"."""
    if isinstance(size, str):
        return _core.parse_bytes(size, argument)
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise InvalidArgument(argument, "a number of bytes, or text such as '20GiB'", repr(size))
    return not_negative(argument, size.__index__())
