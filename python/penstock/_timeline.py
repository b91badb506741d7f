"""The entries of a timeline."""

from typing import Any, NamedTuple

from . import _core


class Entry(NamedTuple):
    """One busy interval, in nanoseconds since the start of the run."""

    engine: str
    stage: str
    item: int
    begin_ns: int
    end_ns: int


def as_array(timeline: _core.Timeline) -> Any:
    """The entries as a structured NumPy array."""
    import numpy

    entries = timeline.entries()
    longest = max((len(entry.stage) for entry in entries), default=1)
    return numpy.array([tuple(entry) for entry in entries],
                       dtype=[("engine", "U11"), ("stage", f"U{longest}"), ("item", "u8"),
                              ("begin_ns", "i8"), ("end_ns", "i8")])
