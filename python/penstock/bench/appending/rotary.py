"""The rotary embedding, for references and peers. Arrays are NumPy's or torch's."""

from typing import Any

from .._arrays import torch_of
from ..prefill.reference import given, wide

BASE = 10000.0


def tables(positions: int, dim: int, like: Any) -> tuple[Any, Any]:
    """Cosines and sines, f32 (positions, dim / 2), in the place of `like`."""
    import numpy

    angles = numpy.outer(numpy.arange(positions), BASE ** -(numpy.arange(0, dim, 2) / dim))
    return given(numpy.cos(angles).astype("f4"), like), given(numpy.sin(angles).astype("f4"), like)


def rotated(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Rows (B, rows, heads, dim) with the tables' rows for their positions, in higher precision."""
    x = wide(x)
    cos, sin = ((wide(each) if torch_of(x) is None else each.to(x.dtype))[:, None]
                for each in (cos, sin))
    half = x.shape[-1] // 2
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    parts = first * cos - second * sin, second * cos + first * sin
    if not interleaved:
        return library_of(x).concatenate(parts, -1)
    return library_of(x).stack(parts, -1).reshape(x.shape)


def doubled(table: Any, like: Any) -> Any:
    """A table for both halves of the heads (rows, 1, dim), in the dtype of `like`, as models keep it."""
    both = library_of(table).concatenate((table, table), -1)[:, None]
    return both.astype(like.dtype) if torch_of(like) is None else both.to(like.dtype)


def by_halves(x: Any, cos: Any, sin: Any) -> Any:
    """The rotation as models compute it, with tables from doubled()."""
    half = x.shape[-1] // 2
    return x * cos + library_of(x).concatenate((-x[..., half:], x[..., :half]), -1) * sin


def library_of(array: Any) -> Any:
    import numpy

    return torch_of(array) or numpy
