"""The samples that a result depends on, and the bytes that must be moved for them."""

from collections.abc import Iterable
from typing import Any

SECTOR = 32  # bytes; a GPU reads memory in units of this size


def place(times: Any, at: Any) -> tuple[Any, Any]:
    """For each target time, the index of the sample before it and the weight of the next, 0 to 1."""
    import numpy

    index = numpy.clip(numpy.searchsorted(times, at, side="right") - 1, 0, len(times) - 2)
    a, b = times[index].astype("f8"), times[index + 1].astype("f8")
    return index, numpy.clip((at - a) / numpy.where(b > a, b - a, 1), 0, 1)


def held(places: tuple[Any, Any]) -> tuple[Any, Any]:
    """The same for mode 'previous', which holds a sample until the next one."""
    import numpy

    index, weight = places
    return index, numpy.floor(weight)


def sectors(places: Iterable[tuple[Any, Any]], offsets: Iterable[int], row_bytes: int) -> int:
    """Distinct sectors of all rows that are read; `offsets` are the first rows of the episodes."""
    import numpy

    rows = [part + first for (index, weight), first in zip(places, offsets)
            for part in (index[weight < 1], index[weight > 0] + 1)]
    begin = numpy.unique(numpy.concatenate(rows)) * row_bytes
    heads, ends = begin // SECTOR, (begin + row_bytes - 1) // SECTOR
    shared = int(numpy.count_nonzero(heads[1:] == ends[:-1]))
    return int((ends - heads + 1).sum()) - shared
