"""Times of samples, in seconds from where their episode begins."""

import math
from typing import Any, NoReturn

import numpy
from numpy.typing import NDArray

from .._errors import InvalidArgument
from ._metadata import Episode, Feature

Times = NDArray[Any]  # f64 in seconds, or i64 in nanoseconds


def from_start(columns: dict[str, NDArray[Any]], features: dict[str, Feature],
               episode: Episode) -> dict[str, Times]:
    """Columns of times, all from the earliest on."""
    times = {name: _checked(column.reshape(len(column), -1), features[name], episode)
             for name, column in columns.items()}
    begin = min((column[0] for column in times.values() if len(column)), default=0)
    return {name: column - begin for name, column in times.items()}


def as_stored(seconds: NDArray[numpy.float64], feature: Feature) -> Times:
    """Wanted times rounded like stored ones: 1/30 is to hit the sample stored at 1/30 in f32."""
    if not is_seconds(feature):
        return numpy.rint(seconds * 1e9).astype(numpy.int64)
    if feature.dtype == "float32":
        return seconds.astype(numpy.float32).astype(numpy.float64)
    return seconds


def in_seconds(time: Any, feature: Feature) -> float:
    return float(time) if is_seconds(feature) else float(time) * 1e-9


def is_seconds(feature: Feature) -> bool:
    """Whole numbers are nanoseconds."""
    return feature.dtype.startswith("float")


def _checked(column: NDArray[Any], feature: Feature, episode: Episode) -> Times:
    times = column.reshape(-1)
    seconds = is_seconds(feature)
    if len(times) != len(column) or (times.dtype.kind == "f") != seconds:
        _refuse(column, feature, episode)
    if seconds:
        times = as_stored(times.astype(numpy.float64), feature)
    else:
        times = times.astype(numpy.int64)
    # Numbers that do not decrease are all finite if the first and the last are, and none is NaN.
    if len(times) and not ((times[1:] >= times[:-1]).all()
                           and math.isfinite(times[0]) and math.isfinite(times[-1])):
        _refuse(column, feature, episode)
    return times


def _refuse(column: NDArray[Any], feature: Feature, episode: Episode) -> NoReturn:
    """Says what is wrong."""
    what = f"{episode.path}, column {feature.name!r} of episode {episode.index}"
    if len(column) and column.shape[1] != 1:
        raise InvalidArgument(what, "one time a row", str(column.shape[1]))
    times = column.reshape(-1)
    if (times.dtype.kind == "f") != is_seconds(feature):
        raise InvalidArgument(what, f"{feature.dtype}, as meta/ says", str(times.dtype))
    wrong = ~numpy.isfinite(times)
    if wrong.any():
        row = int(numpy.argmax(wrong))
        raise InvalidArgument(what, "finite times", f"{times[row]} in row {row}")
    row = int(numpy.argmax(times[1:] < times[:-1]))
    raise InvalidArgument(what, "times that do not decrease",
                          f"{times[row + 1]} after {times[row]} in row {row + 1}")
