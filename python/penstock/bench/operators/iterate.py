"""iterate: one pass over memory with a chosen amount of arithmetic per element."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from ... import _core
from .._operator import Absent, Call, Case, Context, Operator, Peer

# The constants of penstock/ops/iterate.h; 1 is the fixed point.
SCALE, SHIFT = 0.9990234375, 0.0009765625
UNROLLED_AT_MOST = 64  # rounds; with more, torch.compile takes minutes


class IterateCase(Case):
    def __init__(self, context: Context, name: str, elements: int, rounds: int) -> None:
        self.name = name
        self.params = {"elements": elements, "rounds": rounds}
        self.tolerance = 2 * (rounds + 1) * 2.0**-24  # two roundings per round, of values up to 1
        self.bytes = 8 * elements
        self.flop = 2 * rounds * elements
        self._context = context
        self._elements = elements
        self._rounds = rounds

    def make_inputs(self, rotation: int) -> Any:
        x = self._context.random(rotation).random(self._elements, dtype="f4")
        x *= 2
        x -= 1
        if self._context.device.kind == "cpu":
            return x
        import torch

        return torch.from_numpy(x).to(self._context.device.name)

    def make_outputs(self, inputs: Any) -> Any:
        if self._context.device.kind == "cpu":
            import numpy

            return numpy.empty_like(inputs)
        import torch

        return torch.empty_like(inputs)

    def reference(self, inputs: Any) -> Any:
        import numpy

        x = inputs if self._context.device.kind == "cpu" else inputs.cpu().numpy()
        return 1 + (x.astype(numpy.float64) - 1) * SCALE**self._rounds

    def kernels(self) -> Mapping[str, Call]:
        return {"default": self._default}

    def peers(self) -> Mapping[str, Peer | Absent]:
        if self._context.device.kind == "cpu":
            import numpy

            return {"numpy": Peer(numpy.__version__, self._numpy)}
        import torch

        return {"torch": Peer(torch.__version__, self._torch), "torch.compile": self._compiled()}

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        copy = "host_copy" if self._context.device.kind == "cpu" else "device_copy"
        return self.bytes / ceilings[copy] * 1e6

    def _default(self, x: Any, out: Any) -> None:
        if self._context.device.kind == "cpu":
            return _core.iterate(x, out, self._rounds)
        import torch

        return _core.iterate(x, out, self._rounds, torch.cuda.current_stream())

    def _numpy(self, x: Any, out: Any) -> None:
        import numpy

        numpy.copyto(out, x)
        for _ in range(self._rounds):
            out *= numpy.float32(SCALE)
            out += numpy.float32(SHIFT)

    def _torch(self, x: Any, out: Any) -> None:
        out.copy_(x)
        for _ in range(self._rounds):
            out.mul_(SCALE).add_(SHIFT)

    def _compiled(self) -> Peer | Absent:
        import torch

        if find_spec("triton") is None:
            return Absent("torch.compile needs triton: pip install triton")
        if self._rounds > UNROLLED_AT_MOST:
            return Absent(f"{self._rounds} rounds are too many to unroll")
        rounds = self._rounds

        def fused(x: Any, out: Any) -> None:
            y = x
            for _ in range(rounds):
                y = y * SCALE + SHIFT
            out.copy_(y)

        return Peer(torch.__version__, torch.compile(fused, dynamic=False))


class Iterate(Operator):
    name = "iterate"
    summary = "one pass over memory with a chosen amount of arithmetic per element"

    def cases(self, context: Context) -> list[Case]:
        million = 1 << 20
        large = 64 * million if context.device.kind == "cuda" else 8 * million
        if context.quick:
            large = million
        rounds = 256 if context.device.kind == "cuda" else 16
        return [
            IterateCase(context, "stream", large, 1),
            IterateCase(context, "ragged", large // 4 + 3, 1),
            IterateCase(context, "arithmetic", large // 4, rounds),
        ]


operator = Iterate()
