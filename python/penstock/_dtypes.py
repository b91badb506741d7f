"""Element types by whatever name a caller has for them."""

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
FLOATS = ("f32", "f16", "bf16")  # what elementwise functions work on
NAMES_ELSEWHERE = {"f32": "float32", "f16": "float16", "bf16": "bfloat16",
                   "bool": "bool"}  # in NumPy and torch


def dtype_name(dtype: Any) -> str:
    """Penstock's name of an element type given by name, or as NumPy's, torch's or Python's type."""
    if isinstance(dtype, str):
        text = dtype
    elif isinstance(dtype, type):
        text = dtype.__name__
    else:
        text = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    if text not in _NAMES:
        raise InvalidArgument("dtype", ", ".join(SIZES), repr(dtype))
    return _NAMES[text]


def float_name(dtype: Any) -> str:
    """The same for what elementwise functions work on."""
    name = dtype_name(dtype)
    if name not in FLOATS:
        raise InvalidArgument("dtype", "f32, f16 or bf16", repr(dtype))
    return name
