"""Cases of moe on the CPU, with torch's tensors, next to torch."""

from functools import cached_property
from importlib.util import find_spec
from typing import Any

from .._cores import threads
from .._operator import Absent, Call, Context
from .._rotation import sets_needed
from .arrays import TorchArrays
from .decode_case import DecodeCase
from .layouts_case import transposed
from .shapes import Shape


class CpuCase(DecodeCase):
    """With `by_column`, the weights are stored transposed, so that their columns are contiguous."""

    def __init__(self, context: Context, name: str, shape: Shape, dtype: str, sets: int,
                 by_column: bool = False) -> None:
        super().__init__(context, name, shape, TorchArrays("cpu", dtype))
        self.params = {**self.params, "threads": threads(), "transposed": by_column}
        self.fewest_sets = sets
        self._by_column = by_column

    def make_inputs(self, rotation: int) -> Any:
        inputs = super().make_inputs(rotation)
        if self._by_column:
            for name in ("gate_up", "down"):
                inputs[name] = transposed(self._arrays, inputs[name])
        return inputs

    @cached_property
    def _others(self) -> dict[str, tuple[str, Call] | Absent]:
        if find_spec("torch") is None:
            return {"torch, loop": Absent("pip install torch")}
        import torch

        from .torch_loop import TorchLoop

        torch.set_num_threads(threads())
        return {"torch, loop": (torch.__version__, TorchLoop(self._shape.choices)),
                "torch, grouped": self._grouped()}

    def _grouped(self) -> tuple[str, Call] | Absent:
        """torch's grouped products, if it has them for the CPU and this dtype."""
        import torch

        from . import torch_peer

        if not torch_peer.is_there():
            return Absent(torch_peer.MISSING)
        call = torch_peer.TorchLayer(self._shape.choices)
        try:
            call(*self._tiny())
        except (RuntimeError, NotImplementedError) as error:
            return Absent(f"torch {torch.__version__}: {str(error).splitlines()[0]}")
        return torch.__version__, call

    def _tiny(self) -> tuple[dict[str, Any], Any]:
        empty = self._arrays.empty
        experts = self._shape.choices
        inputs = {"x": empty((1, 16)), "router": empty((experts, 16)),
                  "gate_up": empty((experts, 32, 16)), "down": empty((experts, 16, 16))}
        return {name: array.zero_() for name, array in inputs.items()}, empty((1, 16))


def sets_of(shape: Shape, element: int, cache: int) -> int:
    """Sets of weights: so many that the experts which a call can read exceed the cache over all sets."""
    return sets_needed(min(shape.experts, shape.rows) * shape.expert_bytes(element), cache)


def experts_that_fit(shape: Shape, element: int, sets: int, memory: int) -> int:
    """As many as the shape has, or half of them, and so on, until all sets take half of the memory."""
    experts = shape.experts
    while experts > shape.choices and sets * experts * shape.expert_bytes(element) > memory // 2:
        experts //= 2
    return experts
