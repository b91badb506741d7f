"""What ends a benchmark with a message instead of a traceback."""

from .._errors import Error


class Failure(Error, RuntimeError):
    """A run that could not be made, or whose result cannot be trusted; the text says what to do."""
