"""Signals at irregular times, brought to wanted times."""

import math
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from . import _core
from ._errors import InvalidArgument
from ._memory import room_like

# In the order of the library's own.
_MODES = {"linear": 0, "nearest": 1, "previous": 2, "next": 3, "slerp": 4}
_ORDERS = {"xyzw": 0, "wxyz": 1}

Columns = Sequence[tuple[Any, ...]]
Sensors = tuple[Any, Any, Any, Any, Sequence[int]]
"""values, times, lengths and offsets, lists of them where sensors are numbered; and the layout"""

_PLAIN = 0, 0, 0  # the layout of a linear sensor
_torch_part: Any = None  # _resample_torch and torch.Tensor, where a tensor has come
_Tensor: Any = None


@dataclass(eq=False, slots=True)  # not frozen: four would take longer to make than to resample
class Sensor:
    """One of several signals that :func:`resample` brings to one clock; with its arguments.

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
    """Values taken at `times`, at the times `at`.

    Values are (B, S, D) for B episodes of S samples, times (B, S), or (S) for all, and `at` (B, T),
    or (T) for all; the result is (B, T, D). An episode alone is (S, D) and gives (T, D). Where
    episodes differ in length, either `lengths` (B) says how many samples of each count, or the
    samples of all stand in one row, values (N, D) and times (N), and `offsets` (B + 1) says where
    each begins. Arrays may have any strides and are not copied.

    >>> import numpy, penstock
    >>> times = numpy.array([0.0, 1.0, 3.0])
    >>> values = numpy.array([[0.0], [10.0], [30.0]])
    >>> penstock.resample(values, times, numpy.array([0.5, 2.0, 9.0])).ravel()
    array([ 5., 20., 30.])

    Times of an episode do not decrease; of samples with one time, the last is the one at that time.
    They are f32, f64 or i64, and `at` has their type. Between two samples `mode` decides:
    ``"linear"``, ``"nearest"``, ``"previous"``, ``"next"``, or ``"slerp"`` for unit quaternions,
    whose real part `quaternion` says is last (``"xyzw"``) or first (``"wxyz"``). `columns` gives
    ranges of columns modes of their own: ``(slice or (begin, end), mode)``, or
    ``(..., "slerp", "wxyz")``.

    >>> penstock.resample(values, times, numpy.array([0.5, 2.5]), mode="previous").ravel()
    array([ 0., 10.])

    `outside` is for times before the first and after the last sample: ``"clamp"`` holds that
    sample, ``"fill"`` gives `fill`, ``"extrapolate"`` goes on, ``"error"`` raises. With
    ``valid=True``, or an array for it, the result is (out, valid): valid (B, T) is whether the time
    lies within the episode.

    >>> penstock.resample(values, times, numpy.array([-1.0, 2.0]), outside="fill", valid=True)[1]
    array([False,  True])

    Several sensors, each with times of its own, fill one row side by side; valid is then
    (B, T, sensors).

    >>> camera = penstock.Sensor(numpy.arange(3.0)[:, None], times, mode="previous")
    >>> arm = penstock.Sensor(numpy.ones((2, 2)), numpy.array([0.0, 9.0]))
    >>> penstock.resample([camera, arm], at=numpy.array([1.5, 3.5]))
    array([[1., 1., 1.],
           [2., 1., 1.]])

    The result goes into `out` or a new array of the library of `values`. `check` looks for times
    that decrease or are NaN, and for wrong lengths, which are found without it on the CPU. On a GPU
    the work is enqueued on `stream`; None is torch's current stream for its tensors. ``check=True``
    and ``outside="error"`` wait for it. torch differentiates linear mode with respect to values,
    and compiles and captures the call. `kernel` is for comparing a GPU's kernels.
    """
    numbered = False
    plain = columns is None and mode == "linear" and quaternion == "xyzw"
    if type(values) is not _Tensor and isinstance(values, (Sensor, list, tuple)):
        if not plain or not times is lengths is offsets is None:
            _refuse_beside_sensors(times=times, columns=columns, lengths=lengths, offsets=offsets,
                                   mode=None if mode == "linear" else mode,
                                   quaternion=None if quaternion == "xyzw" else quaternion)
        numbered = not isinstance(values, Sensor)
        sensors = _parts(values) if isinstance(values, Sensor) else _together(values)
        values, times = sensors[:2]
        if numbered:
            values, times = values[0], times[0]
    else:
        layout = _PLAIN if plain else _layout(mode, columns, quaternion, values)
        sensors = values, times, lengths, offsets, layout
    if times is None or at is None:
        raise InvalidArgument("at" if times is not None else "times", "an array of times", "None")
    fill, check = float(fill), bool(check)
    if valid is False:
        valid = None
    torch_part = _torch_part if type(values) is _Tensor else _torch_part_for(values)
    if torch_part is not None:
        return torch_part.run(sensors, at, out, valid, stream, outside, fill, check, kernel,
                              numbered)
    if out is None:
        out = room_like(values, out_shape(sensors, at, numbered))
    if valid is True:
        valid = room_like(values, valid_shape(sensors, at, numbered), "bool")
    _core.resample(*sensors, at, out, valid, outside, fill, check, kernel, stream, numbered)
    return out if valid is None else (out, valid)


def out_shape(sensors: Sensors, at: Any, numbered: bool) -> tuple[int, ...]:
    """Of the result; what does not fit together the library refuses."""
    columns = 0
    for each in sensors[0] if numbered else [sensors[0]]:
        columns += _shape("values", each)[-1]
    return *_rows(sensors, at, numbered), columns


def valid_shape(sensors: Sensors, at: Any, numbered: bool) -> tuple[int, ...]:
    """Of the mask, which tells sensors apart where they have numbers."""
    rows = _rows(sensors, at, numbered)
    return (*rows, len(sensors[0])) if numbered else rows


def _rows(sensors: Sensors, at: Any, numbered: bool) -> tuple[int, ...]:
    """Episodes, unless there is one alone, and wanted times."""
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
        raise InvalidArgument(name, "an array of one dimension or more", "a single number")
    return shape


def _torch_part_for(array: Any) -> Any:
    """What runs calls with tensors, known from the first one on; None for other arrays."""
    if "torch" not in sys.modules or not isinstance(array, sys.modules["torch"].Tensor):
        return None
    import penstock._resample_torch as torch_part

    if not sys.modules["torch"].compiler.is_compiling():  # which wants what it saw left as it is
        global _torch_part, _Tensor
        _torch_part, _Tensor = torch_part, sys.modules["torch"].Tensor
    return torch_part


def _refuse_beside_sensors(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument(name, "none beside sensors, which have their own",
                                  type(value).__name__ if name != "mode" else repr(value))


def _parts(sensor: Sensor) -> Sensors:
    return (sensor.values, sensor.times, sensor.lengths, sensor.offsets,
            _layout(sensor.mode, sensor.columns, sensor.quaternion, sensor.values))


def _together(sensors: Sequence[Any]) -> Sensors:
    """Of all."""
    if not sensors:
        raise InvalidArgument("values", "one sensor or more", "an empty list")
    values, times, lengths, offsets = [], [], [], []
    layout: list[int] = []
    for each in sensors:
        if not isinstance(each, Sensor):
            raise InvalidArgument("values", "an array, a Sensor, or a list of Sensor",
                                  f"a list with {type(each).__name__}")
        values.append(each.values)
        times.append(each.times)
        lengths.append(each.lengths)
        offsets.append(each.offsets)
        layout += _layout(each.mode, each.columns, each.quaternion, each.values)
    return values, times, lengths, offsets, layout


def _layout(mode: str, columns: Columns | None, quaternion: str, values: Any) -> Sequence[int]:
    """The modes of a sensor in numbers, as python/src/resample.cpp reads them."""
    if columns is None and mode == "linear" and quaternion == "xyzw":
        return _PLAIN
    layout = [_number("mode", mode, _MODES), _number("quaternion", quaternion, _ORDERS), 0]
    if columns is None:
        return layout
    for place, each in enumerate(columns):
        name = f"columns[{place}]"
        if not isinstance(each, (tuple, list)) or not 2 <= len(each) <= 3:
            raise InvalidArgument(name, "(slice or (begin, end), mode) or (..., mode, order)",
                                  repr(each))
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
