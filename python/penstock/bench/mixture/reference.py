"""The result of a few tokens in higher precision, and how far rounding alone moves it."""

from collections.abc import Callable
from math import sqrt
from typing import Any

from .._values import HALF_STEPS
from .arrays import Arrays
from .load import Load
from .shapes import Shape


def of_tokens(arrays: Arrays, inputs: dict[str, Any], load: Load, tokens: Any,
              activated: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """The results of `tokens`, wide: exact, and with every value rounded that an implementation of the
    same type rounds: the activation, the result of each expert, and the sum.

    Tokens of one expert are computed together, one expert after the other. Places with weight 0 are left
    out. Biases are added where the inputs have them.
    """
    import numpy

    ids, weights = load.ids[tokens], load.weights(tokens)
    x = inputs["x"][arrays.given(tokens, "i64")]
    exact, rounded = (0 * arrays.wide(x) for _ in range(2))
    for expert in numpy.unique(ids[weights != 0]):
        rows, places = numpy.nonzero((ids == expert) & (weights != 0))
        at = arrays.given(rows, "i64")
        share = arrays.given(weights[rows, places], "wide")[:, None]
        gate, up = _halves(arrays.wide(x[at]) @ arrays.wide(inputs["gate_up"][expert]).T
                           + _bias(arrays, inputs, "gate_up_bias", expert))
        down, bias = arrays.wide(inputs["down"][expert]).T, _bias(arrays, inputs, "down_bias", expert)
        hidden = activated(gate, up)
        exact[at] += share * (hidden @ down + bias)
        rounded[at] += share * arrays.rounded(arrays.rounded(hidden) @ down + bias)
    return exact, arrays.rounded(rounded)


def _bias(arrays: Arrays, inputs: dict[str, Any], name: str, expert: int) -> Any:
    return arrays.wide(inputs[name][expert]) if name in inputs else 0


def _halves(gate_up: Any) -> tuple[Any, Any]:
    width = gate_up.shape[1] // 2
    return gate_up[:, :width], gate_up[:, width:]


def tolerance(arrays: Arrays, shape: Shape, exact: Any, rounded: Any) -> float:
    """Twice the error of the rounded result, one rounding of the largest number, and what the
    accumulation of products in f32 adds, whose roundings mostly cancel each other."""
    largest = float(abs(exact).max())
    summed = HALF_STEPS["f32"] * sqrt(shape.hidden + shape.width)
    return 2 * float(abs(rounded - exact).max()) + (arrays.half_step + summed) * largest
