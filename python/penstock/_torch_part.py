"""Finds the module that handles torch tensors, without importing torch before the caller does."""

import sys
from collections.abc import Callable
from typing import Any


class TorchPart:
    """The part of an operator that handles torch tensors: a module that `load` imports at the first
    call with one."""

    __slots__ = ("_load", "_module", "tensor")

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._module: Any = None
        self.tensor: Any = None  # torch.Tensor, from the first call on

    def of(self, array: Any) -> Any:
        """The module; None if `array` is not a tensor."""
        if type(array) is self.tensor:
            return self._module
        if "torch" not in sys.modules or not isinstance(array, sys.modules["torch"].Tensor):
            return None
        module = self._load()
        if not sys.modules["torch"].compiler.is_compiling():  # a traced call must not change objects
            self._module, self.tensor = module, sys.modules["torch"].Tensor
        return module
