"""A plain read of GPU memory: the engine of operators that mostly read weights."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import cycle
from typing import Any

from ._fastest import times_us
from ._rotation import sets_needed

BYTES = 4  # of the numbers that are added up


class DeviceRead:
    """Sums up its own buffers, which exceed the cache.

    On a GPU it uses the fastest of several kernels: torch's, and simple ones in Triton, which read faster
    where it is installed.
    """

    def __init__(self, read: int, device: str, cache: int) -> None:
        self._read, self._device, self._cache = read, device, cache
        self._buffers: Any = None
        self._sum: Callable[[Any], Any] = _torch_sum

    def __call__(self, inputs: Any, outputs: Any) -> Any:
        if self._buffers is None:
            self.prepare(inputs, outputs)
        return self._sum(next(self._buffers))

    def prepare(self, inputs: Any, outputs: Any) -> None:
        """Allocates the buffers and chooses the kernel; does nothing the second time."""
        if self._buffers is not None:
            return
        import torch

        def room() -> Any:
            # Not zeros, which need less power to read.
            return torch.empty(self._read // BYTES, device=self._device).normal_()

        buffers = [room() for _ in range(sets_needed(self._read, self._cache))]
        self._buffers = cycle(buffers)
        if buffers[0].is_cuda:
            self._sum = self._fastest(buffers[0])

    def _fastest(self, buffer: Any) -> Callable[[Any], Any]:
        ways = {"torch": _torch_sum}
        if find_spec("triton") is not None:
            from ._triton_read import SUMS

            ways |= SUMS
        for way in ways.values():  # compiles what is compiled at the first call
            way(buffer)
        calls = {name: partial(_call, way) for name, way in ways.items()}
        times = times_us(calls, buffer, buffer, self._cache)
        return ways[min(times, key=lambda name: times[name])]


def _call(add_up: Callable[[Any], Any], inputs: Any, outputs: Any) -> None:
    add_up(inputs)


def _torch_sum(buffer: Any) -> Any:
    return buffer.sum()
