"""Errors that end a benchmark with a message instead of a traceback."""

from .._errors import Error


class BenchError(Error, RuntimeError):
    """A benchmark that cannot run, or whose result cannot be trusted. The message says what to do."""
