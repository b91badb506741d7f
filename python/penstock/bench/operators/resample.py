"""resample: rows at irregular times, brought to wanted times by straight lines."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from ... import resample
from .._operator import Absent, Call, Case, Context, Operator, Peer

SECTOR = 32  # bytes: what a GPU fetches of a row, at least


@dataclass(frozen=True)
class Shape:
    """B episodes of S samples, T wanted times and D columns; with `ragged`, of 50 to S samples."""

    episodes: int
    samples: int
    targets: int
    columns: int
    dtype: str = "bf16"
    ragged: bool = False


SHAPES = {
    "small": Shape(32, 500, 256, 256),
    "medium": Shape(256, 500, 256, 256),
    "narrow": Shape(256, 500, 250, 32),
    "large": Shape(1024, 500, 256, 256),
    "long": Shape(64, 4096, 1024, 128),
    "tiny": Shape(32, 50, 32, 16),
    "f32": Shape(512, 1000, 500, 64, "f32"),
    "joints": Shape(2048, 100, 50, 14, "f32"),
    "very-long": Shape(16, 20000, 10000, 512),
    "ragged": Shape(256, 1000, 256, 256, ragged=True),
}
ON_CPU = {
    "f32": Shape(64, 1000, 500, 64, "f32"),
    "wide": Shape(64, 500, 256, 256, "f32"),
    "joints": Shape(512, 100, 50, 14, "f32"),
    "ragged": Shape(64, 1000, 256, 128, "f32", ragged=True),
}
QUICK = {"small": Shape(4, 500, 256, 64, "f32"), "ragged": Shape(6, 200, 33, 7, "f32", True)}


class ResampleCase(Case):
    """Times at a fixed rate with a tenth of jitter and an even clock; or all of them random."""

    def __init__(self, context: Context, name: str, shape: Shape, even: bool) -> None:
        import numpy

        self.name = f"{name}, {'regular' if even else 'random'} times"
        self._context = context
        self._shape = shape
        self._on_cpu = context.device.kind == "cpu"
        self._type = "f32" if self._on_cpu else shape.dtype  # NumPy has no bf16
        self.params = asdict(shape) | {"dtype": self._type, "even": even}
        self.tolerance = 2.0**-8 if self._type == "bf16" else 2.0**-23

        random = numpy.random.default_rng([context.seed, 1 << 20])
        counts = numpy.full(shape.episodes, shape.samples)
        if shape.ragged:
            counts = random.integers(50, shape.samples, shape.episodes, endpoint=True)
        self._offsets = numpy.concatenate([[0], numpy.cumsum(counts)])
        self._times = numpy.concatenate([self._draw(random, n, even) for n in counts])
        targets = [self._clock(random, times, even) for times in self._episodes(self._times)]
        self._at = numpy.stack(targets)
        places = [self._place(*pair) for pair in zip(self._episodes(self._times), self._at)]
        self.bytes = self._least_bytes(places)
        self.flop = 2 * shape.episodes * shape.targets * shape.columns

    @staticmethod
    def _draw(random: Any, count: int, even: bool) -> Any:
        import numpy

        if not even:
            return numpy.sort(random.random(count, dtype="f4"))
        jitter = 0.2 * (random.random(count, dtype="f4") - 0.5)
        return ((numpy.arange(count) + jitter) / count).astype("f4")

    def _clock(self, random: Any, times: Any, even: bool) -> Any:
        import numpy

        if not even:
            return numpy.sort(random.random(self._shape.targets, dtype="f4"))
        return numpy.linspace(times[0], times[-1], self._shape.targets, dtype="f4")

    def _episodes(self, rows: Any) -> list[Any]:
        return [rows[a:b] for a, b in zip(self._offsets, self._offsets[1:])]

    @staticmethod
    def _place(times: Any, at: Any) -> tuple[Any, Any]:
        """The earlier sample, and how far from it to the next."""
        import numpy

        index = numpy.clip(numpy.searchsorted(times, at, side="right") - 1, 0, len(times) - 2)
        a, b = times[index].astype("f8"), times[index + 1].astype("f8")
        return index, numpy.clip((at - a) / numpy.where(b > a, b - a, 1), 0, 1)

    def _least_bytes(self, places: list[tuple[Any, Any]]) -> int:
        """Sectors of the rows that are referred to, times, targets and results."""
        import numpy

        row = self._shape.columns * (2 if self._type == "bf16" else 4)
        sectors = 0
        for (index, weight), first in zip(places, self._offsets):
            used = numpy.unique(numpy.concatenate([index[weight < 1], index[weight > 0] + 1]))
            begin = (used + first) * row
            ends = (begin + row - 1) // SECTOR
            heads = begin // SECTOR
            shared = int(numpy.count_nonzero(heads[1:] == ends[:-1]))
            sectors += int((ends - heads + 1).sum()) - shared
        results = self._at.size * row
        return sectors * SECTOR + 4 * (self._times.size + self._at.size) + results

    def make_inputs(self, rotation: int) -> Any:
        values = self._context.random(rotation).random(
            (self._times.size, self._shape.columns), dtype="f4")
        values *= 2
        values -= 1
        arrays = values, self._times, self._at, self._offsets
        if self._on_cpu:
            return arrays
        import torch

        there = [torch.from_numpy(array).to(self._context.device.name) for array in arrays]
        there[0] = there[0].to(torch.bfloat16 if self._type == "bf16" else torch.float32)
        return tuple(there)

    def make_outputs(self, inputs: Any) -> Any:
        shape = (*self._at.shape, self._shape.columns)
        if self._on_cpu:
            import numpy

            return numpy.empty(shape, "f4")
        import torch

        return torch.empty(shape, dtype=inputs[0].dtype, device=inputs[0].device)

    def reference(self, inputs: Any) -> Any:
        import numpy

        values = inputs[0] if self._on_cpu else inputs[0].float().cpu().numpy()
        rows = []
        for x, times, at in zip(self._episodes(values), self._episodes(self._times), self._at):
            index, weight = self._place(times, at)
            left, right = x[index].astype("f8"), x[index + 1].astype("f8")
            rows.append(left + weight[:, None] * (right - left))
        return numpy.stack(rows)

    def kernels(self) -> Mapping[str, Call]:
        return {"default": self._default}

    def peers(self) -> Mapping[str, Peer | Absent]:
        if self._on_cpu:
            import numpy

            return {"numpy": Peer(numpy.__version__, self._numpy)}
        import torch

        if find_spec("triton") is None:
            return {"torch.compile": Absent("torch.compile needs triton: pip install triton")}
        return {"torch": Peer(torch.__version__, self._torch),
                "torch.compile": Peer(torch.__version__,
                                      torch.compile(self._torch, dynamic=False))}

    def floor_us(self, ceilings: Mapping[str, float]) -> float:
        return self.bytes / ceilings["host_copy" if self._on_cpu else "device_copy"] * 1e6

    def _default(self, inputs: Any, out: Any) -> None:
        values, times, at, offsets = inputs
        if self._shape.ragged:
            resample(values, times, at, offsets=offsets, out=out)
        else:
            shape = self._shape.episodes, self._shape.samples
            resample(values.reshape(*shape, -1), times.reshape(shape), at, out=out)

    def _numpy(self, inputs: Any, out: Any) -> None:
        """Column by column, as there is nothing else."""
        import numpy

        values, times, at, _ = inputs
        for b, (x, t) in enumerate(zip(self._episodes(values), self._episodes(times))):
            for column in range(x.shape[1]):
                out[b, :, column] = numpy.interp(at[b], t, x[:, column])

    def _torch(self, inputs: Any, out: Any) -> None:
        import torch

        values, times, at, offsets = inputs
        if self._shape.ragged:  # as users do it: padded
            counts = offsets[1:] - offsets[:-1]
            rows = torch.arange(self._shape.samples, device=at.device)
            inside = rows < counts[:, None]
            where = torch.where(inside, offsets[:-1, None] + rows, 0)
            times = torch.where(inside, times[where], torch.inf)
            values = values[where]
            last = (counts - 2)[:, None]
        else:
            shape = self._shape.episodes, self._shape.samples
            times, values = times.view(shape), values.view(*shape, -1)
            last = self._shape.samples - 2
        index = torch.searchsorted(times, at, right=True) - 1
        index = torch.clamp(torch.minimum(index, torch.as_tensor(last, device=at.device)), min=0)
        a, b = times.gather(1, index), times.gather(1, index + 1)
        weight = ((at - a) / (b - a)).clamp(0, 1)[..., None]
        columns = index[..., None].expand(-1, -1, values.shape[-1])
        x, y = values.gather(1, columns).float(), values.gather(1, columns + 1).float()
        out.copy_(x + weight * (y - x))


class Resample(Operator):
    name = "resample"
    summary = "rows at irregular times, brought to wanted times by straight lines"

    def cases(self, context: Context) -> list[Case]:
        shapes = ON_CPU if context.device.kind == "cpu" else SHAPES
        if context.quick:
            shapes = QUICK
        return [ResampleCase(context, name, shape, even)
                for name, shape in shapes.items() for even in (True, False)]


operator = Resample()
