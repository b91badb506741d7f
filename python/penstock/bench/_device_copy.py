"""cudaMemcpy within a GPU: the yardstick of whatever only moves memory."""

from itertools import cycle
from typing import Any

from ._captured import Captured
from ._operator import Call, Yardstick
from ._rotation import sets_needed


def _copy(source: Any, target: Any) -> None:
    target.copy_(source)  # of one type, without gaps: cudaMemcpyAsync, and no kernel of torch's


class DeviceCopy:
    """Half of the bytes read, half written; between buffers of its own, that exceed the cache."""

    def __init__(self, moved: int, device: str, cache: int, copy: Call = _copy) -> None:
        self._moved, self._device, self._cache, self._copy = moved, device, cache, copy
        self._pairs: Any = None

    def __call__(self, inputs: Any, outputs: Any) -> None:
        if self._pairs is None:
            self.prepare(inputs, outputs)
        self._copy(*next(self._pairs))

    def prepare(self, inputs: Any, outputs: Any) -> None:
        """Once for all sets."""
        if self._pairs is not None:
            return
        import torch

        def room(byte: int) -> Any:
            return torch.full((self._moved // 2,), byte, dtype=torch.uint8, device=self._device)

        count = sets_needed(self._moved, self._cache)
        pairs = [(room(1), room(0)) for _ in range(count)]
        if isinstance(self._copy, Captured):
            for source, target in pairs:
                self._copy.prepare(source, target)
        self._pairs = cycle(pairs)


def device_copies(moved: int, device: str, cache: int) -> dict[str, Yardstick]:
    """As a call, and as it is without one."""
    import torch

    version = f"CUDA {torch.version.cuda}"
    return {"cudaMemcpy": Yardstick(version, DeviceCopy(moved, device, cache)),
            "cudaMemcpy captured": Yardstick(version, DeviceCopy(moved, device, cache,
                                                                 Captured(_copy)))}
