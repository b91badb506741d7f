"""A peer that torch.compile makes of what torch's users would write."""

from importlib.util import find_spec
from typing import Any

from ._operator import Absent, Call

NEEDS_TRITON = Absent("needs triton: pip install triton")


def has_triton() -> bool:
    return find_spec("triton") is not None


class Compiled:
    """Compiled for one case, when it is first called."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._compiled: Any = None

    def __call__(self, inputs: Any, outputs: Any) -> Any:
        if self._compiled is None:
            import torch

            # torch compiles a function for a few shapes and then no more. Whole or not at all: what
            # it leaves to Python would be slower, and nobody would know.
            torch.compiler.reset()
            self._compiled = torch.compile(self._call, dynamic=False, fullgraph=True)
        return self._compiled(inputs, outputs)
