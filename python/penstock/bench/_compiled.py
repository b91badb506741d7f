"""A peer made by torch.compile from plain torch code."""

from importlib.util import find_spec
from typing import Any

from ._operator import Absent, Call

NEEDS_TRITON = Absent("needs triton: pip install triton")


def has_triton() -> bool:
    return find_spec("triton") is not None


class Compiled:
    """Compiles the function at the first call, for one case."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._compiled: Any = None

    def __call__(self, inputs: Any, outputs: Any) -> Any:
        if self._compiled is None:
            import torch

            # torch stops compiling a function after a few shapes, hence the reset. fullgraph: a part
            # that falls back to Python would be slower without notice.
            torch.compiler.reset()
            self._compiled = torch.compile(self._call, dynamic=False, fullgraph=True)
        return self._compiled(inputs, outputs)
