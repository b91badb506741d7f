"""Cases of resample with four sensors of a robot: in one call, and in one call per sensor."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ... import Sensor, resample
from .._operator import Absent, Call, Context, Peer
from .signal_case import SignalCase
from .traffic import SECTOR, held, place, sectors

CLOCK = 50  # Hz


@dataclass(frozen=True)
class Signal:
    rate: int  # Hz
    columns: int
    mode: str = "linear"


SIGNALS = {"tactile": Signal(150, 64), "frame": Signal(30, 1, "previous"),
           "joints": Signal(100, 14), "imu": Signal(200, 6)}


class SensorsCase(SignalCase):
    """Inputs are the sensors' values (B, S, D) and times (B, S), and the shared target times (T).

    The sensor "frame" holds frame numbers of a video, resampled with mode 'previous'.
    """

    def __init__(self, context: Context, name: str, episodes: int, seconds: int) -> None:
        import numpy

        super().__init__(context, name, "f32")
        random = numpy.random.default_rng([context.seed, 1 << 20])
        self._episodes = episodes
        self._at = (numpy.arange(CLOCK * seconds) / CLOCK).astype("f4")
        self._times = {}
        self._places = {}
        width = moved = 0
        for name, signal in SIGNALS.items():
            count = signal.rate * seconds
            jitter = 0.2 * (random.random((episodes, count)) - 0.5)
            times = ((numpy.arange(count) + jitter) / signal.rate).astype("f4")
            places = [place(episode, self._at) for episode in times]
            if signal.mode == "previous":
                places = [held(each) for each in places]
            firsts = range(0, episodes * count, count)
            self._times[name], self._places[name] = times, places
            width += signal.columns
            moved += sectors(places, firsts, 4 * signal.columns) * SECTOR + times.nbytes
        self.result = episodes, self._at.size, width
        self.params = {"episodes": episodes, "seconds": seconds, "clock_hz": CLOCK,
                       "dtype": "f32", "hz": {n: s.rate for n, s in SIGNALS.items()},
                       "columns": {n: s.columns for n, s in SIGNALS.items()}}
        self.bytes = moved + self._at.nbytes + 4 * episodes * self._at.size * width
        self.flop = 2 * episodes * self._at.size * width

    def make_inputs(self, rotation: int) -> Any:
        import numpy

        values = []
        for number, (name, times) in enumerate(self._times.items()):
            shape = (*times.shape, SIGNALS[name].columns)
            if name == "frame":
                frames = numpy.arange(times.shape[1], dtype="f4")[None, :, None]
                values.append(self.on_device(numpy.ascontiguousarray(
                    numpy.broadcast_to(frames, shape))))
            else:
                values.append(self.random_values(rotation, number, shape))
        return values, [self.on_device(each) for each in self._times.values()], self.on_device(
            self._at)

    def reference(self, inputs: Any) -> Any:
        import numpy

        parts = []
        for given, places in zip(inputs[0], self._places.values()):
            rows = []
            for x, (index, weight) in zip(self.on_host(given), places):
                left, right = x[index].astype("f8"), x[index + 1].astype("f8")
                rows.append(left + weight[:, None] * (right - left))
            parts.append(numpy.stack(rows))
        return numpy.concatenate(parts, axis=-1)

    def best(self, inputs: Any, out: Any) -> None:
        values, times, at = inputs
        resample([Sensor(x, t, mode=signal.mode)
                  for x, t, signal in zip(values, times, SIGNALS.values())], at=at, out=out)

    def other_kernels(self) -> Mapping[str, Call]:
        return {"separate": self._separate}

    def _separate(self, inputs: Any, out: Any) -> None:
        values, times, at = inputs
        begin = 0
        for x, t, signal in zip(values, times, SIGNALS.values()):
            end = begin + signal.columns
            resample(x, t, at, mode=signal.mode, out=out[..., begin:end])
            begin = end

    def other_peers(self) -> Mapping[str, Peer | Absent]:
        if not self._on_cpu:
            return {}
        import numpy

        return {"numpy": Peer(numpy.__version__, self._numpy)}

    def _numpy(self, inputs: Any, out: Any) -> None:
        """Column by column, since numpy.interp takes one at a time; frames by searchsorted."""
        import numpy

        values, times, at = inputs
        for b in range(self._episodes):
            column = 0
            for x, t, signal in zip(values, times, SIGNALS.values()):
                for number in range(signal.columns):
                    if signal.mode == "previous":
                        found = numpy.searchsorted(t[b], at, side="right") - 1
                        out[b, :, column] = x[b, numpy.maximum(found, 0), number]
                    else:
                        out[b, :, column] = numpy.interp(at, t[b], x[b, :, number])
                    column += 1
