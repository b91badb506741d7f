"""cudaMemcpy within a GPU: the yardstick of whatever only moves memory."""

from itertools import cycle
from typing import Any

from ._operator import Yardstick
from ._rotation import sets_needed


class DeviceCopy:
    """Half of the bytes read, half written; between buffers of its own, that exceed the cache."""

    def __init__(self, moved: int, device: str, cache: int) -> None:
        self._moved, self._device, self._cache = moved, device, cache
        self._pairs: Any = None

    def __call__(self, inputs: Any, outputs: Any) -> None:
        if self._pairs is None:
            self.prepare(inputs, outputs)
        target, source = next(self._pairs)
        target.copy_(source)  # of one type, without gaps: cudaMemcpyAsync, and no kernel of torch's

    def prepare(self, inputs: Any, outputs: Any) -> None:
        """Once for all sets."""
        if self._pairs is not None:
            return
        import torch

        def room(byte: int) -> Any:
            return torch.full((self._moved // 2,), byte, dtype=torch.uint8, device=self._device)

        count = sets_needed(self._moved, self._cache)
        self._pairs = cycle([(room(0), room(1)) for _ in range(count)])


def device_copy(moved: int, device: str, cache: int) -> Yardstick:
    """A yardstick to be called `cudaMemcpy`."""
    import torch

    return Yardstick(f"CUDA {torch.version.cuda}", DeviceCopy(moved, device, cache))
