"""Experts on a disk: packed once into a file, and read through a cache in host memory."""

import datetime
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _core
from ._check import not_negative
from ._compressed_experts import _fill
from ._dtypes import float_name
from ._errors import InvalidArgument
from ._experts import ExpertStore
from ._sizes import as_bytes

Path = str | bytes | os.PathLike[str]
_PARTS = ("gate_up", "down", "gate_up_bias", "down_bias")


@dataclass(frozen=True)
class ExpertFileInfo:
    """What a file of packed experts says about itself; see :func:`expert_file_info`."""

    path: str
    layers: int
    experts: int
    hidden: int
    width: int
    dtype: str
    layout: str
    transposed: bool
    bias: bool
    nbytes: int  #: of the file
    created_ns: int  #: when packing ended, since 1970
    pack_seconds: float  #: how long packing took

    @property
    def created(self) -> datetime.datetime:
        """When packing ended, in local time."""
        return datetime.datetime.fromtimestamp(self.created_ns * 1e-9).astimezone()


class ExpertViews:
    """The weights of one expert, to be filled; see :func:`pack_experts`. They are zero at first."""

    def __init__(self, plain: ExpertStore) -> None:
        self._plain = plain

    def gate_up(self, *, like: str = "numpy") -> Any:
        """A view (2n, d), as :meth:`ExpertStore.gate_up` returns."""
        return self._plain.gate_up(0, 0, like=like)

    def down(self, *, like: str = "numpy") -> Any:
        """A view (d, n), as :meth:`ExpertStore.down` returns."""
        return self._plain.down(0, 0, like=like)

    def gate_up_bias(self, *, like: str = "numpy") -> Any:
        """A view (2n), if experts have biases."""
        return self._plain.gate_up_bias(0, 0, like=like)

    def down_bias(self, *, like: str = "numpy") -> Any:
        """A view (d), if experts have biases."""
        return self._plain.down_bias(0, 0, like=like)

    def set(self, gate_up: Any, down: Any, gate_up_bias: Any = None, down_bias: Any = None) -> None:
        """Copies arrays of these shapes and of the dtype of the file: torch tensors in host memory, or
        NumPy arrays, which have the bits of bf16 as uint16."""
        parts = dict(zip(_PARTS, (gate_up, down, gate_up_bias, down_bias), strict=True))
        for part, values in parts.items():
            if part.endswith("_bias") and not self._plain.bias:
                if values is not None:
                    raise InvalidArgument(part, "None, because the experts have no biases", "an array")
                continue
            _fill(self._plain, part, values)


def pack_experts(path: Path, *, layers: int, experts: int, hidden: int, width: int, dtype: Any = "bf16",
                 layout: str = "concatenated", transposed: bool = False, bias: bool = False,
                 checkpoint: Any = None, names: Mapping[str, str] | None = None, first_layer: int = 0,
                 fill: Callable[[int, int, ExpertViews], object] | None = None,
                 progress: Callable[[int, int], object] | None = None) -> ExpertFileInfo:
    """Writes the experts of a model to a file, in the order and the form in which
    :class:`DiskExpertStore` reads them.

    The sizes, `dtype`, `layout`, `transposed` and `bias` are those of :class:`ExpertStore`. The weights
    come from one of two places:

    - `checkpoint`, a path that :func:`penstock.weights.open` accepts, or an open checkpoint. `names` has
      the names of its tensors: ``gate_up`` or ``gate`` and ``up``, ``down``, and with `bias`
      ``gate_up_bias`` and ``down_bias``. ``{layer}`` and ``{expert}`` stand for numbers. A tensor whose
      name has no ``{expert}`` holds all experts of its layer in its first dimension. Layer 0 of the file
      is layer `first_layer` of the checkpoint. The tensors have the dtype and the shapes of the file.
    - `fill`, which is called with a layer, an expert and its :class:`ExpertViews`, for one expert after
      the other.

    `progress` is called with the bytes that are done, and all bytes. The file is as large as the experts,
    and 4 KiB. It appears under its name when it is complete and on the disk; a file with this name is
    replaced. After an exception or Ctrl-C, no file appears.

    Raises OSError if a file cannot be read or written, and :class:`penstock.InvalidArgument`.

    >>> import os, penstock, tempfile
    >>> def fill(layer, expert, views):
    ...     views.gate_up()[:] = 0.125
    ...     views.down()[:] = expert
    >>> path = os.path.join(tempfile.mkdtemp(), "model.experts")
    >>> info = penstock.pack_experts(path, layers=1, experts=4, hidden=8, width=8, dtype="f32", fill=fill)
    >>> info.experts, info.dtype, info.nbytes == os.path.getsize(path)
    (4, 'f32', True)
    """
    shape = _core.ExpertShape(layers, experts, hidden, width, float_name(dtype), layout, transposed, bias)
    if (checkpoint is None) == (fill is None):
        raise InvalidArgument("fill", "a function, unless checkpoint is set", "both" if fill else "neither")
    if fill is not None:
        for argument, value in (("names", names), ("first_layer", first_layer or None)):
            if value is not None:
                raise InvalidArgument(argument, "None, because fill is set", repr(value))
        one = ExpertStore(layers=1, experts=1, hidden=hidden, width=width, dtype=dtype, layout=layout,
                          transposed=transposed, bias=bias, device="cpu")
        views, count, total = ExpertViews(one), layers * experts, shape.nbytes

        def fill_next(number: int, _: int) -> None:
            fill(number // experts, number % experts, views)
            if progress is not None:
                progress((number + 1) * (total // count), total)

        _core.pack_filled(path, shape, one._core, fill_next)
        return expert_file_info(path)
    if not isinstance(names, Mapping):
        raise InvalidArgument("names", "a mapping with the names of tensors, because checkpoint is set",
                              repr(names))
    from . import weights

    opened = checkpoint if isinstance(checkpoint, weights.Checkpoint) else weights.open(checkpoint)
    tell = None if progress is None else lambda _, share: progress(round(share * shape.nbytes),
                                                                   shape.nbytes)
    _core.pack_checkpoint(path, shape, opened._files, dict(names), not_negative("first_layer", first_layer),
                          tell)
    return expert_file_info(path)


def expert_file_info(path: Path) -> ExpertFileInfo:
    """What a file of packed experts says about itself. Raises OSError if it cannot be read, and
    :class:`penstock.InvalidArgument` naming the path if it is no such file or is not complete.

    >>> import os, penstock, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.experts")
    >>> _ = penstock.pack_experts(path, layers=1, experts=4, hidden=8, width=8,
    ...                           fill=lambda layer, expert, views: None)
    >>> info = penstock.expert_file_info(path)
    >>> info.layers, info.experts, info.dtype, info.pack_seconds < 60
    (1, 4, 'bf16', True)
    """
    return ExpertFileInfo(**_core.expert_file_info(path))


@dataclass(frozen=True)
class DiskExpertStatistics:
    """Counts of experts since a :class:`DiskExpertStore` was made."""

    hits: int  #: were in host memory, or being read
    misses: int  #: were read
    evicted: int
    failed: int  #: could not be read
    bytes: int  #: that were read


class DiskExpertStore:
    """The experts of a model in a file that :func:`pack_experts` has written, with a cache of them in
    host memory.

    `host_bytes`, a number or text such as ``"16GiB"``, is the size of the cache: room for at least two
    experts. It never takes more, and what all experts need is enough. The memory is page-locked for use
    with a GPU. Experts are read past the page cache if the file system allows it and `direct` is true.
    `policy` chooses which expert is evicted from host memory, as in :class:`StreamedExperts`.

    Several :class:`StreamedExperts` may use one store. If the file is changed or truncated, or cannot be
    read, they raise OSError at the next call, ``check()`` or ``synchronize()``.

    >>> import numpy, os, penstock, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.experts")
    >>> ones = numpy.ones((16, 8), "f")
    >>> _ = penstock.pack_experts(path, layers=2, experts=4, hidden=8, width=8, dtype="f32",
    ...                           fill=lambda layer, expert, views: views.set(ones, expert * ones[:8]))
    >>> store = penstock.DiskExpertStore(path, host_bytes="1MiB", device="cpu")
    >>> store
    <penstock.DiskExpertStore of 2 layers of 4 experts, f32, room for 8 in host memory>
    >>> x, ids, weights = ones[:1], numpy.array([[3]]), numpy.ones((1, 1), "f")
    >>> with penstock.StreamedExperts(store, device="cpu") as experts:
    ...     experts.forward(0, x, ids, weights).round()
    array([[1535., 1535., 1535., 1535., 1535., 1535., 1535., 1535.]],
          dtype=float32)
    """

    def __init__(self, path: Path, *, host_bytes: int | str, device: str | _core.Device | None = None,
                 policy: str = "frequency", direct: bool = True) -> None:
        self.device = _core.Device(device)
        self._core = _core.DiskExpertStore(self.device, path, as_bytes("host_bytes", host_bytes), policy,
                                           direct)
        self.file = info = ExpertFileInfo(**self._core.file)
        self.layers, self.experts, self.hidden, self.width = (info.layers, info.experts, info.hidden,
                                                              info.width)
        self.dtype, self.layout = info.dtype, info.layout
        self.transposed, self.bias = info.transposed, info.bias
        self._shape = self._core.shape

    @property
    def slots(self) -> int:
        """The number of experts that fit into the cache."""
        return self._core.slots

    @property
    def host_bytes(self) -> int:
        """The host memory that the cache takes."""
        return self._core.host_bytes

    @property
    def direct(self) -> bool:
        """Whether reads bypass the page cache."""
        return self._core.direct

    @property
    def statistics(self) -> DiskExpertStatistics:
        return DiskExpertStatistics(**self._core.statistics)

    def least_bytes(self, *, pinned: int = 0, calls_in_flight: int = 64) -> int:
        """The minimum of `device_bytes` of :class:`StreamedExperts` on a GPU with these experts, `pinned` of
        them pinned."""
        return self._shape.least_bytes(not_negative("pinned", pinned),
                                       not_negative("calls_in_flight", calls_in_flight), False)

    def __repr__(self) -> str:
        return (f"<penstock.DiskExpertStore of {self.layers} layers of {self.experts} experts, "
                f"{self.dtype}, room for {self.slots} in host memory>")
