"""Floors: times that no run can beat, and the rule that drops a result which beats its floor.

Peers and yardsticks (cudaMemcpy, a copy with NumPy, a roof computed from such a rate) are not floors:
a result may beat them. C++ has the same rule in penstock/measure/floor.h.
"""

import math

from .._errors import InvalidArgument
from ._table import shown_us

LEAST_OVER_FLOOR = 0.98  # what is below this is a measuring error; above it, the clock's noise


class Floor:
    """The best time over all passes that measured one engine alone.

    A pass is never part of the run that is judged by the floor. Every further pass can only lower it.
    """

    def __init__(self) -> None:
        self.passes = 0
        self._best = math.inf

    def add(self, us: float) -> None:
        """One pass of the engine alone."""
        _check_time("us", us)
        self._best = min(self._best, us)
        self.passes += 1

    @property
    def us(self) -> float:
        """The best pass, in microseconds."""
        if not self.passes:
            raise InvalidArgument("floor", "at least one pass of the engine alone", "none")
        return self._best


def reason_to_drop(us: float, floor_us: float) -> str:
    """Why a result of `us` is dropped; empty if it is kept."""
    _check_time("us", us)
    _check_time("floor_us", floor_us)
    if us / floor_us >= LEAST_OVER_FLOOR:
        return ""
    return (f"took {shown_us(us)}, {us / floor_us:.3f} x its floor of {shown_us(floor_us)}; a row "
            f"below {LEAST_OVER_FLOOR} x its floor is a measuring error")


def _check_time(argument: str, us: float) -> None:
    if not (us > 0 and math.isfinite(us)):  # written so that NaN fails
        raise InvalidArgument(argument, "a positive, finite number of microseconds", str(us))
