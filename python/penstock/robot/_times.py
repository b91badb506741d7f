"""Times of samples, relative to the start of their episode."""

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy
from numpy.typing import NDArray

from .._errors import InvalidArgument
from ._metadata import Episode, Feature

Times = NDArray[Any]  # f64 in seconds, or i64 in nanoseconds


def wrong_row(times: Times, offsets: NDArray[numpy.int64]) -> int | None:
    """The first row whose time is not finite or lower than the one before it in its episode.

    Episodes begin at `offsets`. None may be empty.
    """
    fine = numpy.empty(len(times), bool)
    numpy.greater_equal(times[1:], times[:-1], out=fine[1:])
    ends = numpy.isfinite(times[numpy.concatenate([offsets[:-1], offsets[1:] - 1])])
    fine[offsets[:-1]] = True
    # Values that do not decrease contain no NaN, and are finite if the first and the last are.
    if fine.all() and ends.all():
        return None
    return int(numpy.argmin(fine & numpy.isfinite(times)))


def count_from_start(columns: Iterable[Times], offsets: NDArray[numpy.int64]) -> None:
    """Subtracts the earliest time of each episode from its times, in place."""
    columns = list(columns)
    begins = numpy.minimum.reduce([times[offsets[:-1]] for times in columns])
    begin = numpy.repeat(begins, numpy.diff(offsets))
    for times in columns:
        times -= begin


def of_episode(column: NDArray[Any], feature: Feature, episode: Episode) -> Times:
    """The times of one episode, relative to its first."""
    if not are_times(column, feature):
        refuse(column, feature, episode)
    times = column.reshape(-1).astype(numpy.float64 if is_seconds(feature) else numpy.int64)
    round_as_stored(times, feature)
    offsets = numpy.array([0, len(times)])
    if wrong_row(times, offsets) is not None:
        refuse(column, feature, episode)
    count_from_start([times], offsets)
    return times


def as_stored(seconds: NDArray[numpy.float64], feature: Feature) -> Times:
    """Rounds target times like stored ones, so that 1/30 matches a sample stored as 1/30 in f32."""
    if not is_seconds(feature):
        return numpy.rint(seconds * 1e9).astype(numpy.int64)
    if feature.dtype == "float32":
        return seconds.astype(numpy.float32).astype(numpy.float64)
    return seconds


def round_as_stored(times: Times, feature: Feature) -> None:
    """Rounds times in place if meta/ says f32, since a file may hold them in f64."""
    if feature.dtype == "float32":
        times[:] = as_stored(times, feature)


def in_seconds(time: Any, feature: Feature) -> float:
    return float(time) if is_seconds(feature) else float(time) * 1e-9


def is_seconds(feature: Feature) -> bool:
    """Whether times are in seconds; integers are nanoseconds."""
    return feature.dtype.startswith("float")


def are_times(column: NDArray[Any], feature: Feature) -> bool:
    """Whether a column has one time per row, of the kind that meta/ says."""
    return column.size == len(column) and (column.dtype.kind == "f") == is_seconds(feature)


def refuse(column: NDArray[Any], feature: Feature, episode: Episode) -> NoReturn:
    """Raises an error that says what is wrong with the times."""
    what = f"{episode.path}, column {feature.name!r} of episode {episode.index}"
    column = column.reshape(len(column), -1)
    if len(column) and column.shape[1] != 1:
        raise InvalidArgument(what, "one time per row", str(column.shape[1]))
    times = column.reshape(-1)
    if (times.dtype.kind == "f") != is_seconds(feature):
        raise InvalidArgument(what, f"{feature.dtype}, according to meta/", str(times.dtype))
    wrong = ~numpy.isfinite(times)
    if wrong.any():
        row = int(numpy.argmax(wrong))
        raise InvalidArgument(what, "finite times", f"{times[row]} in row {row}")
    row = int(numpy.argmax(times[1:] < times[:-1]))
    raise InvalidArgument(what, "non-decreasing timestamps",
                          f"{times[row + 1]} after {times[row]} in row {row + 1}")
