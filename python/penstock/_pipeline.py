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
    """A graph of stages through which numbered items flow. Stages work on different items at once.

    Data is passed between stages in slots of rings. A ring has `depth` slots, and item i uses slot
    i modulo `depth`. The first stage that uses a ring waits for the slot to be free; all other
    stages that use it must come after that stage. When they are all done with an item, its slot is
    free again, so a few slots serve any number of items.

    `device` is the first GPU by default, or the CPU if there is none.

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
        """Adds a ring, whose slots have a size of `bytes` or are arrays of `shape` and `dtype`.

        `memory` is ``"pinned"`` (page-locked host memory) or ``"device"``. `depth` is the number of
        slots; 0 means the depth of the pipeline. Slots are allocated once, at the first run.

        >>> import penstock
        >>> penstock.Pipeline("cpu").ring("pixels", shape=(640, 480, 3), dtype="u8").bytes
        921600
        """
        if (bytes is None) == (shape is None):
            raise InvalidArgument("bytes, shape", "exactly one of them",
                                  "neither" if bytes is None else "both")
        element = dtype_name(dtype) if dtype is not None else "u8" if bytes is not None else "f32"
        if shape is not None:
            extents = as_shape(shape)
        elif bytes is not None and not_negative("bytes", bytes) % SIZES[element] == 0:
            extents = [bytes // SIZES[element]]
        else:
            raise InvalidArgument("bytes", f"a multiple of {SIZES[element]}, the size of {element}",
                                  str(bytes))
        if any(extent < 0 for extent in extents):
            raise InvalidArgument("shape", "sizes of 0 or more", repr(shape))
        total = math.prod(extents) * SIZES[element]
        return self._ring(name, total, element, extents, memory, not_negative("depth", depth))

    def stage(self, name: str, function: StageFunction, *, after: Stages = (), uses: Rings = (),
              engine: str = "compute", stream: Any = None, high_priority: bool = False
              ) -> _core.Stage:
        """Adds a device stage: `function` enqueues work on ``item.stream`` and returns.

        `after` names the stages that must be done with an item first, `uses` the rings whose slots
        the stage uses. `engine` is where the stage appears on timelines. `stream` is a stream to
        use instead of one created for this stage.

        On a GPU, `function` runs on the thread that called :meth:`run`, usually long before the
        device executes the work; the device waits for the stages in `after`. On the CPU, `function`
        runs on a thread of this stage, when the stages in `after` are done with the item.

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
        """Adds a stage that runs `function` on its own thread, one item at a time. It may block.

        Because of the GIL, stages overlap only while they wait or while they are in libraries that
        release it, such as NumPy on large arrays, file access, compression and torch.

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
        """Adds a stage that reads one slot per item from a file.

        Item i gets the bytes starting at ``offset + i * slot size``. If the file ends within a
        slot, the rest of the slot is left unchanged. Up to as many reads as the ring has slots are
        in flight at once. No Python code runs in this stage.

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
        """Adds a stage that writes one slot per item to a file, at ``offset + i * slot size``.

        With `size`, only that many bytes are written in total, so the last item may be shorter. No
        Python code runs in this stage.

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
        """Runs items 0 to ``items - 1`` through the graph, and returns when all are done.

        `progress` is called on this thread, at most ten times per second, with the number of items
        done and `items`. `recorder` records when each stage worked on which item. Device work
        starts after the work already enqueued on the stream `after`.

        If a stage fails, the run stops and :class:`PipelineError` is raised for the first failure.
        Ctrl-C stops the run as well, as soon as stage functions that are running have returned. In
        all cases every slot is released and the pipeline can run again.
        """
        return self._run(not_negative("items", items), progress, recorder, after)
