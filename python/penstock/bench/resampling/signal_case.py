"""What the cases of resample have in common."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from .._captured import Captured
from .._device_copy import device_copy
from .._operator import Absent, Call, Case, Context, Peer
from .._rotation import cache_bytes

SIZES = {"bf16": 2, "f32": 4}
# Ours rounds once. Peers compute f32 in f32 and round after every operation.
TOLERANCES = {"bf16": 2.0**-8, "f32": 2.0**-23}
PEER_TOLERANCES = {"bf16": 2.0**-8, "f32": 2.0**-21}


class SignalCase(Case):
    """The result is one array (B, T, D) of `dtype`: NumPy's on the CPU, a torch tensor on a GPU."""

    result: tuple[int, int, int]

    def __init__(self, context: Context, name: str, dtype: str) -> None:
        self.name = name
        self._context = context
        self._on_cpu = context.device.kind == "cpu"
        self._dtype = "f32" if self._on_cpu else dtype  # NumPy has no bf16
        self.tolerance = TOLERANCES[self._dtype]
        self.peer_tolerance = PEER_TOLERANCES[self._dtype]

    def best(self, inputs: Any, out: Any) -> None:
        raise NotImplementedError

    def other_kernels(self) -> Mapping[str, Call]:
        return {}

    def other_peers(self) -> Mapping[str, Peer | Absent]:
        return {}

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        captured: dict[str, Call] = {} if self._on_cpu else {"captured": Captured(self.best)}
        return {"best": self.best, **captured, **self.other_kernels()}

    @cached_property
    def _peers(self) -> dict[str, Peer | Absent]:
        others = dict(self.other_peers())
        if self._on_cpu:
            return others
        device = self._context.device
        return {**device_copy(self.bytes, device.name, cache_bytes(device)), **others}

    def kernels(self) -> Mapping[str, Call]:
        return self._kernels

    def peers(self) -> Mapping[str, Peer | Absent]:
        return self._peers

    def make_outputs(self, inputs: Any) -> Any:
        if self._on_cpu:
            import numpy

            return numpy.empty(self.result, "f4")
        import torch

        dtype = torch.bfloat16 if self._dtype == "bf16" else torch.float32
        return torch.empty(self.result, dtype=dtype, device=self._context.device.name)

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        return self.bytes / ceilings["host_copy" if self._on_cpu else "device_copy"] * 1e6

    def random_values(self, rotation: int, part: int, shape: tuple[int, ...]) -> Any:
        """Values from -1 to 1, made on the device."""
        import numpy

        random = numpy.random.default_rng([self._context.seed, rotation, part])
        if self._on_cpu:
            values = random.random(shape, dtype="f4")
            values *= 2
            values -= 1
            return values
        import torch

        device = self._context.device.name
        generator = torch.Generator(device)
        generator.manual_seed(int(random.integers(1 << 62)))
        values = torch.rand(shape, generator=generator, device=device).mul_(2).sub_(1)
        return values.to(torch.bfloat16 if self._dtype == "bf16" else torch.float32)

    def on_device(self, array: Any) -> Any:
        if self._on_cpu:
            return array
        import torch

        return torch.from_numpy(array).to(self._context.device.name)

    def on_host(self, array: Any) -> Any:
        return array if self._on_cpu else array.float().cpu().numpy()
