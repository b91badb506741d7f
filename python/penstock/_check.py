"""Checks arguments before the extension module does, for clearer messages."""

from ._errors import InvalidArgument


def not_negative(argument: str, value: int) -> int:
    if value < 0:
        raise InvalidArgument(argument, "0 or more", str(value))
    return value
