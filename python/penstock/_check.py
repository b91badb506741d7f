"""Checks arguments before the extension module does, for clearer messages."""

import operator
from typing import Any

from ._errors import InvalidArgument


def not_negative(argument: str, value: int) -> int:
    if value < 0:
        raise InvalidArgument(argument, "0 or more", str(value))
    return value


def whole(argument: str, value: Any) -> int:
    """A whole number, as int or as NumPy has them."""
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgument(argument, "a whole number", repr(value)) from None
