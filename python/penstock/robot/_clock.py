"""The target times of a loader."""

import math
from typing import Any

import numpy
from numpy.typing import NDArray

from .._errors import InvalidArgument
from . import _times
from ._metadata import Feature

Seconds = NDArray[numpy.float64]


class Clock:
    """Target times: a rate in Hz for a number of steps or seconds or for the length of a batch, or
    a list of times.

    `feature` is the column of times that they are compared with.
    """

    def __init__(self, at: Any, seconds: float | None, steps: int | None,
                 feature: Feature) -> None:
        self.feature = feature
        wanted = numpy.asarray(at, numpy.float64)
        if seconds is not None and steps is not None:
            raise InvalidArgument("seconds, steps", "at most one of them", "both")
        if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
            raise InvalidArgument("seconds", "0 or more", str(seconds))
        if steps is not None and steps < 0:
            raise InvalidArgument("steps", "0 or more", str(steps))
        self._rate: float | None = None
        self._times: Seconds = wanted
        self.steps = steps
        if wanted.ndim == 0:
            if not (math.isfinite(float(wanted)) and wanted > 0):
                raise InvalidArgument("at", "a rate above 0 or a list of times", repr(at))
            self._rate = float(wanted)
            if seconds is not None:
                self.steps = round(seconds * self._rate)
        elif wanted.ndim != 1 or not numpy.isfinite(wanted).all():
            raise InvalidArgument("at", "a rate or a list of finite times", f"shape {wanted.shape}"
                                  if wanted.ndim != 1 else "times that are not finite")
        elif seconds is not None or steps is not None:
            raise InvalidArgument("seconds, steps", "neither, as `at` is a list of times", "one")
        else:
            self._times, self.steps = wanted.copy(), len(wanted)

    def steps_in(self, duration: Any) -> int:
        """The number of steps of a batch whose longest episode has this duration."""
        if self._rate is None or self.steps is not None:
            return self.steps or 0
        steps = math.floor(_times.in_seconds(duration, self.feature) * self._rate)
        # Times are rounded. The last sample must get a step, and no step may follow it.
        near = numpy.arange(max(0, steps - 1), steps + 3)
        return int(near[_times.as_stored(near / self._rate, self.feature) <= duration][-1]) + 1

    def times(self, steps: int) -> Seconds:
        return self._times[:steps] if self._rate is None else numpy.arange(steps) / self._rate

    def stored(self, steps: int) -> _times.Times:
        return _times.as_stored(self.times(steps), self.feature)
