"""What attention() and append_attention() make of their arguments before the library checks them."""

from typing import Any

from ._errors import InvalidArgument


def result_shapes(q: Any, v: Any, cu_q: Any, names: tuple[str, str] = ("cu_q", "cu_k")
                  ) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of the result and of lse. The library checks everything else. `names` are those of
    `cu_q` and of the same for `v`."""
    rank = 4 if cu_q is None else 3
    shape, shape_v = getattr(q, "shape", None), getattr(v, "shape", None)
    if shape is None or shape_v is None:
        name, wrong = ("q", q) if shape is None else ("v", v)
        raise TypeError(f"{name}: expected an array, given {type(wrong).__name__}")
    if len(shape) != rank:
        expected = "(B, S, H, D)" if rank == 4 else f"(rows, H, D), because of {names[0]}"
        raise InvalidArgument("q", expected, str(tuple(shape)))
    if len(shape_v) not in (3, 4):
        raise InvalidArgument("v", f"(B, S, H, D), or (rows, H, D) with {names[1]}",
                              str(tuple(shape_v)))
    *batch, rows, heads, _ = shape
    return (*batch, rows, heads, shape_v[-1]), (*batch, heads, rows)


def sides(window: tuple[int | None, int | None] | None) -> tuple[int, int]:
    """The keys that a window has on the left and on the right; -1 is no limit."""
    if window is None:
        return -1, -1
    try:
        left, right = window
    except (TypeError, ValueError):
        raise InvalidArgument("window", "None or (left, right)", repr(window)) from None
    return -1 if left is None else left, -1 if right is None else right


def number(name: str, value: float | None) -> float:
    """0 stands for the default in the library."""
    if value is None:
        return 0.0
    if value == 0:
        raise InvalidArgument(name, "None, or a number that is not 0", repr(value))
    return value


def count(name: str, value: int | None) -> int:
    """The same for a number of rows."""
    if value is None:
        return 0
    if value < 1:
        raise InvalidArgument(name, "None, or 1 or more", repr(value))
    return value
