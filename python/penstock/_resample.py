"""Interpolates signals with irregular timestamps at target times."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from . import _core
from ._errors import InvalidArgument
from ._lists import index_array, is_list, times_arrays, values_array
from ._memory import empty_like
from ._torch_part import TorchPart

# In the order of the library's enums.
_MODES = {"linear": 0, "nearest": 1, "previous": 2, "next": 3, "slerp": 4}
_ORDERS = {"xyzw": 0, "wxyz": 1}

Columns = Sequence[tuple[Any, ...]]
Sensors = tuple[Any, Any, Any, Any, Sequence[int]]
"""values, times, lengths and offsets, each a list if the sensors are numbered; and the layout"""

_PLAIN = 0, 0, 0  # the layout of a sensor that is linear in all columns


def _load() -> Any:
    import penstock._resample_torch as torch_part

    return torch_part


_torch = TorchPart(_load)


@dataclass(eq=False, slots=True)  # not frozen: creating four would take longer than to resample
class Sensor:
    """One of several signals that :func:`resample` resamples in one call.

    The fields have the same meaning as the arguments of :func:`resample` with the same names.

    >>> import numpy, penstock
    >>> times = numpy.arange(4.0)
    >>> penstock.Sensor(numpy.ones((4, 7), numpy.float32), times, columns=[((3, 7), "slerp")]).mode
    'linear'
    """

    values: Any
    times: Any
    _: KW_ONLY
    mode: str = "linear"
    columns: Columns | None = None
    lengths: Any = None
    offsets: Any = None
    quaternion: str = "xyzw"


def resample(values: Any, times: Any = None, at: Any = None, *, mode: str = "linear",
             columns: Columns | None = None, lengths: Any = None, offsets: Any = None,
             outside: str = "clamp", fill: float = math.nan, check: bool = False, out: Any = None,
             valid: Any = None, quaternion: str = "xyzw", stream: Any = None,
             kernel: str = "best") -> Any:
    """Interpolates signals with irregular timestamps at the target times `at`.

    `values` has shape (B, S, D): B episodes of S samples with D columns. `times`, the time of every
    sample, has shape (B, S), or (S) if all episodes share them. `at`, the target times, has shape
    (B, T), or (T) if all episodes share them. The result has shape (B, T, D). For a single episode,
    `values` has shape (S, D) and the result (T, D).

    Episodes of different lengths are either padded, and `lengths` (B) holds the number of samples
    in each, or concatenated: `values` (N, D) and `times` (N) hold the samples of all episodes, and
    `offsets` (B + 1) holds where each episode begins and the last one ends.

    Arrays are NumPy arrays, torch tensors, Penstock arrays or other DLPack arrays. They may have
    any strides and are not copied. Lists are converted as by ``numpy.asarray``.

    >>> import numpy, penstock
    >>> times = numpy.array([0.0, 1.0, 3.0])
    >>> values = numpy.array([[0.0], [10.0], [30.0]])
    >>> penstock.resample(values, times, [0.5, 2.0, 9.0]).ravel()
    array([ 5., 20., 30.])

    The times of an episode must not decrease. If times repeat, the last sample at that time wins.
    Times are f32, f64 or i64, and `at` has the same dtype. `mode` says how values between two
    samples are computed: ``"linear"``, ``"nearest"``, ``"previous"``, ``"next"``, or ``"slerp"``
    for unit quaternions, whose real part is last (``quaternion="xyzw"``) or first (``"wxyz"``).
    `columns` sets other modes for ranges of columns, each ``(slice or (begin, end), mode)`` or
    ``(slice or (begin, end), "slerp", "wxyz")``.

    >>> penstock.resample(values, times, [0.5, 2.5], mode="previous").ravel()
    array([ 0., 10.])

    `outside` says what happens at target times before the first and after the last sample:
    ``"clamp"`` repeats that sample, ``"fill"`` writes `fill`, ``"extrapolate"`` continues the line,
    ``"error"`` raises InvalidArgument. With ``valid=True``, or an array to write to, the result is
    the tuple (out, valid); `valid` (B, T) is True where the target time is within the episode.

    >>> penstock.resample(values, times, [-1.0, 2.0], outside="fill", valid=True)[1]
    array([False,  True])

    Several sensors, each with its own times, are resampled by one call into one array, side by
    side. `valid` then has shape (B, T, number of sensors).

    >>> camera = penstock.Sensor(numpy.arange(3.0)[:, None], times, mode="previous")
    >>> arm = penstock.Sensor(numpy.ones((2, 2)), [0.0, 9.0])
    >>> penstock.resample([camera, arm], at=[1.5, 3.5])
    array([[1., 1., 1.],
           [2., 1., 1.]])

    The result is written to `out`, or to a new array of the library that `values` belongs to. On a
    GPU the work is enqueued on `stream`; for torch tensors the default is torch's current stream.
    Only ``check=True`` and ``outside="error"`` wait for it. `check` searches for times that
    decrease or are NaN, and on a GPU for invalid lengths and offsets, which are always found on the
    CPU. torch can compile and capture the call, and differentiate linear mode with respect to
    `values`. `kernel` selects a GPU kernel; it is only useful for comparing kernels.
    """
    numbered = False
    plain = columns is None and mode == "linear" and quaternion == "xyzw"
    if type(values) is not _torch.tensor and _holds_sensors(values):
        if not plain or not times is lengths is offsets is None:
            _refuse_beside_sensors(times=times, columns=columns, lengths=lengths, offsets=offsets,
                                   mode=None if mode == "linear" else mode,
                                   quaternion=None if quaternion == "xyzw" else quaternion)
        numbered = not isinstance(values, Sensor)
        sensors = _together(values) if numbered else _parts(values)
        values, times = sensors[:2]
        if numbered:
            values, times = values[0], times[0]
    else:
        if is_list(values):
            values = values_array("values", values, mode)
        layout = _PLAIN if plain else _layout(mode, columns, quaternion, values)
        sensors = values, times, lengths, offsets, layout
    if times is None or at is None:
        raise InvalidArgument("at" if times is not None else "times", "an array of times", "None")
    fill, check = float(fill), bool(check)
    if valid is False:
        valid = None
    torch_part = _torch.of(values)
    if torch_part is not None:
        return torch_part.run(sensors, at, out, valid, stream, outside, fill, check, kernel,
                              numbered)
    sensors, at = _without_lists(sensors, at, numbered)
    if out is None:
        out = empty_like(values, out_shape(sensors, at, numbered))
    if valid is True:
        valid = empty_like(values, valid_shape(sensors, at, numbered), "bool")
    _core.resample(*sensors, at, out, valid, outside, fill, check, kernel, stream, numbered)
    return out if valid is None else (out, valid)


def out_shape(sensors: Sensors, at: Any, numbered: bool) -> tuple[int, ...]:
    """The shape of the result. The library checks that the shapes fit together."""
    columns = 0
    for i, each in enumerate(sensors[0] if numbered else [sensors[0]]):
        columns += _shape(f"sensors[{i}].values" if numbered else "values", each)[-1]
    return *_rows(sensors, at, numbered), columns


def valid_shape(sensors: Sensors, at: Any, numbered: bool) -> tuple[int, ...]:
    """The shape of the mask, which has one column per sensor if the sensors are numbered."""
    rows = _rows(sensors, at, numbered)
    return (*rows, len(sensors[0])) if numbered else rows


def _rows(sensors: Sensors, at: Any, numbered: bool) -> tuple[int, ...]:
    """The number of episodes, unless there is a single one without that dimension, and of target
    times."""
    values, _, _, offsets, _ = sensors
    if numbered:
        values, offsets = values[0], offsets[0]
    targets = _shape("at", at)[-1]
    if offsets is not None:
        return max(_shape("offsets", offsets)[0] - 1, 0), targets
    shape = _shape("values", values)
    if len(shape) == 3:
        return shape[0], targets
    if len(shape) == 2:
        return targets,
    raise InvalidArgument("values", "(S, D), (B, S, D), or (N, D) with offsets", str(tuple(shape)))


def _shape(name: str, array: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] | None = getattr(array, "shape", None)
    if shape is None:
        raise TypeError(f"{name}: expected an array, given {type(array).__name__}")
    if len(shape) == 0:
        raise InvalidArgument(name, "an array with at least one dimension", "a single number")
    return shape


def _refuse_beside_sensors(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument(name, "None, as every Sensor has its own",
                                  type(value).__name__ if name != "mode" else repr(value))


def _holds_sensors(values: Any) -> bool:
    """Whether `values` is a Sensor or a list with one; other lists are lists of numbers."""
    return isinstance(values, Sensor) or (
        is_list(values) and any(isinstance(each, Sensor) for each in values))


def _parts(sensor: Sensor) -> Sensors:
    values = _values("values", sensor)
    return (values, sensor.times, sensor.lengths, sensor.offsets,
            _layout(sensor.mode, sensor.columns, sensor.quaternion, values))


def _together(sensors: Sequence[Any]) -> Sensors:
    """The parts of all sensors, as lists."""
    all_values, times, lengths, offsets = [], [], [], []
    layout: list[int] = []
    for i, each in enumerate(sensors):
        if not isinstance(each, Sensor):
            raise InvalidArgument(f"values[{i}]", "a Sensor, as other elements of the list are",
                                  type(each).__name__)
        values = _values(f"sensors[{i}].values", each)
        all_values.append(values)
        times.append(each.times)
        lengths.append(each.lengths)
        offsets.append(each.offsets)
        layout += _layout(each.mode, each.columns, each.quaternion, values)
    return all_values, times, lengths, offsets, layout


def _values(name: str, sensor: Sensor) -> Any:
    values = sensor.values
    return values_array(name, values, sensor.mode) if is_list(values) else values


def _without_lists(sensors: Sensors, at: Any, numbered: bool) -> tuple[Sensors, Any]:
    """The same arguments, with arrays in place of lists."""
    values, times, lengths, offsets, layout = sensors
    if not numbered:
        times, at = times_arrays("times", times, at)
        return (values, times, index_array("lengths", lengths), index_array("offsets", offsets),
                layout), at
    times, lengths, offsets = list(times), list(lengths), list(offsets)
    for i in range(len(values)):
        name = f"sensors[{i}]."
        times[i], at = times_arrays(name + "times", times[i], at)
        lengths[i] = index_array(name + "lengths", lengths[i])
        offsets[i] = index_array(name + "offsets", offsets[i])
    return (values, times, lengths, offsets, layout), at


def _layout(mode: str, columns: Columns | None, quaternion: str, values: Any) -> Sequence[int]:
    """The modes of a sensor as numbers, for the class Layout in python/src/resample.cpp."""
    if columns is None and mode == "linear" and quaternion == "xyzw":
        return _PLAIN
    layout = [_number("mode", mode, _MODES), _number("quaternion", quaternion, _ORDERS), 0]
    if columns is None:
        return layout
    for place, each in enumerate(columns):
        name = f"columns[{place}]"
        if not isinstance(each, (tuple, list)) or not 2 <= len(each) <= 3:
            raise InvalidArgument(name, "(range, mode) or (range, mode, quaternion), where range is "
                                  "a slice or (begin, end)", repr(each))
        begin, end = _range(name, each[0], values)
        order = each[2] if len(each) == 3 else quaternion
        layout += [begin, end, _number(name, each[1], _MODES), _number(name, order, _ORDERS)]
        layout[2] += 1
    return layout


def _range(name: str, given: Any, values: Any) -> tuple[int, int]:
    if isinstance(given, slice) and given.step in (None, 1):
        size = _shape("values", values)[-1]  # not slice.indices: torch does not trace it

        def place(bound: Any, default: int) -> int:
            if bound is None:
                return default
            at = int(bound)
            return min(max(at + size if at < 0 else at, 0), size)

        return place(given.start, 0), place(given.stop, size)
    if isinstance(given, (tuple, list)) and len(given) == 2:
        return int(given[0]), int(given[1])
    raise InvalidArgument(name, "a slice without a step, or (begin, end)", repr(given))


def _number(name: str, given: Any, numbers: dict[str, int]) -> int:
    number = numbers.get(given) if isinstance(given, str) else None
    if number is None:
        raise InvalidArgument(name, " or ".join(map(repr, numbers)), repr(given))
    return number
