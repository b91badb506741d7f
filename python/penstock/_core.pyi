from collections.abc import Callable, Sequence
import os
from typing import Any, Self, overload

import penstock._timeline


class Device:
    """
    The CPU, or a GPU.

    >>> import penstock
    >>> penstock.Device("cpu")
    <penstock.Device 'cpu'>
    >>> penstock.Device() == penstock.Device.best()
    True
    """

    def __init__(self, name: str | Device | None = None) -> None: ...

    @staticmethod
    def all() -> list[Device]:
        """The CPU first, then every usable GPU."""

    @staticmethod
    def best() -> Device:
        """The first usable GPU, else the CPU."""

    @staticmethod
    def cpu() -> Device: ...

    @staticmethod
    def cuda(index: int = 0) -> Device: ...

    @staticmethod
    def why_no_gpu() -> str:
        """Why no GPU is usable here; empty when one is."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def index(self) -> int:
        """The GPU's number; -1 for the CPU."""

    @property
    def capabilities(self) -> dict[str, Any]: ...

    def synchronize(self) -> None:
        """Waits until everything enqueued on the device has completed."""

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class Stream:
    """
    An ordered queue of work on a device.

    On the CPU, calls from Python have completed when they return, and a stream is only there so that
    the same program runs on both.

    >>> import penstock
    >>> stream = penstock.Stream("cpu")
    >>> stream.synchronize()
    >>> stream.device
    <penstock.Device 'cpu'>
    """

    def __init__(self, device: str | Device | None = None) -> None: ...

    @staticmethod
    def borrow(stream: Any, device: str | Device | None = None) -> Stream:
        """
        A stream that belongs to somebody else: torch's, or a CUDA stream's address.
        """

    @property
    def device(self) -> Device: ...

    @property
    def native(self) -> int:
        """The address of CUDA's stream; 0 on the CPU."""

    @property
    def done(self) -> bool:
        """Whether everything enqueued so far has completed."""

    def synchronize(self) -> None:
        """Waits until everything enqueued so far has completed."""

    def torch(self) -> Any:
        """
        The same stream for torch: ``with torch.cuda.stream(stream.torch()): ...``
        """

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class Array:
    """
    Memory of Penstock: a shape, an element type and a place.

    NumPy (``numpy.asarray``), ``memoryview`` and anything that speaks DLPack
    (``torch.from_dlpack``) see the same bytes, without a copy. A view keeps the memory alive.

    >>> import numpy, penstock
    >>> room = penstock.empty((2, 3), "f32")
    >>> view = room.numpy()
    >>> view[:] = 7
    >>> float(numpy.asarray(room).sum())
    42.0
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str:
        """The element type: 'f32', 'bf16', 'u8', ..."""

    @property
    def nbytes(self) -> int: ...

    @property
    def place(self) -> str:
        """Where the bytes are: 'pinned', 'cpu', 'cuda:0'."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: int) -> Array:
        """The part at this place of the first dimension; it shares the bytes."""

    @overload
    def __getitem__(self, range: slice) -> Array:
        """Neighbouring parts of the first dimension; they share the bytes."""

    def numpy(self) -> Any:
        """A NumPy array over the same bytes. Host memory only."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Reached where the buffer is refused: says why."""

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """
        Shares the bytes. On a GPU the consumer's `stream` is made to wait for the work on them.
        """

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __repr__(self) -> str: ...

def allocate(shape: Sequence[int], dtype: str, memory: str, device: Device) -> Array: ...

def copy(dst: Any, src: Any, stream: Any = None, *, allow_pageable: bool = False) -> None:
    """
    Copies src to dst, which has as many bytes; both are contiguous.

    On a GPU the copy is enqueued on `stream` and both arrays must stay alive until it is done; ordinary
    (pageable) memory makes the call wait, and is refused unless `allow_pageable` says so. Between arrays
    of the CPU the copy is done when the call returns.

    >>> import penstock
    >>> room = penstock.empty(5, "u8")
    >>> penstock.copy(room, b"slots")
    >>> bytes(room)
    b'slots'
    """

def iterate(x: Any, out: Any = None, rounds: int = 1, stream: Any = None) -> None:
    """
    The yardstick: `rounds` multiply-adds on every f32 of x, into `out` or in place.

    It sets a known amount of arithmetic against copies, on a GPU (where it is enqueued on `stream`) or
    on the CPU.

    >>> import numpy, penstock
    >>> x = numpy.ones(4, numpy.float32)
    >>> penstock.iterate(x, rounds=100)
    >>> bool((x == 1).all())  # 1 is its fixed point
    True
    """

def elementwise(function: str, inputs: Sequence[Any], out: Any, a: float = 1.0, b: float = 1.0, stream: Any = None, kernel: str = 'best') -> None:
    """What penstock.transform is made of."""

def resample(values: Any, times: Any, lengths: Any, offsets: Any, layout: Sequence[int], at: Any, out: Any, valid: Any, outside: str, fill: float, check: bool, kernel: str, stream: Any, numbered: bool) -> None:
    """What penstock.resample is made of."""

def resample_gradient(gradient: Any, times: Any, lengths: Any, offsets: Any, at: Any, out: Any, outside: str, stream: Any = None) -> None:
    """What the gradient of penstock.resample is made of."""

class File:
    """
    A file read or written past the page cache, many transfers at once.

    Offsets and sizes may be anything; whole blocks of 4 KiB into memory of Penstock (slots,
    :func:`penstock.empty`) are fastest. Mode 'w' makes the file, or empties it.

    >>> import os, penstock, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "numbers")
    >>> with penstock.File(path, "w") as file:
    ...     file.write(b"0123456789")
    >>> room = bytearray(4)
    >>> with penstock.File(path) as file:
    ...     file.read(room, offset=3)
    ...     file.size
    10
    >>> bytes(room)
    b'3456'
    """

    def __init__(self, path: str | bytes | os.PathLike[str], mode: str = 'r', *, engine: str = 'best', in_flight: int = 16, direct: bool = True) -> None: ...

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes in the file now."""

    @property
    def direct(self) -> bool:
        """Whether transfers go past the page cache."""

    @property
    def engine(self) -> str:
        """Who moves the bytes: 'io_uring' or 'threads'."""

    @property
    def closed(self) -> bool: ...

    def read(self, out: Any, offset: int = 0) -> None:
        """
        Fills the array, which is contiguous, with the bytes at `offset`. Into a GPU's memory they go through page-locked slots, reading and uploading at once.
        """

    def write(self, source: Any, offset: int = 0) -> None:
        """Writes the array's bytes (contiguous, of the host) at `offset`."""

    def flush(self) -> None:
        """Waits until what was written is on the disk itself."""

    def close(self) -> None:
        """Lets the file go; what was begun still ends."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *args: object) -> None: ...

    def __repr__(self) -> str: ...

class Gaps:
    """Idle time of one engine between its first and its last work."""

    @property
    def count(self) -> int: ...

    @property
    def total_seconds(self) -> float: ...

    @property
    def largest_seconds(self) -> float: ...

    def __repr__(self) -> str: ...

class Timeline:
    """
    What every engine did and when.

    Give one to :meth:`Pipeline.run` as `recorder`; a notebook draws it.

    >>> import penstock
    >>> timeline = penstock.Timeline()
    >>> pipeline = penstock.Pipeline("cpu")
    >>> work = pipeline.host_stage("work", lambda item: sum(range(10_000)))
    >>> report = pipeline.run(3, recorder=timeline)
    >>> [(entry.stage, entry.item) for entry in timeline.entries()]
    [('work', 0), ('work', 1), ('work', 2)]
    >>> timeline.busy_seconds("host") > 0
    True
    """

    def __init__(self) -> None: ...

    def entries(self) -> list[penstock._timeline.Entry]:
        """Every interval, sorted by its begin."""

    def busy_seconds(self, engine: str) -> float:
        """Time in which the engine worked; what overlaps counts once."""

    def gaps(self, engine: str) -> Gaps:
        """Idle time between the engine's first and its last work."""

    @property
    def span_seconds(self) -> float:
        """From the first begin to the last end."""

    @property
    def complete(self) -> bool:
        """False when memory ran out while recording."""

    def clear(self) -> None: ...

    def __len__(self) -> int: ...

    def array(self) -> Any:
        """The entries as a structured NumPy array."""

    def _repr_html_(self) -> str: ...

    def __repr__(self) -> str: ...

def page(runs: Sequence[tuple[str, Timeline]], title: str) -> str: ...

class Ring:
    """A ring of slots; what :meth:`Pipeline.ring` returns."""

    @property
    def name(self) -> str: ...

    @property
    def bytes(self) -> int:
        """Of one slot."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    def __repr__(self) -> str: ...

class Stage:
    """A stage of a pipeline, for `after`."""

    @property
    def name(self) -> str: ...

    def __repr__(self) -> str: ...

class Item:
    """
    What a stage function is given.

    It and its slots may be used until the function returns; later use raises RuntimeError. Arrays made
    from a slot stay safe to touch after that, but the next item's bytes will appear in them.
    """

    @property
    def index(self) -> int:
        """The item's number, from 0."""

    def slot(self, ring: Ring | str) -> Array:
        """This item's slot of a ring that the stage has in its `uses`."""

    @property
    def stream(self) -> Stream:
        """The stream to enqueue work on. Not in host stages."""

    @property
    def stopping(self) -> bool:
        """
        Whether the run is to end early; a long stage should look now and then.
        """

    def __repr__(self) -> str: ...

class RunReport:
    """What a run did."""

    @property
    def items(self) -> int:
        """Items that every stage has done."""

    @property
    def cancelled(self) -> bool: ...

    @property
    def seconds(self) -> float:
        """From the first submission to the last completion."""

    @property
    def submit_cpu_seconds(self) -> float:
        """CPU time of the thread that enqueued the device stages."""

    @property
    def allocations(self) -> int:
        """
        Of memory, streams or events made during the run; 0 from the second run on.
        """

    @property
    def stages(self) -> dict[str, int]:
        """Items done, by stage."""

    @property
    def rings(self) -> dict[str, int]:
        """Times that an item waited for a slot, by ring."""

    def __repr__(self) -> str: ...

class Pipeline:
    """What penstock.Pipeline is written on."""

    def __init__(self, device: object | None, depth: int) -> None: ...

    @property
    def device(self) -> Device: ...

    def _ring(self, arg0: str, arg1: int, arg2: str, arg3: Sequence[int], arg4: str, arg5: int, /) -> Ring: ...

    def _stage(self, arg0: str, arg1: object | None, arg2: object | None, arg3: object | None, arg4: str, arg5: object | None, arg6: bool, /) -> Stage: ...

    def _host_stage(self, arg0: str, arg1: object | None, arg2: object | None, arg3: object | None, arg4: str, /) -> Stage: ...

    def _read_stage(self, arg0: str, arg1: File, arg2: object | None, arg3: int, arg4: object | None, /) -> Stage: ...

    def _write_stage(self, arg0: str, arg1: File, arg2: object | None, arg3: int, arg4: int | None, arg5: object | None, /) -> Stage: ...

    def _run(self, arg0: int, arg1: object | None, arg2: Timeline | None, arg3: object | None, /) -> RunReport: ...

class FileArray:
    """What penstock.transform.FileArray is written on."""

    def __init__(self, path: str | bytes | os.PathLike[str], dtype: str | None, offset: int, count: int | None) -> None: ...

    @property
    def path(self) -> str: ...

    @property
    def dtype(self) -> str | None:
        """The element type: 'f32', 'f16' or 'bf16'."""

    @property
    def offset(self) -> int:
        """Bytes before the first element."""

    @property
    def count(self) -> int | None:
        """Elements; None: all to the end of the file."""

    def __repr__(self) -> str: ...

def elementwise_streamed(function: str, inputs: Sequence[Any], out: Any, a: float, b: float, device: str | Device | None, device_bytes: int, pinned_bytes: int, progress: Callable[[int, int], object] | None, recorder: Timeline | None, after: Any, flush: bool) -> RunReport:
    """What penstock.transform.Streamed is made of."""

def inspect() -> tuple[str, list[dict[str, str]]]: ...

def limits(device: str | Device | None, quick: bool, fresh: bool, disk: bool, directory: str, progress: Callable[[str, float], object] | None) -> tuple[str, bool, list[str]]: ...

def overlap(device: str | Device | None, ways: int, items: int, item_bytes: int, chunk: int, depth: int, compute_ratio: float, rounds: int, repeats: int, progress: Callable[[str, float], object] | None) -> tuple[str, Timeline, Timeline]: ...

def version() -> str: ...

def build_info() -> dict[str, str]: ...
