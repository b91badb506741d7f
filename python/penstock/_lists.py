"""Converts lists that are arguments of resample() to NumPy arrays."""

from typing import Any

from ._errors import InvalidArgument

_NUMBERS = {"f": "numbers", "i": "whole numbers"}


def is_list(given: Any) -> bool:
    return isinstance(given, (list, tuple))


def values_array(name: str, given: Any, mode: str) -> Any:
    """Samples. Integers become f64 if the mode computes values between samples."""
    array = _array(name, given, "f")
    return array.astype("float64") if array.dtype.kind in "iub" and _blends(mode) else array


def times_arrays(name: str, times: Any, at: Any) -> tuple[Any, Any]:
    """`times` and `at`, with one dtype: that of the one that is an array, or f64 or i64 if both are
    lists. `name` is the name of `times` in messages."""
    if is_list(times) and is_list(at):
        times, at = _array(name, times, "f"), _array("at", at, "f")
        common = "float64" if "f" in times.dtype.kind + at.dtype.kind else "int64"
        return times.astype(common), at.astype(common)
    if is_list(times):
        return _array_like(name, times, "at", at), at
    if is_list(at):
        return times, _array_like("at", at, name, times)
    return times, at


def index_array(name: str, given: Any) -> Any:
    """Lengths or offsets, as i64."""
    return _array(name, given, "i").astype("int64") if is_list(given) else given


def _blends(mode: str) -> bool:
    return mode in ("linear", "slerp")


def _array(name: str, given: Any, kind: str) -> Any:
    import numpy

    expected = f"an array, or a list of {_NUMBERS[kind]}"
    try:
        array = numpy.asarray(given)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(name, expected, f"a list that NumPy refuses: {error}") from None
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype("float64" if kind == "f" else "int64")  # NumPy reads [] as floats
    if array.dtype.kind not in "iub" + kind:
        raise InvalidArgument(name, expected, f"a list that NumPy reads as {array.dtype}")
    return array


def _array_like(name: str, given: Any, other_name: str, other: Any) -> Any:
    import numpy

    array = _array(name, given, "f")
    if not hasattr(other, "dtype"):
        return array  # `other` is no array, which is found later
    dtype = numpy.dtype({"f32": "float32", "f64": "float64", "i64": "int64"}.get(
        str(other.dtype), str(other.dtype).rpartition(".")[2]))
    if dtype.kind == "i" and not (array == array.astype(dtype)).all():
        wrong = array[array != array.astype(dtype)][0]
        raise InvalidArgument(name, f"whole numbers, as {other_name} has dtype {dtype}", str(wrong))
    return array.astype(dtype)
