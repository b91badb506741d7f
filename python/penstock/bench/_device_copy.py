"""cudaMemcpy within a GPU: the yardstick of whatever only moves memory."""

from itertools import cycle
from typing import Any

from ._operator import Yardstick
from ._rotation import sets_needed

PAGE = 4096


class DeviceCopy:
    """Half of the bytes read, half written; between buffers of its own, that exceed the cache."""

    def __init__(self, moved: int, device: str, cache: int) -> None:
        self._moved, self._device, self._cache = moved, device, cache
        self._pairs: Any = None

    def __call__(self, inputs: Any, outputs: Any) -> None:
        if self._pairs is None:
            self.prepare(inputs, outputs)
        source, target = next(self._pairs)
        target.copy_(source)  # of one type, without gaps: cudaMemcpyAsync, and no kernel of torch's

    def prepare(self, inputs: Any, outputs: Any) -> None:
        """Once for all sets."""
        if self._pairs is not None:
            return
        import torch

        def room(byte: int) -> Any:
            return torch.full((self._moved // 2,), byte, dtype=torch.uint8, device=self._device)

        count = sets_needed(self._moved, self._cache)
        self._pairs = cycle([(room(1), room(0)) for _ in range(count)])


def device_copies(moved: int, device: str, cache: int) -> dict[str, Yardstick]:
    """Of as many bytes; and of whole pages, a few bytes more, which take some microseconds less."""
    import torch

    version = f"CUDA {torch.version.cuda}"
    pages = 2 * -(-(moved // 2) // PAGE) * PAGE
    return {"cudaMemcpy": Yardstick(version, DeviceCopy(moved, device, cache)),
            "cudaMemcpy of pages": Yardstick(version, DeviceCopy(pages, device, cache))}
