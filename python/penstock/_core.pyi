from collections.abc import Callable, Sequence
import os
from typing import Any, Self, overload

import penstock._timeline


class Device:
    """
    The CPU or a GPU: "cpu", "cuda", "cuda:N", or "best", the first GPU or else the CPU.

    >>> import penstock
    >>> penstock.Device("cpu")
    <penstock.Device 'cpu'>
    >>> penstock.Device() == penstock.Device.best()
    True
    """

    def __init__(self, name: str | Device | None = None) -> None: ...

    @staticmethod
    def all() -> list[Device]:
        """All devices: the CPU, then every usable GPU."""

    @staticmethod
    def best() -> Device:
        """The first usable GPU, or the CPU if there is none."""

    @staticmethod
    def cpu() -> Device: ...

    @staticmethod
    def cuda(index: int = 0) -> Device: ...

    @staticmethod
    def why_no_gpu() -> str:
        """Why no GPU is usable; empty if one is."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def index(self) -> int:
        """The index of the GPU; -1 for the CPU."""

    @property
    def capabilities(self) -> dict[str, Any]: ...

    def synchronize(self) -> None:
        """Waits until all work enqueued on the device is complete."""

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class Stream:
    """
    An ordered queue of work on a device.

    On the CPU, calls from Python are complete when they return. Streams exist there so that the same
    program runs on both.

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
        Uses a stream of another library: a torch stream, or the address of a CUDA stream. Its owner must keep it alive.
        """

    @property
    def device(self) -> Device: ...

    @property
    def native(self) -> int:
        """The address of the CUDA stream; 0 on the CPU."""

    @property
    def done(self) -> bool:
        """Whether all work enqueued so far is complete."""

    def synchronize(self) -> None:
        """Waits until all work enqueued so far is complete."""

    def torch(self) -> Any:
        """
        The stream as a torch stream: ``with torch.cuda.stream(stream.torch()): ...``
        """

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class Array:
    """
    An array in memory that Penstock allocated, on the host or on a GPU.

    NumPy (``numpy.asarray``), ``memoryview`` and every library with DLPack (``torch.from_dlpack``)
    share the memory without a copy. A view keeps the memory alive.

    >>> import numpy, penstock
    >>> array = penstock.empty((2, 3), "f32")
    >>> view = array.numpy()
    >>> view[:] = 7
    >>> float(numpy.asarray(array).sum())
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
        """Where the memory is: 'pinned', 'cpu' or 'cuda:0'."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: int) -> Array:
        """The subarray at an index of the first dimension. It shares the memory."""

    @overload
    def __getitem__(self, range: slice) -> Array:
        """A range of the first dimension, with step 1. It shares the memory."""

    def numpy(self) -> Any:
        """A NumPy array that shares the memory, which must be host memory."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """
        NumPy calls it if the buffer protocol is refused; it raises the reason.
        """

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """
        Shares the memory. On a GPU, the consumer's `stream` waits for work on the array that was enqueued before.
        """

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __repr__(self) -> str: ...

def allocate(shape: Sequence[int], dtype: str, memory: str, device: Device) -> Array: ...

def copy(dst: Any, src: Any, stream: Any = None, *, allow_pageable: bool = False) -> None:
    """
    Copies src to dst. Both are contiguous and have the same number of bytes.

    If either is on a GPU, the copy is enqueued on `stream`, and both must stay alive until it is done.
    Pageable host memory makes the call wait, and is refused unless `allow_pageable` is True. If both are
    in host memory, the copy is done when the call returns.

    >>> import penstock
    >>> array = penstock.empty(5, "u8")
    >>> penstock.copy(array, b"slots")
    >>> bytes(array)
    b'slots'
    """

def iterate(x: Any, out: Any = None, rounds: int = 1, stream: Any = None) -> None:
    """
    Applies `rounds` multiply-adds to every f32 element of x, and writes to `out` or in place.

    It is a known amount of arithmetic, for measuring overlap with copies. On a GPU it is enqueued on
    `stream`; on the CPU it is done when the call returns.

    >>> import numpy, penstock
    >>> x = numpy.ones(4, numpy.float32)
    >>> penstock.iterate(x, rounds=100)
    >>> bool((x == 1).all())  # 1 is its fixed point
    True
    """

def elementwise(function: str, inputs: Sequence[Any], out: Any, a: float = 1.0, b: float = 1.0, stream: Any = None, kernel: str = 'best') -> None:
    """Implements penstock.transform."""

def resample(values: Any, times: Any, lengths: Any, offsets: Any, layout: Sequence[int], at: Any, out: Any, valid: Any, outside: str, fill: float, check: bool, kernel: str, stream: Any, numbered: bool) -> None:
    """Implements penstock.resample."""

def resample_gradient(gradient: Any, times: Any, lengths: Any, offsets: Any, at: Any, out: Any, outside: str, stream: Any = None) -> None:
    """Implements the gradient of penstock.resample."""

def gemm(a: Any, b: Any, out: Any, kernel: str, stream: Any) -> None:
    """Implements penstock.gemm."""

def route(logits: Any, k: int, ids: Any, weights: Any, scoring: str, bias: Any, groups: int, top_groups: int, renormalise: bool, scale: float, stream: Any) -> None:
    """Implements penstock.route."""

def moe(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, gate_up_bias: Any, down_bias: Any, shared_gate_up: Any, shared_down: Any, shared_weights: Any, slots: Any, activation: str, alpha: float, limit: float, layout: str, kernel: str, batch_invariant: bool, check: bool, out: Any, workspace: Any, stream: Any) -> None:
    """Implements penstock.moe."""

def moe_plan(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, gate_up_bias: Any, down_bias: Any, shared_gate_up: Any, shared_down: Any, shared_weights: Any, slots: Any, activation: str, alpha: float, limit: float, layout: str, kernel: str, batch_invariant: bool, check: bool, out: Any, workspace: Any, stream: Any) -> None:
    """Implements penstock.moe_plan."""

def moe_experts(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, gate_up_bias: Any, down_bias: Any, shared_gate_up: Any, shared_down: Any, shared_weights: Any, slots: Any, activation: str, alpha: float, limit: float, layout: str, kernel: str, batch_invariant: bool, check: bool, out: Any, workspace: Any, stream: Any) -> None:
    """Implements penstock.moe_experts."""

def moe_combine(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, gate_up_bias: Any, down_bias: Any, shared_gate_up: Any, shared_down: Any, shared_weights: Any, slots: Any, activation: str, alpha: float, limit: float, layout: str, kernel: str, batch_invariant: bool, check: bool, out: Any, workspace: Any, stream: Any) -> None:
    """Implements penstock.moe_combine."""

def moe_workspace_bytes(x: Any, gate_up: Any, ids: Any, slots: Any, shared_gate_up: Any) -> int:
    """Implements penstock.moe_workspace_bytes."""

def attention(q: Any, k: Any, v: Any, sinks: Any, cu_q: Any, cu_k: Any, first_k: Any, lengths_k: Any, pages: Any, causal: bool, window_left: int, window_right: int, softcap: float, scale: float, max_q: int, max_k: int, kernel: str, batch_invariant: bool, check: bool, out: Any, lse: Any, workspace: Any, stream: Any) -> None:
    """Implements penstock.attention."""

def attention_workspace_bytes(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, pages: Any, max_q: int, max_k: int, kernel: str, batch_invariant: bool) -> int:
    """The bytes of workspace that penstock.attention needs on a GPU."""

def append_attention(q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, lengths: Any, pages: Any, cu_new: Any, cos: Any, sin: Any, positions: Any, sinks: Any, first_k: Any, length: int, advance: bool, interleaved: bool, causal: bool, window_left: int, window_right: int, softcap: float, scale: float, max_q: int, max_k: int, kernel: str, batch_invariant: bool, check: bool, out: Any, lse: Any, workspace: Any, stream: Any) -> None:
    """Implements penstock.append_attention."""

def append_attention_workspace_bytes(q: Any, k_cache: Any, v_cache: Any, cu_new: Any, pages: Any, cos: Any, max_q: int, max_k: int, kernel: str, batch_invariant: bool) -> int:
    """The bytes of workspace that penstock.append_attention needs on a GPU."""

def append_kv(k: Any, v: Any, k_cache: Any, v_cache: Any, lengths: Any, pages: Any, cu_new: Any, cos: Any, sin: Any, positions: Any, q: Any, q_out: Any, length: int, advance: bool, interleaved: bool, check: bool, stream: Any) -> None:
    """Implements penstock.append_kv."""

class KVCache:
    """The base class of penstock.KVCache."""

    def __init__(self, device: Any, layers: int, sequences: int, heads: int, dim: int, dim_v: int, dtype: str, capacity: int, initial: int, ahead: int, block_bytes: int) -> None: ...

    def _append(self, layer: int, k: Any, v: Any, cos: Any, sin: Any, positions: Any, q: Any, q_out: Any, interleaved: bool, stream: Any) -> None:
        """Implements penstock.KVCache.append."""

    def k(self, layer: int) -> Array:
        """The keys of a layer: (sequences, rows, heads, dim), not contiguous."""

    def v(self, layer: int) -> Array:
        """The values of a layer: (sequences, rows, heads, dim_v)."""

    def whole_k(self, layer: int) -> Array:
        """
        The keys of a layer with room for all `capacity` rows. Only the first `reserved` may be used: there is no memory behind the others.
        """

    def whole_v(self, layer: int) -> Array:
        """The same of the values."""

    def length(self, layer: int) -> int:
        """The rows of a layer."""

    def reserve(self, rows: int) -> None:
        """
        Maps memory for this many rows and returns when that is done, without waiting for the device.
        """

    def set_length(self, rows: int) -> None:
        """
        Says that every layer has this many rows, at most `reserved`, after append_kv() or append_attention() has appended them to whole_k() and whole_v(), for example in a CUDA graph. Without it, length() does not change, append() overwrites their rows and shrink() gives their memory back.
        """

    def crop(self, rows: int) -> None:
        """
        Removes the last rows of all layers that have more than this. Keeps the memory.
        """

    def shrink(self) -> None:
        """
        Gives back the memory that holds no rows, when the work enqueued so far on the cache's streams has completed. Returns at once.
        """

    def use(self, stream: Any) -> None:
        """
        Names another stream that uses arrays of the cache: memory is given back only when its work has completed.
        """

    @property
    def reserved(self) -> int:
        """
        Rows that may be used. A few more have memory, because attention() loads whole blocks of keys.
        """

    @property
    def mapped_bytes(self) -> int: ...

    @property
    def waits(self) -> int:
        """
        How many calls had to wait because memory was not mapped far enough ahead.
        """

def round_routes(logits: Any, ids: Any, weights: Any, rounded_ids: Any, rounded_weights: Any, changes: Any, tile: int, scoring: str, stream: Any) -> None:
    """Implements penstock.round_routes."""

def compressed_bytes_limit(elements: int) -> int:
    """Implements penstock.compressed_bytes_limit."""

def compress(x: Any, out: Any, bits: bool) -> int:
    """Implements penstock.compress."""

def compressed_info(compressed: Any) -> tuple[int, int]:
    """The number of elements and of bytes."""

def decompress(compressed: Any, out: Any, bits: bool, thread_blocks: int, stream: Any) -> None:
    """Implements penstock.decompress."""

class File:
    """
    A file that is read or written with many transfers in flight, bypassing the page cache.

    `mode` is "r" to read, or "w" to write to a new or emptied file. Any offset and size is allowed;
    multiples of 4 KiB into memory of Penstock (slots, :func:`penstock.empty`) are fastest. `engine` is
    "io_uring", "threads", or the "best" that is available; `in_flight` limits the transfers in flight.
    With ``direct=False`` the page cache is used.

    >>> import os, penstock, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "numbers")
    >>> with penstock.File(path, "w") as file:
    ...     file.write(b"0123456789")
    >>> data = bytearray(4)
    >>> with penstock.File(path) as file:
    ...     file.read(data, offset=3)
    ...     file.size
    10
    >>> bytes(data)
    b'3456'
    """

    def __init__(self, path: str | bytes | os.PathLike[str], mode: str = 'r', *, engine: str = 'best', in_flight: int = 16, direct: bool = True) -> None: ...

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """The current size of the file in bytes."""

    @property
    def direct(self) -> bool:
        """Whether transfers bypass the page cache."""

    @property
    def engine(self) -> str:
        """How data is transferred: 'io_uring' or 'threads'."""

    @property
    def closed(self) -> bool: ...

    def read(self, out: Any, offset: int = 0) -> None:
        """
        Fills `out`, a contiguous array, with the bytes at `offset`. If it is on a GPU, reading and uploading overlap.
        """

    def write(self, source: Any, offset: int = 0) -> None:
        """
        Writes `source`, a contiguous array in host memory or bytes, at `offset`.
        """

    def flush(self) -> None:
        """Waits until everything written is on the disk, as fsync does."""

    def close(self) -> None:
        """Closes the file. Transfers in flight are completed."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *args: object) -> None: ...

    def __repr__(self) -> str: ...

class Weights:
    """The open files of a checkpoint; see penstock.weights."""

    def __init__(self, path: str | bytes | os.PathLike[str]) -> None: ...

    @property
    def names(self) -> list[str]: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def files(self) -> list[str]: ...

    def metadata(self, file: int = 0) -> dict[str, str]: ...

    def contains(self, name: str) -> bool: ...

    def info(self, name: str) -> tuple[str, tuple[int, ...], int, int, int]:
        """Type, shape, index of the file, offset and bytes of a tensor."""

    def read(self, parts: Sequence[tuple[str, Any, int, int]]) -> None:
        """
        Fills arrays: each part is a name, an array, the first row and the number of rows, or -1 for all rows.
        """

class WeightsWriter:
    """Writes a checkpoint; see penstock.weights."""

    def __init__(self, path: str | bytes | os.PathLike[str], tensors: Sequence[tuple[str, str, Sequence[int]]], metadata: dict[str, str], shard_bytes: int, alignment: int) -> None: ...

    def write(self, name: str, source: Any) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None:
        """Removes what was written, unless it is finished."""

class ExpertShape:
    """The arguments of penstock.ExpertStore."""

    def __init__(self, layers: int, experts: int, hidden: int, width: int, dtype: str, layout: str, transposed: bool, bias: bool) -> None: ...

    @property
    def nbytes(self) -> int: ...

    def least_bytes(self, pinned: int, calls_in_flight: int, compressed: bool) -> int:
        """Of the memory of a GPU."""

class ExpertStore:
    """The experts of a model; see penstock.ExpertStore."""

    def __init__(self, device: Device, shape: ExpertShape) -> None: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def block_bytes(self) -> int: ...

def expert_part(store: ExpertStore, layer: int, expert: int, part: str) -> Array:
    """
    The bytes of 'gate_up', 'down', 'gate_up_bias' or 'down_bias' of an expert.
    """

class CompressedExpertStore:
    """See penstock.CompressedExpertStore."""

    def __init__(self, device: Device, shape: ExpertShape) -> None: ...

    def set(self, layer: int, expert: int, plain: ExpertStore, plain_layer: int, plain_expert: int) -> None: ...

    @property
    def count(self) -> int: ...

    @property
    def complete(self) -> bool: ...

    @property
    def nbytes(self) -> int: ...

def expert_file_info(path: str | bytes | os.PathLike[str]) -> dict[str, Any]: ...

def pack_checkpoint(path: str | bytes | os.PathLike[str], shape: ExpertShape, weights: Weights, names: dict[str, str], first_layer: int, progress: Callable[[str, float], object] | None) -> None:
    """
    Packs experts of a checkpoint. `progress` is called with '' and the share that is done.
    """

def pack_filled(path: str | bytes | os.PathLike[str], shape: ExpertShape, plain: ExpertStore, fill: Callable[[int, int], object]) -> None:
    """
    Packs experts that `fill` writes to layer 0 of `plain`: it is called with the number of the first, counted over all layers, and how many they are.
    """

class DiskExpertStore:
    """See penstock.DiskExpertStore."""

    def __init__(self, device: Device, path: object, host_bytes: int, policy: str, direct: bool) -> None: ...

    @property
    def file(self) -> dict[str, Any]: ...

    @property
    def slots(self) -> int: ...

    @property
    def host_bytes(self) -> int: ...

    @property
    def direct(self) -> bool: ...

    @property
    def shape(self) -> ExpertShape: ...

    @property
    def statistics(self) -> dict[str, int]: ...

    def same_expert(self, layer: int, expert: int, plain: ExpertStore, number: int) -> bool: ...

class StreamedExperts:
    """See penstock.StreamedExperts."""

    def __init__(self, store: ExpertStore | CompressedExpertStore | DiskExpertStore, device: Device, device_bytes: int, policy: str, pinned: Sequence[tuple[int, int]], prefetch: str, host_experts: str, host_share: float, host_threads: int, calls_in_flight: int, records: int) -> None: ...

    def forward(self, layer: int, x: Any, ids: Any, weights: Any, shared_gate_up: Any, shared_down: Any, shared_weights: Any, activation: str, alpha: float, limit: float, kernel: str, batch_invariant: bool, check: bool, out: Any, workspace: Any, stream: Any) -> None: ...

    def workspace_bytes(self, x: Any, ids: Any, shared_gate_up: Any) -> int: ...

    def prefetch(self, layer: int, experts: Sequence[int]) -> None: ...

    def prefetch_ids(self, layer: int, ids: Any, stream: Any) -> None: ...

    def clear(self) -> None: ...

    def check(self) -> None: ...

    def synchronize(self) -> None: ...

    def close(self) -> None: ...

    @property
    def statistics(self) -> dict[str, int]: ...

    @property
    def records(self) -> list[dict[str, int]]: ...

    @property
    def slots(self) -> int: ...

    @property
    def device_bytes(self) -> int: ...

    @property
    def device(self) -> Device: ...

def parse_bytes(text: str, argument: str) -> int:
    """Bytes from text such as '20GiB'."""

class Gaps:
    """The idle times of one engine between its first and its last work."""

    @property
    def count(self) -> int: ...

    @property
    def total_seconds(self) -> float: ...

    @property
    def largest_seconds(self) -> float: ...

    def __repr__(self) -> str: ...

class Timeline:
    """
    Records when each engine worked on which stage and item.

    Pass one to :meth:`Pipeline.run` as `recorder`. Notebooks display it as a chart.

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
        """All intervals, sorted by their start."""

    def busy_seconds(self, engine: str) -> float:
        """How long the engine worked; overlapping intervals count once."""

    def gaps(self, engine: str) -> Gaps:
        """Idle time between the engine's first and its last work."""

    @property
    def span_seconds(self) -> float:
        """The time from the first start to the last end."""

    @property
    def complete(self) -> bool:
        """True if no record was lost."""

    @property
    def lost_records(self) -> int:
        """Records missing because memory ran out or CUPTI dropped them."""

    def clear(self) -> None: ...

    def __len__(self) -> int: ...

    def array(self) -> Any:
        """The entries as a structured NumPy array."""

    def _repr_html_(self) -> str: ...

    def __repr__(self) -> str: ...

def page(runs: Sequence[tuple[str, Timeline]], title: str) -> str: ...

class Ring:
    """A ring of slots, created by :meth:`Pipeline.ring`."""

    @property
    def name(self) -> str: ...

    @property
    def bytes(self) -> int:
        """The size of one slot."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    def __repr__(self) -> str: ...

class Stage:
    """A stage of a pipeline, to be passed as `after`."""

    @property
    def name(self) -> str: ...

    def __repr__(self) -> str: ...

class Item:
    """
    The argument of a stage function: the item to work on.

    The item and its slots may be used until the function returns; later use raises RuntimeError. A NumPy
    or torch view of a slot remains valid memory after that, but other items will overwrite it.
    """

    @property
    def index(self) -> int:
        """The number of the item, starting at 0."""

    def slot(self, ring: Ring | str) -> Array:
        """
        The slot of this item in a ring, which must be in the `uses` of the stage.
        """

    @property
    def stream(self) -> Stream:
        """The stream to enqueue work on. Host stages have none."""

    @property
    def stopping(self) -> bool:
        """
        True if the run is about to stop early. Long stage functions should check it.
        """

    def __repr__(self) -> str: ...

class RunReport:
    """The result of a run."""

    @property
    def items(self) -> int:
        """The number of items that all stages are done with."""

    @property
    def cancelled(self) -> bool: ...

    @property
    def seconds(self) -> float:
        """From the first submission to the last completion."""

    @property
    def submit_cpu_seconds(self) -> float:
        """
        The CPU time of the thread that enqueued the work of the device stages.
        """

    @property
    def allocations(self) -> int:
        """
        The number of buffers, streams and events created in the run; 0 from the second run on.
        """

    @property
    def stages(self) -> dict[str, int]:
        """The number of items done by each stage."""

    @property
    def rings(self) -> dict[str, int]:
        """How often an item had to wait for a slot, for each ring."""

    def __repr__(self) -> str: ...

class Pipeline:
    """The base class of penstock.Pipeline."""

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
    """The base class of penstock.transform.FileArray."""

    def __init__(self, path: str | bytes | os.PathLike[str], dtype: str | None, offset: int, count: int | None) -> None: ...

    @property
    def path(self) -> str: ...

    @property
    def dtype(self) -> str | None:
        """The element type: 'f32', 'f16' or 'bf16'."""

    @property
    def offset(self) -> int:
        """The byte at which the array starts."""

    @property
    def count(self) -> int | None:
        """The number of elements; None for all to the end of the file."""

    def __repr__(self) -> str: ...

def elementwise_streamed(function: str, inputs: Sequence[Any], out: Any, a: float, b: float, device: str | Device | None, device_bytes: int, pinned_bytes: int, progress: Callable[[int, int], object] | None, recorder: Timeline | None, after: Any, flush: bool) -> RunReport:
    """Implements penstock.transform.Streamed."""

def inspect() -> tuple[str, list[dict[str, str]]]: ...

def limits(device: str | Device | None, quick: bool, fresh: bool, disk: bool, directory: str, progress: Callable[[str, float], object] | None) -> tuple[str, bool, list[str]]: ...

def overlap(device: str | Device | None, ways: int, items: int, item_bytes: int, chunk: int, depth: int, compute_ratio: float, rounds: int, repeats: int, progress: Callable[[str, float], object] | None) -> tuple[str, Timeline, Timeline]: ...

def version() -> str: ...

def build_info() -> dict[str, str]: ...
