"""Expert layers whose weights stay in host memory and are copied to the GPU as they are needed."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from . import _core
from ._check import not_negative
from ._dtypes import FULL_NAMES, float_name
from ._errors import InvalidArgument
from ._memory import empty_like
from ._sizes import as_bytes
from ._torch_part import TorchPart

if TYPE_CHECKING:
    from ._compressed_experts import CompressedExpertStore
    from ._packed_experts import DiskExpertStore

_DLPACK_CUDA = 2


def _load() -> Any:
    import penstock._experts_torch as torch_part

    return torch_part


_torch = TorchPart(_load)


class ExpertStore:
    """The experts of all layers of a model in host memory, in the form in which they are streamed.

    `layers` layers have `experts` experts each. With d = `hidden` and n = `width`, an expert consists
    of `gate_up`, (2n, d), and `down`, (d, n); with `bias` also of `gate_up_bias`, (2n), and
    `down_bias`, (d). `dtype` is bf16, f16 or f32, and `layout` is that of :func:`moe`. With
    `transposed` the weights are stored as (d, 2n) and (n, d), as in gpt-oss.

    The memory is page-locked for use with a GPU, and ordinary memory if `device` is the CPU; the
    default is the first GPU, or the CPU if there is none. It is locked in the background: experts can
    be filled while the memory of later ones is still being locked.

    The methods return views, which are filled by assignment. A view keeps the memory alive.

    >>> import numpy, penstock
    >>> store = penstock.ExpertStore(layers=2, experts=4, hidden=16, width=8, dtype="f32", device="cpu")
    >>> store.gate_up(0, 3)[:] = numpy.ones((16, 16))
    >>> store.down(0, 3).shape
    (16, 8)
    >>> store
    <penstock.ExpertStore of 2 layers of 4 experts, f32, 12288 bytes>
    """

    def __init__(self, *, layers: int, experts: int, hidden: int, width: int, dtype: Any = "bf16",
                 layout: str = "concatenated", transposed: bool = False, bias: bool = False,
                 device: str | _core.Device | None = None) -> None:
        self.layers, self.experts, self.hidden, self.width = layers, experts, hidden, width
        self.dtype, self.layout = float_name(dtype), layout
        self.transposed, self.bias = transposed, bias
        self.device = _core.Device(device)
        self._shape = _core.ExpertShape(layers, experts, hidden, width, self.dtype, layout, transposed,
                                        bias)
        self._core = _core.ExpertStore(self.device, self._shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all experts; a little more than their weights have."""
        return self._core.nbytes

    def gate_up(self, layer: int, expert: int, *, like: str = "numpy") -> Any:
        """A view (2n, d) of an expert's gate and up projections: a NumPy array, or with
        ``like="torch"`` a tensor. NumPy has no bf16; the bits of such weights are shown as uint16.

        Waits until the expert's memory is locked. Raises OutOfMemory if it cannot be.
        """
        return self._view(layer, expert, "gate_up", like)

    def down(self, layer: int, expert: int, *, like: str = "numpy") -> Any:
        """A view (d, n) of an expert's down projection, as :meth:`gate_up` returns."""
        return self._view(layer, expert, "down", like)

    def gate_up_bias(self, layer: int, expert: int, *, like: str = "numpy") -> Any:
        """A view (2n) of an expert's biases, as :meth:`gate_up` returns; the store was made with
        `bias`."""
        return self._view(layer, expert, "gate_up_bias", like)

    def down_bias(self, layer: int, expert: int, *, like: str = "numpy") -> Any:
        """A view (d) of an expert's biases, as :meth:`gate_up` returns; the store was made with
        `bias`."""
        return self._view(layer, expert, "down_bias", like)

    def least_bytes(self, *, pinned: int = 0, calls_in_flight: int = 64) -> int:
        """The minimum of `device_bytes` of :class:`StreamedExperts` on a GPU with these experts, `pinned` of
        them pinned."""
        return self._shape.least_bytes(not_negative("pinned", pinned),
                                       not_negative("calls_in_flight", calls_in_flight), False)

    def _bytes(self, layer: int, expert: int, part: str) -> _core.Array:
        """The memory of a part of an expert as u8, in the order in which it is stored."""
        return _core.expert_part(self._core, layer, expert, part)

    def _view(self, layer: int, expert: int, part: str, like: str) -> Any:
        if like not in ("numpy", "torch"):
            raise InvalidArgument("like", "'numpy' or 'torch'", repr(like))
        if part.endswith("_bias") and not self.bias:
            raise InvalidArgument("bias", f"True when the store is made, to use {part}", "False")
        memory = self._bytes(layer, expert, part)
        if like == "torch":
            import torch

            view = torch.from_dlpack(memory).view(getattr(torch, FULL_NAMES[self.dtype]))
        else:
            view = memory.numpy().view("uint16" if self.dtype == "bf16" else FULL_NAMES[self.dtype])
        rows, columns = {"gate_up": (2 * self.width, self.hidden), "down": (self.hidden, self.width)
                         }.get(part, (-1, 0))
        if not columns:
            return view
        return view.reshape(columns, rows).T if self.transposed else view.reshape(rows, columns)

    def __repr__(self) -> str:
        return (f"<penstock.ExpertStore of {self.layers} layers of {self.experts} experts, {self.dtype}, "
                f"{self.nbytes} bytes>")


@dataclass(frozen=True)
class ExpertStatistics:
    """Counts of experts since :class:`StreamedExperts` was made. All are 0 on the CPU, except the
    calls, unless the store is compressed or on a disk: there "on the GPU" is in its cache, and "copied"
    is read."""

    calls: int
    needed: int  #: experts that calls needed: the sum of the next four
    hits: int  #: were on the GPU
    late: int  #: were being copied already
    misses: int  #: were copied for the call
    on_host: int  #: were computed by the CPU, because of `host_experts`
    prefetched: int
    wasted: int  #: prefetched, and evicted before any call used them
    evicted: int
    bytes: int  #: of all copies; of compressed experts, the compressed bytes
    failed_calls: int

    @property
    def hit_rate(self) -> float:
        """The share of the needed experts that were on the GPU; NaN if none was needed."""
        return self.hits / self.needed if self.needed else float("nan")


@dataclass(frozen=True)
class ExpertCallRecord:
    """One call of :meth:`StreamedExperts.forward` on a GPU. Times are those of
    ``time.clock_gettime_ns(time.CLOCK_MONOTONIC)``."""

    layer: int
    tokens: int
    needed: int
    hits: int
    late: int
    misses: int
    on_host: int
    groups: int  #: parts in which the experts were computed
    enqueued_ns: int
    routed_ns: int  #: when the host knew which experts the call needs
    answered_ns: int  #: when the last copy for the call had been enqueued


class StreamedExperts:
    """Computes expert layers whose weights are in an :class:`ExpertStore`, a
    :class:`CompressedExpertStore` or a :class:`DiskExpertStore`.

    Experts are copied to the GPU when tokens need them, and the most useful ones stay there. Copies
    overlap with the computation of experts that are there already. The result has the bits of
    :func:`moe` with all weights on the GPU. On the CPU the experts are computed where they are, those on
    a disk in the cache of their store, and compressed ones in a cache of decompressed experts, as on a
    GPU.

    `device` is the first GPU by default, or the CPU if there is none. `device_bytes` of its memory are
    used, at least ``store.least_bytes()``; a number, or text such as ``"8GiB"``. It is required on a
    GPU, and for compressed experts, all of which must be set.

    `policy` chooses which expert is evicted: ``"frequency"``, the one that was used least often, where
    recent uses count more; or ``"lru"``, the one whose last use is longest ago. `pinned`, pairs of a
    layer and an expert, are never evicted. With ``prefetch="previous"``, experts that the previous call
    of the next layer used are copied before that layer asks for them.

    With ``host_experts="balanced"``, the CPU computes some of the experts that are not on the GPU, where
    they are, while others are copied: in calls of at most 64 tokens and 512 ids, and so many that both
    take about the same time. ``"fixed"`` leaves the share `host_share` of the needed experts to the CPU,
    above 0 and at most 1: which ones depends on the ids alone, so results are repeatable on the same
    machine. `host_threads` threads compute, by default all but four of the CPU's cores, at least 1 and at
    most 24. Results then differ from those of :func:`moe` by rounding. Experts must be in an
    :class:`ExpertStore`.

    At most `calls_in_flight` calls are enqueued; further ones wait. :attr:`records` keeps the last
    `records` calls.

    >>> import numpy, penstock
    >>> store = penstock.ExpertStore(layers=1, experts=4, hidden=8, width=8, dtype="f32", device="cpu")
    >>> for expert in range(4):
    ...     store.gate_up(0, expert)[:] = 0.125
    ...     store.down(0, expert)[:] = expert
    >>> x = numpy.ones((2, 8), numpy.float32)
    >>> ids = numpy.array([[0, 1], [1, 3]], numpy.int32)
    >>> weights = numpy.full((2, 2), 0.5, numpy.float32)
    >>> with penstock.StreamedExperts(store, device="cpu") as experts:
    ...     experts.forward(0, x, ids, weights)[:, 0].round(3)
    array([ 2.924, 11.697], dtype=float32)
    """

    def __init__(self, store: "ExpertStore | CompressedExpertStore | DiskExpertStore", *,
                 device: str | _core.Device | None = None, device_bytes: int | str | None = None, policy: str = "frequency",
                 pinned: Iterable[tuple[int, int]] = (), prefetch: str = "none",
                 host_experts: str = "none", host_share: float = 0.0,
                 host_threads: int = 0, calls_in_flight: int = 64, records: int = 0) -> None:
        given = getattr(store, "_core", None)
        compressed = isinstance(given, _core.CompressedExpertStore)
        if not isinstance(given, (_core.ExpertStore, _core.CompressedExpertStore, _core.DiskExpertStore)):
            raise InvalidArgument("store", "an ExpertStore, a CompressedExpertStore or a DiskExpertStore",
                                  type(store).__name__)
        where = _core.Device(device)
        if (where.kind != "cpu" or compressed) and device_bytes is None:
            raise InvalidArgument("device_bytes", "a number of bytes, or text such as '8GiB'", "None")
        if where.kind != "cpu" and store.device.kind == "cpu":
            raise InvalidArgument("store", "one in page-locked memory, made with device='cuda'",
                                  "one that was made with device='cpu'")
        size = 0 if device_bytes is None else as_bytes("device_bytes", device_bytes)
        self.store, self._repeatable = store, host_experts != "balanced"
        self._core = _core.StreamedExperts(
            store._core, where, size, policy, [as_pair("pinned", each) for each in pinned], prefetch,
            host_experts, as_share("host_share", host_share), not_negative("host_threads", host_threads),
            not_negative("calls_in_flight", calls_in_flight), not_negative("records", records))

    def forward(self, layer: int, x: Any, ids: Any, weights: Any, out: Any = None, *,
                activation: str = "swiglu", alpha: float = 1.702, limit: float = 7.0,
                shared_gate_up: Any = None, shared_down: Any = None, shared_weights: Any = None,
                kernel: str = "best", batch_invariant: bool = False, check: bool = False,
                stream: Any = None) -> Any:
        """Computes the experts of a layer, and returns `out`.

        The arguments are those of :func:`moe`, without the weights and their layout, which come from
        the store. `x` has the dtype of the store. Arrays are torch tensors or other arrays on the
        device, or on the CPU also NumPy arrays.

        On a GPU the work is enqueued on `stream`, by default torch's current stream, and the call
        returns. Calls cannot be captured into a CUDA graph or traced by torch. If copying an expert
        failed in an earlier call, the error is raised here. Raises Unsupported with
        ``host_experts="balanced"`` and torch tensors while ``torch.use_deterministic_algorithms`` is set.
        """
        inputs = x, ids, weights, shared_gate_up, shared_down, shared_weights
        options = activation, alpha, limit, kernel, batch_invariant, check
        torch_part = _torch.of(x)
        if torch_part is not None:
            if not self._repeatable:
                torch_part.refuse_if_deterministic()
            return torch_part.forward(self._core, layer, inputs, options, out, stream)
        if out is None:
            out = empty_like(x, getattr(x, "shape", ()))
        self._core.forward(layer, *inputs, *options, out, None, stream)
        return out

    def prefetch(self, layer: int, experts: Any, *, stream: Any = None) -> None:
        """Hints that a later call of `layer` will need these experts. They are copied in this
        order while no call waits for experts. Returns at once.

        `experts` is a sequence of numbers, or an array of ids on the GPU, (T, K), such as the prediction
        of a router. Such ids are read on `stream`, and those of no expert are ignored. They may be
        announced before the `forward` of the current layer, whose experts are then copied first.
        """
        device = getattr(experts, "__dlpack_device__", None)
        if device is not None and device()[0] == _DLPACK_CUDA:
            self._core.prefetch_ids(layer, experts, _torch_stream(experts, stream))
            return
        if hasattr(experts, "reshape"):
            experts = experts.reshape(-1).tolist()
        self._core.prefetch(layer, _numbers(experts))

    def clear(self) -> None:
        """Empties the cache, pinned experts included. Waits until earlier calls have their experts."""
        self._core.clear()

    def check(self) -> None:
        """Raises the first error of a call since the last time, if there was one. Does not wait."""
        self._core.check()

    def synchronize(self) -> None:
        """Waits until all calls made so far are done, then :meth:`check`."""
        self._core.synchronize()

    def close(self) -> None:
        """Ends calls in flight, without the experts that have not been copied yet, and waits for them.
        Later calls raise ExpertsClosed. Does nothing the second time."""
        self._core.close()

    @property
    def statistics(self) -> ExpertStatistics:
        return ExpertStatistics(**self._core.statistics)

    @property
    def records(self) -> list[ExpertCallRecord]:
        """The last calls, the oldest first. Empty on the CPU, unless the store is compressed or on a
        disk."""
        return [ExpertCallRecord(**each) for each in self._core.records]

    @property
    def slots(self) -> int:
        """The number of experts that fit on the GPU; 0 on the CPU, unless the store is compressed."""
        return self._core.slots

    @property
    def device_bytes(self) -> int:
        """The bytes of GPU memory that are used; 0 on the CPU, unless the store is compressed."""
        return self._core.device_bytes

    @property
    def device(self) -> _core.Device:
        return self._core.device

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = f"'{self.device.name}'" + (f", {self.slots} slots" if self.slots else "")
        return f"<penstock.StreamedExperts of {self.store.layers} layers on {where}>"


def as_share(argument: str, given: Any) -> float:
    try:
        return float(given)
    except (TypeError, ValueError):
        raise InvalidArgument(argument, "a number above 0 and at most 1", repr(given)) from None


def as_pair(argument: str, given: Any) -> tuple[int, int]:
    """A layer and an expert."""
    pair = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    if len(pair) != 2 or not all(hasattr(each, "__index__") for each in pair):
        raise InvalidArgument(argument, "pairs of a layer and an expert", repr(given))
    return pair[0].__index__(), pair[1].__index__()


def _numbers(experts: Any) -> list[int]:
    try:
        return [each.__index__() for each in experts]
    except (AttributeError, TypeError):
        raise InvalidArgument("experts", "numbers of experts, or an array of ids on the GPU",
                              repr(experts)) from None


def _torch_stream(array: Any, stream: Any) -> Any:
    """torch's current stream, if its C functions for DLPack do not tell it."""
    torch = sys.modules.get("torch")
    if stream is None and torch is not None and isinstance(array, torch.Tensor):
        return torch.cuda.current_stream(array.device)
    return stream
