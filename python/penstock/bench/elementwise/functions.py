"""The elementwise functions that are measured: how each is called, and its right answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import erf, sqrt
from typing import Any

from ... import transform

FACTOR, A, B = 1.5, 0.25, -2.125  # exact in every dtype


@dataclass(frozen=True)
class Function:
    """`exact` computes the answer from NumPy arrays, `torch` from tensors of any dtype."""

    name: str  # in penstock.transform, and in the library of CUB's peers
    inputs: int
    flop: int  # per element; an exponential counts once
    exact: Callable[..., Any]
    torch: Callable[..., Any]
    numbers: Mapping[str, float] = field(default_factory=dict)

    def ours(self, kernel: str) -> Callable[[Any, Any], None]:
        call = partial(getattr(transform, self.name), kernel=kernel, **self.numbers)

        def run(inputs: Any, out: Any) -> None:
            call(*inputs, out=out)

        return run


def _silu(x: Any) -> Any:
    import torch

    return torch.nn.functional.silu(x)


def _gelu(x: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(x)


def _exact_swiglu(gate: Any, up: Any) -> Any:
    import numpy

    return gate / (1 + numpy.exp(-gate)) * up


def _exact_gelu(x: Any) -> Any:
    import numpy

    return x / 2 * (1 + numpy.vectorize(erf, otypes="d")(x / sqrt(2)))


CAST = Function("cast", 1, 0, lambda x: x, lambda x: x)
SCALE = Function("scale", 1, 1, lambda x: FACTOR * x, lambda x: x * FACTOR, {"factor": FACTOR})
AXPBY = Function("axpby", 2, 3, lambda x, y: A * x + B * y, lambda x, y: (x * A).add_(y, alpha=B),
                 {"a": A, "b": B})
ADD = Function("add", 3, 2, lambda x, y, z: x + y + z, lambda x, y, z: (x + y).add_(z))
MUL = Function("mul", 2, 1, lambda x, y: x * y, lambda x, y: x * y)
SWIGLU = Function("swiglu", 2, 4, _exact_swiglu, lambda gate, up: _silu(gate).mul_(up))
GELU = Function("gelu", 1, 4, _exact_gelu, _gelu)
