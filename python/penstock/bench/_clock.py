"""Time on the CPU and on a GPU."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from .. import _core
from ._failure import Failure

Run = Callable[[], object]
MOST_STALL_US = 20_000


@dataclass(frozen=True)
class CallTime:
    host_us: float  # until the call returned
    call_us: float  # until its work was done


class Clock(ABC):
    @abstractmethod
    def synchronize(self) -> None:
        """Waits for everything enqueued so far."""

    @abstractmethod
    def gpu_us(self, run: Run, expected_host_us: float) -> float | None:
        """What the GPU took, launching apart; None on the CPU, which has no other clock."""

    @abstractmethod
    def alone_us(self, run: Run) -> float | None:
        """Between events around a call on an idle GPU: what a caller's own events see."""

    def profiled(self) -> AbstractContextManager[object]:
        """Marks what a profiler is to look at, where it was told to wait for that."""
        return nullcontext()

    def call_time(self, run: Run) -> CallTime:
        self.synchronize()
        begin = time.perf_counter_ns()
        run()
        returned = time.perf_counter_ns()
        self.synchronize()
        end = time.perf_counter_ns()
        return CallTime(host_us=(returned - begin) * 1e-3, call_us=(end - begin) * 1e-3)


class CpuClock(Clock):
    def synchronize(self) -> None:
        pass

    def gpu_us(self, run: Run, expected_host_us: float) -> float | None:
        return None

    def alone_us(self, run: Run) -> float | None:
        return None


class CudaClock(Clock):
    """Events of torch, on the stream that is torch's current one."""

    def __init__(self, index: int) -> None:
        try:
            import torch
        except ImportError:
            raise Failure("benchmarks on a GPU need torch, for its events and as a peer: "
                          "pip install torch, or --device cpu") from None
        if not torch.cuda.is_available():
            raise Failure(f"torch {torch.__version__} sees no GPU: install one built with CUDA, "
                          "or --device cpu")
        torch.cuda.set_device(index)
        self._torch = torch
        self._cycles_per_us = self._measure_cycles()

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def gpu_us(self, run: Run, expected_host_us: float) -> float | None:
        # Held back until everything is enqueued; else the first event would pass at once, and the
        # time that the host needs to launch would count as the GPU's. A host that was asleep takes
        # longer than expected now and then: again, with more patience.
        stall = min(2 * expected_host_us + 20, MOST_STALL_US)
        while True:
            self._torch.cuda._sleep(int(stall * self._cycles_per_us))
            begin, end = self._enqueue_between_events(run)
            held = not begin.query()
            end.synchronize()
            if held or stall == MOST_STALL_US:  # a call that waits for its work passes every time
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
