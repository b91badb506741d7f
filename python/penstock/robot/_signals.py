"""Which columns a loader brings to its clock, and how."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .._dtypes import dtype_name
from .._errors import InvalidArgument
from ._dataset import TIMES, Dataset

# Stored types that the operator does not know become the next wider ones that it does.
_KNOWN = {"int8": "i32", "int16": "i32", "uint16": "i32", "uint32": "i64", "uint64": "i64"}
_MODES = ("linear", "nearest", "previous", "next", "slerp")
_WHOLE = ("nearest", "previous", "next")


@dataclass(frozen=True)
class Signal:
    """A column, and how it is brought to the clock.

    `mode` is one of :func:`penstock.resample`: 'linear' unless given, or 'previous' where the column
    holds whole numbers, truth values or is a video, of which the frames' numbers are given.
    `columns` are ranges of it with modes of their own, and `quaternion` the order of those with
    'slerp', as for :class:`penstock.Sensor`. `times` is the column that tells when the samples were
    taken, in seconds, or in nanoseconds where it holds whole numbers.

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
    """A signal beside what the dataset says of it."""

    signal: Signal
    mode: str
    width: int
    dtype: str  # in which it is uploaded and resampled
    given: str  # in which it is handed out
    video: bool

    @property
    def name(self) -> str:
        return self.signal.column


@dataclass(frozen=True)
class Block:
    """Columns that are uploaded and resampled side by side: of one type, taken at the same times."""

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
        """As arguments of penstock.Sensor."""
        first = self.columns[0]
        if len(self.columns) == 1:
            return {"mode": first.mode, "columns": first.signal.columns,
                    "quaternion": first.signal.quaternion}
        ranges = [((begin + at.start, end + at.start), mode, order)
                  for column, at in zip(self.columns, self.slices.values(), strict=True)
                  for begin, end, mode, order in _ranges(column)]
        return {"columns": [one for one in ranges if one[1] != "linear"]}


def resolve(dataset: Dataset, wanted: Wanted, dtype: Any, fused: bool) -> list[Block]:
    """`dtype` is for columns of floating-point numbers; where `fused`, for all, in few blocks."""
    floats = None if dtype is None else dtype_name(dtype)
    if floats is not None and floats not in ("f64", "f32", "f16", "bf16"):
        raise InvalidArgument("dtype", "f64, f32, f16 or bf16", repr(dtype))
    found = [_resolve(dataset, signal, floats) for signal in _signals(wanted)]
    names = [one.name for one in found]
    if not names or len(set(names)) != len(names):
        raise InvalidArgument("columns", "some columns, each once", repr(names))
    kinds = {dataset.features[one.signal.times].dtype for one in found}
    if len(kinds) > 1:
        raise InvalidArgument("columns", "times of one type", ", ".join(sorted(kinds)))
    if not fused:
        return [Block(one.signal.times, (one,)) for one in found]
    blocks: dict[str, list[Resolved]] = {}
    for one in _of_one_type(found, floats):
        blocks.setdefault(one.signal.times, []).append(one)
    return [Block(times, tuple(columns)) for times, columns in blocks.items()]


def _of_one_type(found: list[Resolved], floats: str | None) -> list[Resolved]:
    types = {one.given for one in found}
    if len(types) > 1 and floats is None:
        raise InvalidArgument("dtype", "a type for all columns of a row, which are "
                              f"{', '.join(sorted(types))}", "None")
    given = types.pop() if len(types) == 1 else str(floats)
    return [replace(one, dtype=_computed_in(given), given=given) for one in found]


def _ranges(column: Resolved) -> list[tuple[int, int, str, str]]:
    """(begin, end, mode, order) of a column's ranges and of what is between them."""
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
        raise InvalidArgument(f"columns of {signal.column!r}", "(slice or (begin, end), mode) or "
                              "(..., mode, order)", repr(given)) from wrong
    return (begin, end), mode, order[0] if order else signal.quaternion


def _signals(wanted: Wanted) -> list[Signal]:
    if isinstance(wanted, Mapping):
        return [Signal(name, mode) for name, mode in wanted.items()]
    several = [wanted] if isinstance(wanted, str | Signal) else list(wanted)
    return [Signal(one) if isinstance(one, str) else one for one in several]


def _resolve(dataset: Dataset, signal: Signal, floats: str | None) -> Resolved:
    for name in (signal.column, signal.times):
        if name not in dataset.features:
            raise InvalidArgument("columns", f"some of {', '.join(dataset.features)}", repr(name))
    feature = dataset.features[signal.column]
    video = feature.dtype == "video"
    try:
        stored = "i64" if video else _KNOWN.get(feature.dtype) or dtype_name(feature.dtype)
        dtype_name(dataset.features[signal.times].dtype)
    except InvalidArgument as unknown:
        raise InvalidArgument("columns", "columns of numbers",
                              f"{signal.column!r}, of {feature.dtype}") from unknown
    is_float = stored.startswith(("f", "bf"))
    mode = signal.mode or ("linear" if is_float else "previous")
    modes = _MODES if is_float else _WHOLE
    if mode not in modes:
        raise InvalidArgument(f"columns, mode of {signal.column!r}", ", ".join(modes), repr(mode))
    given = floats if is_float and floats else stored
    return Resolved(signal, mode, 1 if video else feature.width, _computed_in(given), given, video)


def _computed_in(given: str) -> str:
    """16-bit results are computed from what is stored, and rounded once."""
    return "f32" if given in ("f16", "bf16") else given
