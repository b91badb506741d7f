"""Checks every element of a result, starting from poisoned outputs."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ._arrays import arrays_in, poison, to_numpy
from ._clock import Clock
from ._operator import Call, Case, Peer

# 0xFF in every byte makes floats NaN. If NaN or -1 is the right answer, that proves nothing, so a
# second run starts from a finite pattern.
FIRST_POISON, SECOND_POISON = 0xFF, 0x5A
BLOCK = 1 << 16  # elements per comparison by one thread


@dataclass(frozen=True)
class Verdict:
    max_error: float
    complaint: str = ""  # empty if the result is right

    @property
    def right(self) -> bool:
        return not self.complaint


def check(case: Case, calls: Mapping[str, Call], clock: Clock) -> dict[str, Verdict]:
    """Runs all of `calls` before the reference, which could leave the right answer in freed memory."""
    first = {name: _run(case, call, clock, FIRST_POISON) for name, call in calls.items()}
    # From new inputs, so that a kernel which wrote to its inputs is found to be wrong.
    wanted = [to_numpy(array) for array in arrays_in(case.reference(case.make_inputs(0)))]
    verdicts = {}
    for name, call in calls.items():
        verdict = _compare(case, name, first.pop(name), wanted)
        if verdict.right:
            verdict = _compare(case, name, _run(case, call, clock, SECOND_POISON), wanted)
        verdicts[name] = verdict
    return verdicts


def _run(case: Case, call: Call, clock: Clock, byte: int) -> list[Any] | str:
    """The outputs on the host, or the reason why there are none."""
    inputs = case.make_inputs(0)
    outputs = case.make_outputs(inputs)
    poison(outputs, byte)
    try:
        returned = call(inputs, outputs)
        clock.synchronize()
    except Exception as error:  # an exception in a kernel or a peer is a result, not the end of the run
        return f"raised {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    result = case.compared(outputs if returned is None else returned)
    return [to_numpy(array) for array in arrays_in(result)]


def tolerance_of(case: Case, name: str) -> float:
    peer = case.peers().get(name)
    own = peer.tolerance if isinstance(peer, Peer) else None
    return case.tolerance if own is None else own


def _compare(case: Case, name: str, got: list[Any] | str, wanted: list[Any]) -> Verdict:
    if isinstance(got, str):
        return Verdict(float("nan"), got)
    if len(got) != len(wanted):
        return Verdict(float("nan"), f"expected {len(wanted)} outputs, got {len(got)}")
    worst = 0.0
    tolerance = tolerance_of(case, name)
    for number, (mine, right) in enumerate(zip(got, wanted)):
        verdict = _compare_one(case, tolerance, number, mine, right)
        if not verdict.right:
            return verdict
        worst = max(worst, verdict.max_error)
    return Verdict(worst)


def _compare_one(case: Case, tolerance: float, number: int, got: Any, wanted: Any) -> Verdict:
    import numpy

    if got.shape != wanted.shape:
        return Verdict(float("nan"),
                       f"output {number}: expected shape {wanted.shape}, got {got.shape}")
    mine, right = got.reshape(-1), wanted.reshape(-1)

    def block(begin: int) -> tuple[float, Any]:
        part = slice(begin, begin + BLOCK)
        return _errors(case, tolerance, mine[part], right[part])

    count, first, worst = 0, 0, 0.0
    begins = range(0, got.size, BLOCK)
    with ThreadPoolExecutor() as pool:  # NumPy releases the interpreter lock
        for begin, (error, wrong) in zip(begins, pool.map(block, begins)):
            worst = float(numpy.maximum(worst, error))  # NaN stays NaN
            if count == 0 and len(wrong):
                first = begin + int(wrong[0])
            count += len(wrong)
    if count == 0:
        return Verdict(worst)
    at = tuple(int(i) for i in numpy.unravel_index(first, got.shape))
    return Verdict(worst, f"output {number}: {count} of {got.size} elements wrong, the first at "
                          f"{list(at)}: expected {wanted[at]!s} within {tolerance:g}, "
                          f"got {got[at]!s}")


def _errors(case: Case, tolerance: float, got: Any, wanted: Any) -> tuple[float, Any]:
    """The largest error, and the places where it exceeds the tolerance."""
    import numpy

    with numpy.errstate(all="ignore"):
        error = case.error(got.astype("f8"), wanted.astype("f8"))
        wrong = ~(error <= tolerance)  # not `error > tolerance`, which is false for NaN
        if wrong.any():
            same = (got == wanted) | ((got != got) & (wanted != wanted))  # equal infinities, and NaN
            error = numpy.where(same, 0.0, error)
            wrong &= ~same
        return float(error.max()), numpy.flatnonzero(wrong)
