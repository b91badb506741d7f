"""Cases of resample with one sensor and a batch of episodes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from ... import resample
from .._captured import Captured
from .._compiled import NEEDS_TRITON, Compiled, has_triton
from .._operator import Absent, Call, Context, Peer
from .signal_case import SIZES, SignalCase
from .traffic import SECTOR, place, sectors


@dataclass(frozen=True)
class Shape:
    """B episodes of S samples (50 to S if `ragged`), T target times and D columns."""

    episodes: int
    samples: int
    targets: int
    columns: int
    dtype: str = "bf16"
    ragged: bool = False


class BatchCase(SignalCase):
    """Either a fixed rate with 10 % jitter and evenly spaced target times, or all times random.

    Inputs are values (B, S, D), times (B, S) and target times (B, T). Ragged episodes are stored one
    after the other, with their offsets.
    """

    def __init__(self, context: Context, name: str, shape: Shape, even: bool) -> None:
        import numpy

        super().__init__(context, f"{name}, {'regular' if even else 'random'} times", shape.dtype)
        self._shape = shape
        self.params = asdict(shape) | {"dtype": self._dtype, "even": even}
        self.result = shape.episodes, shape.targets, shape.columns

        random = numpy.random.default_rng([context.seed, 1 << 20])
        counts = numpy.full(shape.episodes, shape.samples)
        if shape.ragged:
            counts = random.integers(50, shape.samples, shape.episodes, endpoint=True)
        self._offsets = numpy.concatenate([[0], numpy.cumsum(counts)])
        self._times = numpy.concatenate([self._draw(random, n, even) for n in counts])
        self._at = numpy.stack([self._clock(random, times, even)
                                for times in self._episodes(self._times)])
        row = shape.columns * SIZES[self._dtype]
        places = [place(*pair) for pair in zip(self._episodes(self._times), self._at)]
        self.bytes = (sectors(places, self._offsets, row) * SECTOR + self._at.size * row
                      + 4 * (self._times.size + self._at.size))
        self.flop = 2 * self._at.size * shape.columns

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

    def make_inputs(self, rotation: int) -> Any:
        lead: tuple[int, ...] = (self._times.size,)
        if not self._shape.ragged:
            lead = self._shape.episodes, self._shape.samples
        values = self.random_values(rotation, 0, (*lead, self._shape.columns))
        times, at = self.on_device(self._times.reshape(lead)), self.on_device(self._at)
        if not self._shape.ragged:
            return values, times, at
        return values, times, at, self.on_device(self._offsets)

    def reference(self, inputs: Any) -> Any:
        import numpy

        values = self.on_host(inputs[0]).reshape(-1, self._shape.columns)
        out = numpy.empty(self.result)
        for x, times, at, row in zip(self._episodes(values), self._episodes(self._times), self._at,
                                     out):
            index, weight = place(times, at)
            left, right = x[index].astype("f8"), x[index + 1].astype("f8")
            row[:] = left + weight[:, None] * (right - left)
        return out

    def best(self, inputs: Any, out: Any) -> None:
        if self._shape.ragged:
            values, times, at, offsets = inputs
            resample(values, times, at, offsets=offsets, out=out)
        else:
            values, times, at = inputs
            resample(values, times, at, out=out)

    def other_peers(self) -> Mapping[str, Peer | Absent]:
        if self._on_cpu:
            import numpy

            return {"numpy": Peer(numpy.__version__, self._numpy)}
        import torch

        as_torch = self._as_torch()
        eager = Peer(torch.__version__, as_torch, self.peer_tolerance)
        if not has_triton():
            return {"torch": eager, "torch.compile": NEEDS_TRITON, "triton": NEEDS_TRITON,
                    "baseline": NEEDS_TRITON}
        import triton

        from . import triton_peer

        def by_triton(call: Any) -> Peer:
            return Peer(triton.__version__, partial(call, self._shape.samples), self.peer_tolerance)

        compiled = Captured(Compiled(as_torch))
        return {"torch": eager,
                "torch.compile": Peer(torch.__version__, compiled, self.peer_tolerance),
                "triton": by_triton(triton_peer.tuned), "baseline": by_triton(triton_peer.baseline)}

    def _numpy(self, inputs: Any, out: Any) -> None:
        """Column by column: numpy.interp takes one column at a time."""
        import numpy

        values, times, at = inputs[0].reshape(-1, self._shape.columns), self._times, inputs[2]
        for b, (x, t) in enumerate(zip(self._episodes(values), self._episodes(times))):
            for column in range(x.shape[1]):
                out[b, :, column] = numpy.interp(at[b], t, x[:, column])

    def _as_torch(self) -> Call:
        from . import torch_peer

        samples = self._shape.samples

        def ragged(inputs: Any, out: Any) -> None:
            values, times, at, offsets = inputs
            torch_peer.ragged(values, times, at, offsets, samples, out)

        def dense(inputs: Any, out: Any) -> None:
            values, times, at = inputs
            torch_peer.dense(values, times, at, samples - 2, out)

        return ragged if self._shape.ragged else dense
