"""decompress: bf16 weights, compressed without loss, back to their bits."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ... import compress, decompress
from .._device_copy import device_copy
from .._operator import Absent, Call, Case, Context, Operator, Peer
from .._rotation import cache_bytes
from .._values import empty

MILLION = 1 << 20
# The number of values, and how they are distributed.
CASES = {
    "normal, an expert of Qwen3-30B": (3 * 768 * 2048, "normal"),
    "normal, 512 MiB": (256 * MILLION, "normal"),
    "Student t5, 512 MiB": (256 * MILLION, "student_t5"),
    "incompressible, 512 MiB": (256 * MILLION, "any_bits"),
}
ON_CPU, QUICK = 16 * MILLION, MILLION // 4  # at most this many values
DRAWN = 4 * MILLION  # values; larger cases repeat them
FEW_BLOCKS = 96  # the thread blocks of 16 multiprocessors


class DecompressCase(Case):
    """Inputs are bytes; outputs are bf16, or on the CPU their bits as uint16."""

    tolerance = 0.0
    flop = 0

    def __init__(self, context: Context, name: str, count: int, kind: str) -> None:
        self.name = name
        self._context, self._count, self._kind = context, count, kind
        self._on_cpu = context.device.kind == "cpu"
        self._small = compress(self._bits(0)).nbytes
        self.bytes = self._small + 2 * count
        self.params = {"values": count, "distribution": kind}

    def _bits(self, rotation: int) -> Any:
        import numpy

        random, drawn = self._context.random(rotation), min(self._count, DRAWN)
        if self._kind == "any_bits":
            bits = random.integers(0, 1 << 16, drawn, dtype="u2")
        else:
            values = (random.standard_normal(drawn) if self._kind == "normal" else
                      random.standard_t(5, drawn))
            bits = ((values * 0.02).astype("f4").view("u4") >> 16).astype("u2")
        return numpy.resize(bits, self._count)

    def make_inputs(self, rotation: int) -> Any:
        small = compress(self._bits(rotation))
        if self._on_cpu:
            return small
        import torch

        return torch.from_numpy(small).to(self._context.device.name)

    def make_outputs(self, inputs: Any) -> Any:
        if not self._on_cpu:
            return empty(self._context, (self._count,), "bf16")
        import numpy

        return numpy.empty(self._count, "u2")

    def compared(self, result: Any) -> Any:
        """The number of values with wrong bits; all are compared where they are."""
        wanted = self._bits(0)
        if self._on_cpu:
            return (result != wanted).sum()
        import torch

        there = torch.from_numpy(wanted.view("i2")).to(result.device)
        return (result.view(torch.int16) != there).sum()

    def reference(self, inputs: Any) -> Any:
        import numpy

        return numpy.zeros((), "i8")

    def kernels(self) -> Mapping[str, Call]:
        kernels: dict[str, Call] = {"default": partial(self._run, 0)}
        if not self._on_cpu:
            kernels[f"{FEW_BLOCKS} thread blocks"] = partial(self._run, FEW_BLOCKS)
        return kernels

    @staticmethod
    def _run(thread_blocks: int, small: Any, out: Any) -> None:
        decompress(small, out=out, thread_blocks=thread_blocks)

    def peers(self) -> Mapping[str, Peer | Absent]:
        """A plain copy that moves the same number of bytes."""
        if self._on_cpu:
            return {}
        device = self._context.device
        return dict(device_copy(self.bytes, device.name, cache_bytes(device)))

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        return self.bytes / ceilings["host_copy" if self._on_cpu else "device_copy"] * 1e6

    def more_metrics(self) -> dict[str, Any]:
        return {"compressed_share": self._small / (2 * self._count)}


class Decompress(Operator):
    name = "decompress"
    summary = "bf16 weights, compressed without loss, back to their bits"

    def cases(self, context: Context) -> list[Case]:
        most = QUICK if context.quick else ON_CPU if context.device.kind == "cpu" else 1 << 40
        return [DecompressCase(context, name, min(count, most), kind)
                for name, (count, kind) in CASES.items()]


operator = Decompress()
