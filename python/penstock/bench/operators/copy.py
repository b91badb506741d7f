"""copy: contiguous memory, within the device and to and from the host."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ... import copy, transform
from .. import _cub
from .._fastest import chosen
from .._operator import Absent, Call, Case, Context, Operator, Peer
from .._rotation import cache_bytes
from .._values import empty, normal

MIB, GIB = 1 << 20, 1 << 30
# Where the bytes come from and go to, and how many.
CASES = {
    "device, 1 GiB": ("device", "device", GIB),
    "device, 4 GiB": ("device", "device", 4 * GIB),
    "device, 1 MiB": ("device", "device", MIB),
    "upload, 1 GiB": ("host", "device", GIB),
    "upload, 1 MiB": ("host", "device", MIB),
    "download, 1 GiB": ("device", "host", GIB),
    "download, 1 MiB": ("device", "host", MIB),
}
ON_CPU = {"host, 64 MiB": ("host", "host", 64 * MIB), "host, 1 MiB": ("host", "host", MIB)}
QUICK = MIB // 4
RATES = {("device", "device"): "device_copy", ("host", "device"): "h2d", ("device", "host"): "d2h",
         ("host", "host"): "host_copy"}


class CopyCase(Case):
    """Inputs and outputs are f32. On a GPU, memory of the host is page-locked.

    Copies within a GPU are also made by the kernels of transform: a cast to the same dtype.
    """

    tolerance = 0.0
    flop = 0

    def __init__(self, context: Context, name: str, source: str, target: str, size: int) -> None:
        self.name = name
        self._context = context
        self._on_cpu = context.device.kind == "cpu"
        self._source, self._target, self._elements = source, target, size // 4
        self._within = source == target
        self.params = {"bytes": size, "from": source, "to": target}
        self.bytes = 2 * size if self._within else size  # the link moves every byte once
        if not self._within:
            self.yardstick = "the same bytes at the measured rate of the link"

    def make_inputs(self, rotation: int) -> Any:
        made = normal(self._context, [rotation], (self._elements,), "f32")
        if self._on_cpu or self._source == "device":
            return made
        return self._room("host").copy_(made)

    def make_outputs(self, inputs: Any) -> Any:
        return self._room(self._target)

    def _room(self, where: str) -> Any:
        if self._on_cpu or where == "device":
            return empty(self._context, (self._elements,), "f32")
        import torch

        return torch.empty(self._elements, pin_memory=True)

    def compared(self, result: Any) -> Any:
        """The number of elements with wrong bits; all are compared where they are."""
        wanted = self.make_inputs(0)
        if self._on_cpu:
            return (result.view("i4") != wanted.view("i4")).sum()
        import torch

        return (result.view(torch.int32) != wanted.to(result.device).view(torch.int32)).sum()

    def reference(self, inputs: Any) -> Any:
        import numpy

        return numpy.zeros((), "i8")

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        kernels: dict[str, Call] = {"best": self._best}
        if not self._on_cpu and self._within:
            kernels["transform"] = self._transform
        return kernels

    def kernels(self) -> Mapping[str, Call]:
        return self._kernels

    def _best(self, source: Any, target: Any) -> None:
        if self._on_cpu:
            return copy(target, source)
        import torch

        return copy(target, source, torch.cuda.current_stream())

    @staticmethod
    def _transform(source: Any, target: Any) -> None:
        transform.cast(source, out=target)

    @cached_property
    def _peers(self) -> dict[str, Peer | Absent]:
        if self._on_cpu:
            import numpy

            return {"numpy": Peer(numpy.__version__, self._numpy)}
        import torch

        # Of contiguous memory with the same dtype, torch makes a cudaMemcpyAsync.
        peers: dict[str, Peer | Absent] = {"torch": Peer(torch.__version__, self._torch)}
        if self._within:
            peers["CUB"] = _cub.peer("cast", ["f32", "f32"], {}, 0.0,
                                     cache_bytes(self._context.device))
        return peers

    def peers(self) -> Mapping[str, Peer | Absent]:
        return self._peers

    @staticmethod
    def _numpy(source: Any, target: Any) -> None:
        import numpy

        numpy.copyto(target, source)

    @staticmethod
    def _torch(source: Any, target: Any) -> None:
        target.copy_(source, non_blocking=True)

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        return self.bytes / ceilings[RATES[self._source, self._target]] * 1e6

    def more_metrics(self) -> dict[str, Any]:
        return chosen(self._peers)


class Copy(Operator):
    name = "copy"
    summary = "contiguous memory, within the device and to and from the host"

    def cases(self, context: Context) -> list[Case]:
        cases = ON_CPU if context.device.kind == "cpu" else CASES
        return [CopyCase(context, name, source, target, min(size, QUICK) if context.quick else size)
                for name, (source, target, size) in cases.items()]


operator = Copy()
