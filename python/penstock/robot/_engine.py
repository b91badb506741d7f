"""The pipeline of a loader: decodes rows into slots, uploads the slots, and resamples them."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy
from numpy.typing import NDArray

from .. import _core
from .._errors import PipelineError
from .._memory import empty
from .._pipeline import Pipeline
from .._resample import Sensor, resample
from ..transform import cast
from . import _times
from ._clock import Clock
from ._dataset import Dataset
from ._metadata import Indices
from ._reading import Piece, Reader, Reading
from ._results import Results
from ._signals import Block


@dataclass(frozen=True)
class Settings:
    """The checked arguments of a loader."""

    dataset: Dataset
    blocks: list[Block]
    clock: Clock
    batch: int
    rows: int  # the number of samples of the longest possible batch
    fused: bool
    outside: str
    fill: float
    prefetch: int
    threads: int
    device: _core.Device
    results: Results

    @property
    def time_columns(self) -> list[str]:
        return list(dict.fromkeys(block.times for block in self.blocks))

    @property
    def begun(self) -> int:
        """How many batches may be in reading or decoded: one more is uploaded, one is waited for."""
        return self.prefetch + 2

    @property
    def time_type(self) -> str:
        return "f64" if _times.is_seconds(self.clock.feature) else "i64"


@dataclass
class Work:
    """A batch in flight."""

    episodes: Indices
    rows: int = 0
    steps: int = 0
    clock: NDArray[numpy.float64] | None = None
    arrays: dict[str, Any] = field(default_factory=dict)
    valid: Any = None
    held: list[Any] = field(default_factory=list)  # memory that the device may still be reading


class Engine:
    """The rings and stages, created once, which run one epoch at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._works: dict[int, Work] = {}
        self._hand_over: Callable[[Work], None] = lambda work: None
        self._batches: list[Indices] = []
        self._readings: dict[int, Reading] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._clock: Any = None
        columns = [column for block in settings.blocks for column in block.columns]
        self._reader = Reader(settings.dataset, columns, settings.time_columns, settings.threads)
        self._pipeline = pipeline = Pipeline(settings.device, depth=settings.prefetch)
        self._apart = has_memory_of_its_own(settings.device)
        self._host = self._rings("pinned", "", settings.begun)
        self._device = self._rings("device", "device ") if self._apart else self._host
        # Its slots hold nothing; they limit the number of results that the caller has not taken.
        results = pipeline.ring("results", bytes=1)
        begun = pipeline.host_stage("read", self._read, uses=self._host.values())
        ready = pipeline.host_stage("decode", self._decode, after=begun, uses=self._host.values())
        if self._apart:
            ready = pipeline.stage("upload", self._upload, after=ready, engine="upload",
                                   uses=[*self._host.values(), *self._device.values()])
        made = pipeline.stage("resample", self._resample, after=ready,
                              uses=[*self._device.values(), results])
        pipeline.host_stage("hand over", self._give, after=made, uses=results)

    def run(self, batches: list[Indices], hand_over: Callable[[Work], None],
            recorder: _core.Timeline | None) -> None:
        """Returns when `hand_over` has been called with every batch; raises what a stage raised."""
        settings = self._settings
        self._batches, self._hand_over = batches, hand_over
        with ThreadPoolExecutor(settings.threads, "penstock.robot decode") as self._pool:
            # All threads are started here: if a stage started one, Python would keep an entry for the
            # stage's own thread in its list of threads.
            begun = threading.Barrier(settings.threads + 1)
            for _ in range(settings.threads):
                self._pool.submit(begun.wait)
            begun.wait()
            try:
                self._pipeline.run(len(batches), recorder=recorder)
            except PipelineError as failure:
                raise failure.__cause__ or failure from None
            finally:
                self._pool.shutdown(wait=False, cancel_futures=True)
                self._works.clear()
                self._readings.clear()

    def _rings(self, memory: str, prefix: str, depth: int = 0) -> dict[str, _core.Ring]:
        settings, rows = self._settings, max(1, self._settings.rows)
        shapes: dict[str, tuple[tuple[int, ...], str]] = {
            f"values {block.name}": ((rows, block.width), block.dtype) for block in settings.blocks}
        shapes |= {f"times {name}": ((rows,), settings.time_type) for name in settings.time_columns}
        shapes["offsets"] = ((settings.batch + 1,), "i64")
        return {name: self._pipeline.ring(prefix + name, shape=shape, dtype=dtype, memory=memory,
                                          depth=depth)
                for name, (shape, dtype) in shapes.items()}

    # The stages, in the order in which a batch goes through them.

    def _read(self, item: _core.Item) -> None:
        """Starts reading the batch into its slots, without waiting, so that others can start."""
        settings, work = self._settings, Work(self._batches[item.index])
        assert self._pool is not None
        slots = self._slots(item)
        targets = [(name, slots[f"values {block.name}"][:, columns])
                 for block in settings.blocks for name, columns in block.slices.items()]
        targets += [(name, slots[f"times {name}"][:, None]) for name in settings.time_columns]
        episodes = self._reader.episodes(work.episodes)
        offsets = numpy.cumsum([0, *(episode.length for episode in episodes)], dtype=numpy.int64)
        slots["offsets"][:len(offsets)] = offsets
        work.rows = int(offsets[-1])

        def put(piece: Piece) -> None:
            begin, end = offsets[piece.first], offsets[piece.first + piece.episodes]
            for name, target in targets:
                target[begin:end] = piece.columns[name]

        self._works[item.index] = work
        self._readings[item.index] = self._reader.begin(self._pool, episodes, put)

    def _decode(self, item: _core.Item) -> None:
        work, reading = self._works[item.index], self._readings.pop(item.index)
        reading.wait()
        slots = self._slots(item)
        offsets = slots["offsets"][:len(reading.episodes) + 1]
        times = self._times_of(slots, reading, offsets)
        last = max(column[offsets[1:] - 1].max() for column in times)
        work.steps = self._settings.clock.steps_in(last)

    def _slots(self, item: _core.Item) -> dict[str, NDArray[Any]]:
        return {name: item.slot(ring).numpy() for name, ring in self._host.items()}

    def _times_of(self, slots: dict[str, NDArray[Any]], reading: Reading,
                  offsets: Indices) -> list[_times.Times]:
        """The times of all episodes, from the start of each episode."""
        found, dataset = [], self._settings.dataset
        for name in self._settings.time_columns:
            times, feature = slots[f"times {name}"][:offsets[-1]], dataset.features[name]
            _times.round_as_stored(times, feature)
            row = _times.wrong_row(times, offsets)
            if row is not None:
                wrong = reading.episodes[int(numpy.searchsorted(offsets, row, "right")) - 1]
                _times.refuse(dataset.read(wrong.index, name)[name], feature, wrong)
            found.append(times)
        _times.count_from_start(found, offsets)
        return found

    def _upload(self, item: _core.Item) -> None:
        work = self._works[item.index]
        for name, ring in self._host.items():
            count = len(work.episodes) + 1 if name == "offsets" else work.rows
            _core.copy(item.slot(self._device[name])[:count], item.slot(ring)[:count], item.stream)

    def _resample(self, item: _core.Item) -> None:
        settings, work = self._settings, self._works[item.index]
        shape = (len(work.episodes), work.steps)
        more = {"at": self._clock_of(work, item.stream), "outside": settings.outside,
                "fill": settings.fill, "stream": item.stream}
        sensors = [self._sensor(item, block, work) for block in settings.blocks]
        several = len(settings.time_columns) > 1
        with settings.results.on(item.stream):
            if settings.fused:
                mask_shape = (*shape, len(sensors)) if several else shape
                work.valid = settings.results.empty(mask_shape, "bool")
                self._fill(work, "rows", sensors if several else sensors[0], settings.blocks,
                           valid=work.valid, **more)
                return
            masks: dict[str, Any] = {}
            for block, sensor in zip(settings.blocks, sensors, strict=True):
                mask = None if block.times in masks else settings.results.empty(shape, "bool")
                masks.setdefault(block.times, mask)
                self._fill(work, block.name, sensor, [block], valid=mask, **more)
        work.valid = ({block.name: masks[block.times] for block in settings.blocks} if several
                      else masks[settings.blocks[0].times])

    def _sensor(self, item: _core.Item, block: Block, work: Work) -> Sensor:
        return Sensor(item.slot(self._device[f"values {block.name}"])[:work.rows],
                      item.slot(self._device[f"times {block.times}"])[:work.rows],
                      offsets=item.slot(self._device["offsets"])[:len(work.episodes) + 1],
                      **block.modes())

    def _fill(self, work: Work, name: str, sensors: Any, blocks: list[Block], **more: Any) -> None:
        results, block = self._settings.results, blocks[0]
        shape = (len(work.episodes), work.steps, sum(block.width for block in blocks))
        out = work.arrays[name] = results.empty(shape, block.given)
        if block.dtype == block.given:
            resample(sensors, out=out, **more)
            return
        exact = results.empty(shape, block.dtype)
        resample(sensors, out=exact, **more)
        cast(exact, out=out, stream=more["stream"])
        work.held.append(exact)

    def _clock_of(self, work: Work, stream: _core.Stream) -> Any:
        """The target times on the device, rebuilt only for a batch longer than all before."""
        settings, steps = self._settings, work.steps
        if self._clock is None or len(self._clock) < steps:
            host = self._clock = empty(max(1, steps), settings.time_type, device=settings.device)
            host.numpy()[:steps] = settings.clock.stored(steps)
            if self._apart:
                self._clock = empty(host.shape, settings.time_type, memory="device",
                                    device=settings.device)
                _core.copy(self._clock, host, stream)
                work.held.append(host)
        work.clock = settings.clock.times(steps)
        work.held.append(self._clock)
        return self._clock[:steps]

    def _give(self, item: _core.Item) -> None:
        work = self._works.pop(item.index)
        work.held.clear()
        self._hand_over(work)


def has_memory_of_its_own(device: _core.Device) -> bool:
    return device.kind != "cpu"


def in_batches(episodes: Indices, batch: int, drop_last: bool) -> Iterator[Indices]:
    for begin in range(0, len(episodes), batch):
        chosen = episodes[begin:begin + batch]
        if len(chosen) == batch or not drop_last:
            yield chosen
