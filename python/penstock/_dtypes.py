"""Converts names and dtypes of NumPy, torch and Python to Penstock's names of dtypes."""

from typing import Any

from ._errors import InvalidArgument

_NAMES = {
    "f64": "f64", "float64": "f64", "double": "f64", "float": "f64",
    "f32": "f32", "float32": "f32",
    "f16": "f16", "float16": "f16", "half": "f16",
    "bf16": "bf16", "bfloat16": "bf16",
    "i64": "i64", "int64": "i64", "int": "i64",
    "i32": "i32", "int32": "i32",
    "u8": "u8", "uint8": "u8",
    "bool": "bool", "bool_": "bool",
}
SIZES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "u8": 1, "bool": 1}
FLOATS = ("f32", "f16", "bf16")  # the types of elementwise functions
# as in NumPy and torch
FULL_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
              "bool": "bool"}


def dtype_name(dtype: Any) -> str:
    """Penstock's name of a dtype, such as "f32". `dtype` is a name, a dtype of NumPy or torch, or a
    Python type."""
    name = _known_name(dtype)
    if name is None:
        raise InvalidArgument("dtype", ", ".join(SIZES), repr(dtype))
    return name


def float_name(dtype: Any) -> str:
    """As dtype_name(), but refuses dtypes that elementwise functions do not support."""
    name = dtype_name(dtype)
    if name not in FLOATS:
        raise InvalidArgument("dtype", "f32, f16 or bf16", repr(dtype))
    return name


def check_same(dtype: Any, out: Any) -> None:
    """Refuses a `dtype` that is not the dtype of `out`."""
    name, of_out = float_name(dtype), getattr(out, "dtype", None)
    if of_out is None:
        raise InvalidArgument("dtype", "None, as out has no dtype to compare with", repr(dtype))
    known = _known_name(of_out)
    if known in FLOATS and known != name:  # if it is not in FLOATS, `out` is refused
        raise InvalidArgument("dtype", f"{known}, the dtype of out, or None", repr(dtype))


def _known_name(dtype: Any) -> str | None:
    if isinstance(dtype, str):
        text = dtype
    elif isinstance(dtype, type):
        text = dtype.__name__
    else:
        text = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    return _NAMES.get(text)
