"""Pipelines of Python functions."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import _core
from ._check import not_negative
from ._dtypes import SIZES, dtype_name
from ._errors import InvalidArgument
from ._memory import as_shape

Rings = _core.Ring | str | Iterable[_core.Ring | str] | None
Stages = _core.Stage | str | Iterable[_core.Stage | str] | None
StageFunction = Callable[[_core.Item], object]


class Pipeline(_core.Pipeline):
    """A graph of stages through which numbered items flow, each stage working on another item.

    A ring has `depth` slots, and item i uses slot i modulo depth. The first stage that uses a ring
    takes the slot, every other user comes after that stage, and the slot is free again when all
    are done with it: a few slots serve any number of items.

    >>> import numpy, penstock
    >>> sums = []
    >>> pipeline = penstock.Pipeline("cpu", depth=2)
    >>> numbers = pipeline.ring("numbers", shape=1000, dtype="f32")
    >>> def fill(item):
    ...     item.slot(numbers).numpy()[:] = item.index
    >>> def add(item):
    ...     sums.append(float(item.slot(numbers).numpy().sum()))
    >>> fill = pipeline.host_stage("fill", fill, uses=numbers)
    >>> add = pipeline.host_stage("add", add, after=fill, uses=numbers)
    >>> pipeline.run(4).items
    4
    >>> sums
    [0.0, 1000.0, 2000.0, 3000.0]
    """

    def __init__(self, device: str | _core.Device | None = None, depth: int = 4) -> None:
        super().__init__(device, not_negative("depth", depth))

    def ring(self, name: str, *, bytes: int | None = None, shape: int | Sequence[int] | None = None,
             dtype: Any = None, memory: str = "pinned", depth: int = 0) -> _core.Ring:
        """Adds a ring. A slot is so many `bytes`, or an array of `shape` and `dtype`.

        `memory` is 'pinned' (of the host, page-locked) or 'device'. `depth` is the pipeline's
        unless given. Slots are allocated once, at the first run.

        >>> import penstock
        >>> penstock.Pipeline("cpu").ring("pixels", shape=(640, 480, 3), dtype="u8").bytes
        921600
        """
        if (bytes is None) == (shape is None):
            raise InvalidArgument("bytes, shape", "one of the two",
                                  "neither" if bytes is None else "both")
        element = dtype_name(dtype) if dtype is not None else "u8" if bytes is not None else "f32"
        if shape is not None:
            extents = as_shape(shape)
        elif bytes is not None and not_negative("bytes", bytes) % SIZES[element] == 0:
            extents = [bytes // SIZES[element]]
        else:
            raise InvalidArgument("bytes", f"a multiple of {SIZES[element]}", str(bytes))
        if any(extent < 0 for extent in extents):
            raise InvalidArgument("shape", "extents from 0 on", repr(shape))
        total = math.prod(extents) * SIZES[element]
        return self._ring(name, total, element, extents, memory, not_negative("depth", depth))

    def stage(self, name: str, function: StageFunction, *, after: Stages = (), uses: Rings = (),
              engine: str = "compute", stream: Any = None, high_priority: bool = False
              ) -> _core.Stage:
        """Adds a stage that enqueues work on ``item.stream`` and returns.

        On a GPU the function runs on the thread that called :meth:`run`, ahead of the device, which
        waits by itself for what the work needs. On the CPU it runs when its inputs are there, on a
        thread of its own.

        >>> import penstock
        >>> pipeline = penstock.Pipeline("cpu")
        >>> source = penstock.empty(6, "u8")
        >>> penstock.copy(source, b"abcdef")
        >>> work = pipeline.ring("work", bytes=6, memory="device")
        >>> def upload(item):
        ...     penstock.copy(item.slot(work), source, item.stream)
        >>> pipeline.stage("upload", upload, uses=work, engine="upload")
        <penstock.Stage 'upload'>
        >>> pipeline.run(2).stages
        {'upload': 2}
        """
        return self._stage(name, function, after, uses, engine, stream, high_priority)

    def host_stage(self, name: str, function: StageFunction, *, after: Stages = (),
                   uses: Rings = (), engine: str = "host") -> _core.Stage:
        """Adds a stage on a thread of its own, which does one item after the other and may block.

        Python lets one thread run Python code at a time; stages overlap where they wait, or work
        in libraries that let others run (NumPy on large arrays, files, compression, torch).

        >>> import penstock
        >>> pipeline = penstock.Pipeline("cpu")
        >>> seen = []
        >>> stage = pipeline.host_stage("see", lambda item: seen.append(item.index))
        >>> report = pipeline.run(3)
        >>> seen
        [0, 1, 2]
        """
        return self._host_stage(name, function, after, uses, engine)

    def read_stage(self, name: str, file: _core.File, *, into: _core.Ring | str, offset: int = 0,
                   after: Stages = ()) -> _core.Stage:
        """Adds a stage that reads a file, a slot an item, as many at once as the ring has slots.

        Item i gets the bytes from ``offset + i * slot`` on; where the file ends inside a slot, the
        rest of the slot keeps what it had. No Python runs for it.

        >>> import os, penstock, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "words")
        >>> penstock.write_file(path, b"one two six ")
        >>> words = []
        >>> pipeline = penstock.Pipeline("cpu")
        >>> slot = pipeline.ring("slot", bytes=4)
        >>> read = pipeline.read_stage("read", penstock.File(path), into=slot)
        >>> def keep(item):
        ...     words.append(bytes(item.slot(slot)))
        >>> keep = pipeline.host_stage("keep", keep, after=read, uses=slot)
        >>> pipeline.run(3).items
        3
        >>> words
        [b'one ', b'two ', b'six ']
        """
        return self._read_stage(name, file, into, not_negative("offset", offset), after)

    def write_stage(self, name: str, file: _core.File, *, source: _core.Ring | str,
                    offset: int = 0, size: int | None = None, after: Stages = ()) -> _core.Stage:
        """Adds a stage that writes a slot an item: item i's to ``offset + i * slot``.

        No more than `size` bytes are written in all, so that the last item may be shorter.

        >>> import os, penstock, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "letters")
        >>> pipeline = penstock.Pipeline("cpu")
        >>> slot = pipeline.ring("slot", bytes=2)
        >>> def fill(item):
        ...     penstock.copy(item.slot(slot), bytes([97 + item.index] * 2))
        >>> fill = pipeline.host_stage("fill", fill, uses=slot)
        >>> write = pipeline.write_stage("write", penstock.File(path, "w"), source=slot,
        ...                              size=5, after=fill)
        >>> report = pipeline.run(3)
        >>> open(path, "rb").read()
        b'aabbc'
        """
        if size is not None:
            not_negative("size", size)
        return self._write_stage(name, file, source, not_negative("offset", offset), size, after)

    def run(self, items: int, *, progress: Callable[[int, int], object] | None = None,
            recorder: _core.Timeline | None = None, after: Any = None) -> _core.RunReport:
        """Flows items 0 to ``items - 1`` through the graph, and returns when all are done.

        `progress` is called with the items done and all items, at most ten times a second, by the
        calling thread. `recorder` receives what ran when. The run starts behind the work enqueued
        on the stream `after`.

        The first failure of a stage stops the run and is raised as :class:`PipelineError`; Ctrl-C
        stops it too, once the stage functions that are running have returned. However it ends,
        every slot is back and the pipeline can run again.
        """
        return self._run(not_negative("items", items), progress, recorder, after)
