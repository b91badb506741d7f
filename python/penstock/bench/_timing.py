"""Times our kernels and their peers in interleaved runs, with rotated buffers and equal pauses."""

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ._clock import Clock

FEWEST_SAMPLES = 5
BLOCKS = 3  # of back-to-back calls, for each kernel or peer
# In a row when their host time is taken, for calls so long that Plan.enqueue_seconds allows fewer.
FEWEST_ENQUEUED = 30


@dataclass(frozen=True)
class Plan:
    warm_up: int = 5
    samples: int = 50
    # The pause after a timed call: a share of the call's time, within these bounds. A call heats the
    # GPU and lowers its clock; for long calls this would be seen in the next one's time.
    rest_share: float = 0.5
    rest_seconds: float = 0.0005
    most_rest_seconds: float = 0.01
    seconds: float = 20.0  # for the samples of a case; slow cases get fewer samples
    sustained_seconds: float = 0.5  # of back-to-back calls, for each kernel or peer
    # The most calls in a row whose host time is taken. A stream accepts about a thousand launches
    # before a call blocks.
    enqueued: int = 200
    # That these calls take, in each of BLOCKS blocks. Not part of sustained_seconds: with fewer of the
    # long calls, their mean would vary more than that of short calls.
    enqueue_seconds: float = 0.25

    @classmethod
    def quick(cls) -> "Plan":
        return cls(warm_up=1, samples=7, rest_share=0, rest_seconds=0, seconds=2,
                   sustained_seconds=0.02, enqueued=20)

    def rest_after(self, call_us: float) -> float:
        return min(self.most_rest_seconds, max(self.rest_seconds, self.rest_share * call_us * 1e-6))


@dataclass
class Samples:
    # Calls after a pause, one at a time. The GPU's own time, then the time between events around a
    # call on an idle GPU; both are empty on the CPU. Then the host's clock until the work is done, and
    # until the call returns.
    gpu_us: list[float] = field(default_factory=list)
    alone_us: list[float] = field(default_factory=list)
    call_us: list[float] = field(default_factory=list)
    host_us: list[float] = field(default_factory=list)
    # Back-to-back calls: the time per call, and the calling thread's time per call (None on the CPU).
    sustained_us: float = 0.0
    enqueue_us: float | None = None

    def summary(self) -> dict[str, float | int]:
        """Medians, with the 10th and the 90th percentile."""
        found: dict[str, float | int] = {}
        for clock in ("gpu_us", "alone_us", "call_us", "host_us"):
            values = getattr(self, clock)
            if not values:
                continue
            found[clock] = round(statistics.median(values), 3)
            found[f"{clock}_p10"] = round(percentile(values, 0.1), 3)
            found[f"{clock}_p90"] = round(percentile(values, 0.9), 3)
        return found | {"samples": len(self.call_us)}

    @property
    def judged_us(self) -> float:
        """The time that counts: the GPU's own if it is known, else that of the call."""
        return statistics.median(self.gpu_us or self.call_us)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


class Turns:
    """Who runs when: in each round all, in a new order, the same in every run of the program.

    In a fixed order the neighbour that ran before would decide a few per cent of a long call's time.
    """

    def __init__(self, plan: Plan, sleep: Callable[[float], object]) -> None:
        self._random = random.Random(0)
        self._plan, self._sleep = plan, sleep

    def of(self, names: Iterable[str]) -> list[str]:
        """One round."""
        order = list(names)
        self._random.shuffle(order)
        return order

    def rest(self, call_us: float) -> None:
        """The pause after a call that took so long."""
        self._sleep(self._plan.rest_after(call_us))


def measure(runs: Mapping[str, Callable[[], object]], clock: Clock, plan: Plan,
            sleep: Callable[[float], object] = time.sleep,
            known: Mapping[str, Callable[[], object]] | None = None) -> dict[str, Samples]:
    """Times single calls interleaved, in a new order in every round, then back-to-back calls.

    `known` are calls with buffers that the host has used just before, as a program would; the enqueue
    time is measured with these. Only the calls that it names are also measured back to back.
    """
    expected_host_us: dict[str, float] = {}
    for name, run in runs.items():
        for _ in range(plan.warm_up):
            expected_host_us[name] = clock.call_time(run).host_us

    samples = {name: Samples() for name in runs}
    turns = Turns(plan, sleep)
    begin = time.monotonic()
    for number in range(plan.samples):
        if number >= FEWEST_SAMPLES and time.monotonic() - begin > plan.seconds:
            break
        for name in turns.of(runs):
            run = runs[name]
            taken = clock.call_time(run)
            samples[name].call_us.append(taken.call_us)
            samples[name].host_us.append(taken.host_us)
            turns.rest(taken.call_us)
            gpu = clock.gpu_us(run, max(expected_host_us.get(name, 0), taken.host_us))
            if gpu is None:
                continue
            samples[name].gpu_us.append(gpu)
            turns.rest(gpu)
            alone = clock.alone_us(run)
            if alone is not None:
                samples[name].alone_us.append(alone)
                turns.rest(alone)

    known = known or runs
    _measure_sustained({name: runs[name] for name in known}, clock, plan, turns, samples)
    _measure_enqueuing(known, clock, plan, turns, samples)
    return samples


def _measure_sustained(runs: Mapping[str, Callable[[], object]], clock: Clock, plan: Plan,
                       turns: Turns, samples: Mapping[str, Samples]) -> None:
    blocks: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(BLOCKS):
        for name in turns.of(runs):
            calls = _calls_in(plan.sustained_seconds / BLOCKS, samples[name].judged_us)
            taken = clock.call_time(_repeated(runs[name], calls))
            blocks[name].append(taken.call_us / calls)
            turns.rest(taken.call_us)
    for name, times in blocks.items():
        samples[name].sustained_us = round(statistics.median(times), 3)


def _measure_enqueuing(runs: Mapping[str, Callable[[], object]], clock: Clock, plan: Plan,
                       turns: Turns, samples: Mapping[str, Samples]) -> None:
    """The calling thread's time for one of many back-to-back calls, however long the GPU takes."""
    blocks: dict[str, list[float]] = {name: [] for name in runs if samples[name].gpu_us}
    for _ in range(BLOCKS):
        for name in turns.of(blocks):
            calls = _calls_in(plan.enqueue_seconds, samples[name].judged_us)
            calls = min(plan.enqueued, max(calls, FEWEST_ENQUEUED))
            blocks[name].append(clock.enqueue_us(runs[name], calls))
    for name, times in blocks.items():
        samples[name].enqueue_us = round(statistics.median(times), 3)


def _repeated(run: Callable[[], object], calls: int) -> Callable[[], object]:
    def queue() -> None:
        for _ in range(calls):
            run()

    return queue


def _calls_in(seconds: float, call_us: float) -> int:
    return max(3, min(2000, int(seconds * 1e6 / max(call_us, 0.1))))
