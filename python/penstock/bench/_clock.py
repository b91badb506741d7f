"""Clocks for calls on the CPU and on a GPU."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from .. import _core
from ._errors import BenchError

Run = Callable[[], object]
MOST_STALL_US = 20_000
# After a long wait for the GPU, a thread's first calls take two to three times as long as the later
# ones, the replay of a graph as well. Work of its own brings the core back to speed, and some calls
# fill its caches.
WAKING_SECONDS = 0.005
WAKING_CALLS = 10


@dataclass(frozen=True)
class CallTime:
    host_us: float  # until the call returned
    call_us: float  # until its work was done


class Clock(ABC):
    @abstractmethod
    def synchronize(self) -> None:
        """Waits for all work enqueued so far."""

    @abstractmethod
    def gpu_us(self, run: Run, expected_host_us: float) -> float | None:
        """The GPU's time without the launch; None on the CPU."""

    @abstractmethod
    def alone_us(self, run: Run) -> float | None:
        """The time between events around a call on an idle GPU, as a caller's own events show it."""

    def profiled(self) -> AbstractContextManager[object]:
        """Marks the calls that a profiler started with --profile-from-start off records."""
        return nullcontext()

    def call_time(self, run: Run) -> CallTime:
        self.synchronize()
        begin = time.perf_counter_ns()
        run()
        returned = time.perf_counter_ns()
        self.synchronize()
        end = time.perf_counter_ns()
        return CallTime(host_us=(returned - begin) * 1e-3, call_us=(end - begin) * 1e-3)

    def enqueue_us(self, run: Run, calls: int) -> float:
        """The calling thread's time per call, when it is awake: the last ones of `calls` in a row."""
        self.synchronize()
        _wake()
        waking = min(WAKING_CALLS, calls // 2)
        for _ in range(waking):
            run()
        begin = time.perf_counter_ns()
        for _ in range(calls - waking):
            run()
        returned = time.perf_counter_ns()
        self.synchronize()
        return (returned - begin) * 1e-3 / (calls - waking)


def _wake() -> None:
    end = time.perf_counter() + WAKING_SECONDS
    while time.perf_counter() < end:
        pass


class CpuClock(Clock):
    def synchronize(self) -> None:
        pass

    def gpu_us(self, run: Run, expected_host_us: float) -> float | None:
        return None

    def alone_us(self, run: Run) -> float | None:
        return None


class CudaClock(Clock):
    """Measures with torch's events on torch's current stream."""

    def __init__(self, index: int) -> None:
        try:
            import torch
        except ImportError:
            raise BenchError("benchmarks on a GPU need torch, for its events and as a peer: "
                             "pip install torch, or use --device cpu") from None
        if not torch.cuda.is_available():
            raise BenchError(f"torch {torch.__version__} finds no GPU: install a torch built with CUDA, "
                             "or use --device cpu")
        torch.cuda.set_device(index)
        self._torch = torch
        self._cycles_per_us = self._measure_cycles()

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def gpu_us(self, run: Run, expected_host_us: float) -> float | None:
        # A spinning kernel holds the stream until everything is enqueued. Otherwise the first event
        # would complete at once, and the host's launch time would count as GPU time. If the host was
        # slower than expected, the measurement is repeated with a longer spin.
        stall = min(2 * expected_host_us + 20, MOST_STALL_US)
        while True:
            self._torch.cuda._sleep(int(stall * self._cycles_per_us))
            begin, end = self._enqueue_between_events(run)
            held = not begin.query()
            end.synchronize()
            if held or stall == MOST_STALL_US:  # a call that synchronises is never held
                return float(begin.elapsed_time(end)) * 1e3
            stall = min(4 * stall, MOST_STALL_US)

    def alone_us(self, run: Run) -> float | None:
        self.synchronize()
        return self._between_events(run)

    def profiled(self) -> AbstractContextManager[object]:
        return self._torch.cuda.profiler.profile()  # type: ignore[no-any-return]

    def _measure_cycles(self) -> float:
        cycles = 1_000_000
        self._torch.cuda._sleep(cycles)  # the first launch loads the kernel
        return cycles / self._between_events(lambda: self._torch.cuda._sleep(cycles))

    def _between_events(self, run: Run) -> float:
        begin, end = self._enqueue_between_events(run)
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3

    def _enqueue_between_events(self, run: Run) -> tuple[Any, Any]:
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        return begin, end


def clock_for(device: _core.Device) -> Clock:
    return CpuClock() if device.kind == "cpu" else CudaClock(device.index)
