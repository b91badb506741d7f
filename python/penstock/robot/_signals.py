"""Which columns a loader resamples, and how."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .._dtypes import dtype_name
from .._errors import InvalidArgument
from ._dataset import TIMES, Dataset

# Stored types that resample() does not support are converted to the next wider one that it does.
_KNOWN = {"int8": "i32", "int16": "i32", "uint16": "i32", "uint32": "i64", "uint64": "i64"}
_MODES = ("linear", "nearest", "previous", "next", "slerp")
_WHOLE = ("nearest", "previous", "next")


@dataclass(frozen=True)
class Signal:
    """A column, and how it is resampled.

    `mode` is a mode of :func:`penstock.resample`. The default is ``"linear"``, or ``"previous"``
    for integers, booleans and videos, for which the frame numbers are returned. `columns` sets
    other modes for ranges of the column, and `quaternion` the order of quaternions, as in
    :class:`penstock.Sensor`. `times` is the column with the time of each sample, in seconds, or in
    nanoseconds if it holds integers.

    >>> pose = robot.Signal("observation.pose", columns=[((3, 7), "slerp")])
    >>> pose.times
    'timestamp'
    """

    column: str
    mode: str | None = None
    columns: Any = None
    quaternion: str = "xyzw"
    times: str = TIMES


Wanted = str | Signal | Iterable[str | Signal] | Mapping[str, str | None]


@dataclass(frozen=True)
class Resolved:
    """A signal, and what the dataset says about it."""

    signal: Signal
    mode: str
    width: int
    dtype: str  # for uploading and resampling
    given: str  # of the result
    video: bool

    @property
    def name(self) -> str:
        return self.signal.column


@dataclass(frozen=True)
class Block:
    """Columns of one type and with the same times, which are uploaded and resampled side by side."""

    times: str
    columns: tuple[Resolved, ...]

    @property
    def name(self) -> str:
        return self.columns[0].name

    @property
    def dtype(self) -> str:
        return self.columns[0].dtype

    @property
    def given(self) -> str:
        return self.columns[0].given

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns)

    @property
    def slices(self) -> dict[str, slice]:
        found, begin = {}, 0
        for column in self.columns:
            found[column.name] = slice(begin, begin := begin + column.width)
        return found

    def modes(self) -> dict[str, Any]:
        """The modes, as arguments of penstock.Sensor."""
        first = self.columns[0]
        if len(self.columns) == 1:
            return {"mode": first.mode, "columns": first.signal.columns,
                    "quaternion": first.signal.quaternion}
        ranges = [((begin + at.start, end + at.start), mode, order)
                  for column, at in zip(self.columns, self.slices.values(), strict=True)
                  for begin, end, mode, order in _ranges(column)]
        return {"columns": [one for one in ranges if one[1] != "linear"]}


def resolve(dataset: Dataset, wanted: Wanted, dtype: Any, fused: bool) -> list[Block]:
    """`dtype` is for floating-point columns; with `fused`, for all columns, which share few blocks."""
    floats = None if dtype is None else dtype_name(dtype)
    if floats is not None and floats not in ("f64", "f32", "f16", "bf16"):
        raise InvalidArgument("dtype", "f64, f32, f16 or bf16", repr(dtype))
    found = [_resolve(dataset, signal, floats) for signal in _signals(wanted)]
    names = [one.name for one in found]
    if not names or len(set(names)) != len(names):
        raise InvalidArgument("columns", "at least one column, and each only once", repr(names))
    kinds = {dataset.features[one.signal.times].dtype for one in found}
    if len(kinds) > 1:
        raise InvalidArgument("columns", "columns of times with the same dtype",
                              ", ".join(sorted(kinds)))
    if not fused:
        return [Block(one.signal.times, (one,)) for one in found]
    blocks: dict[str, list[Resolved]] = {}
    for one in _of_one_type(found, floats):
        blocks.setdefault(one.signal.times, []).append(one)
    return [Block(times, tuple(columns)) for times, columns in blocks.items()]


def _of_one_type(found: list[Resolved], floats: str | None) -> list[Resolved]:
    types = {one.given for one in found}
    if len(types) > 1 and floats is None:
        raise InvalidArgument("dtype", "a dtype for the fused columns, whose dtypes are "
                              f"{', '.join(sorted(types))}", "None")
    given = types.pop() if len(types) == 1 else str(floats)
    return [replace(one, dtype=_computed_in(given), given=given) for one in found]


def _ranges(column: Resolved) -> list[tuple[int, int, str, str]]:
    """(begin, end, mode, order) for the ranges of a column and for the gaps between them."""
    signal, width = column.signal, column.width
    found, at = [], 0
    for (begin, end), mode, order in sorted(_range(signal, width, one)
                                            for one in signal.columns or ()):
        found += [(at, begin, column.mode, signal.quaternion), (begin, end, mode, order)]
        at = end
    found.append((at, width, column.mode, signal.quaternion))
    return [one for one in found if one[0] != one[1]]


def _range(signal: Signal, width: int, given: Any) -> tuple[tuple[int, int], str, str]:
    try:
        place, mode, *order = given
        begin, end = (place.indices(width)[:2] if isinstance(place, slice) else map(int, place))
    except (TypeError, ValueError) as wrong:
        raise InvalidArgument(f"columns of {signal.column!r}", "(range, mode) or (range, mode, "
                              "quaternion), where range is a slice or (begin, end)",
                              repr(given)) from wrong
    return (begin, end), mode, order[0] if order else signal.quaternion


def _signals(wanted: Wanted) -> list[Signal]:
    if isinstance(wanted, Mapping):
        return [Signal(name, mode) for name, mode in wanted.items()]
    several = [wanted] if isinstance(wanted, str | Signal) else list(wanted)
    return [Signal(one) if isinstance(one, str) else one for one in several]


def _resolve(dataset: Dataset, signal: Signal, floats: str | None) -> Resolved:
    for name in (signal.column, signal.times):
        if name not in dataset.features:
            raise InvalidArgument("columns", f"names from {', '.join(dataset.features)}", repr(name))
    feature = dataset.features[signal.column]
    video = feature.dtype == "video"
    try:
        stored = "i64" if video else _KNOWN.get(feature.dtype) or dtype_name(feature.dtype)
        dtype_name(dataset.features[signal.times].dtype)
    except InvalidArgument as unknown:
        raise InvalidArgument("columns", "numeric columns",
                              f"{signal.column!r} of dtype {feature.dtype}") from unknown
    is_float = stored.startswith(("f", "bf"))
    mode = signal.mode or ("linear" if is_float else "previous")
    modes = _MODES if is_float else _WHOLE
    if mode not in modes:
        raise InvalidArgument(f"columns, mode of {signal.column!r}", ", ".join(modes), repr(mode))
    given = floats if is_float and floats else stored
    return Resolved(signal, mode, 1 if video else feature.width, _computed_in(given), given, video)


def _computed_in(given: str) -> str:
    """16-bit results are computed in f32 and rounded once."""
    return "f32" if given in ("f16", "bf16") else given
