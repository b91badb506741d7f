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
    out. Biases are added where the inputs have them, and a shared expert with weight 1.
    """
    import numpy

    ids, weights = load.ids[tokens], load.weights(tokens)
    x = inputs["x"][arrays.given(tokens, "i64")]
    exact, rounded = (0 * arrays.wide(x) for _ in range(2))

    def results(rows: Any, gate_up: Any, down: Any, gate_up_bias: Any = 0, down_bias: Any = 0) -> tuple[Any, Any]:
        """Those of one expert."""
        gate, up = _halves(arrays.wide(rows) @ arrays.wide(gate_up).T + gate_up_bias)
        hidden, wide = activated(gate, up), arrays.wide(down).T
        return hidden @ wide + down_bias, arrays.rounded(arrays.rounded(hidden) @ wide + down_bias)

    for expert in numpy.unique(ids[weights != 0]):
        rows, places = numpy.nonzero((ids == expert) & (weights != 0))
        at = arrays.given(rows, "i64")
        share = arrays.given(weights[rows, places], "wide")[:, None]
        own, near = results(x[at], inputs["gate_up"][expert], inputs["down"][expert],
                            _bias(arrays, inputs, "gate_up_bias", expert),
                            _bias(arrays, inputs, "down_bias", expert))
        exact[at] += share * own
        rounded[at] += share * near
    if "shared_gate_up" in inputs:
        own, near = results(x, inputs["shared_gate_up"], inputs["shared_down"])
        exact += own
        rounded += near
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
