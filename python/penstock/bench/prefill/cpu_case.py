"""Cases of attention on the CPU, next to torch."""

from functools import cached_property
from importlib.util import find_spec

from .._cores import threads
from .._operator import Absent, Call, Context
from .case import AttentionCase
from .shapes import Shape


class CpuCase(AttentionCase):
    def __init__(self, context: Context, name: str, shape: Shape) -> None:
        super().__init__(context, name, shape)
        self.params = {**self.params, "threads": threads()}

    @cached_property
    def _others(self) -> dict[str, tuple[str, Call] | Absent]:
        if find_spec("torch") is None:
            return {"torch": Absent("pip install torch")}
        import torch

        torch.set_num_threads(threads())
        return {"torch": self._torch("flash")}
