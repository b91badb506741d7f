"""A large matrix product, whose rate is a yardstick of operators that multiply."""

from typing import Any

from .._operator import Call, Context
from .._values import empty, normal

LARGE = 8192  # rows, columns and depth, on a GPU
PART = "large product"


class LargeProduct:
    """By `multiply`, on square matrices of its own, of which the second is transposed."""

    def __init__(self, context: Context, dtype: str, multiply: Call,
                 size: int | None = None) -> None:
        self.size = size or LARGE
        self._context, self._dtype, self._multiply = context, dtype, multiply
        self._matrices: Any = None

    def prepare(self, inputs: Any, outputs: Any) -> None:
        if self._matrices is None:
            shape = self.size, self.size
            pair = tuple(normal(self._context, [part, 2], shape, self._dtype, self.size**-0.5)
                         for part in range(2))
            self._matrices = pair, empty(self._context, shape, self._dtype)

    def __call__(self, inputs: Any, outputs: Any) -> None:
        self._multiply(*self._matrices)

    def us(self, measured_us: float, flop: int) -> float:
        """The time of other work at the rate of this product, which took `measured_us`."""
        return measured_us * flop / (2 * self.size**3)
