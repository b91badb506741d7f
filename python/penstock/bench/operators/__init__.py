"""The operators that can be benchmarked. Each file defines `operator`."""

import pkgutil
from importlib import import_module

from ..._errors import InvalidArgument
from .._operator import Operator


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find(name: str) -> Operator:
    if name not in names():
        raise InvalidArgument("OP", f"one of {', '.join(names())}", repr(name))
    operator = import_module(f"{__name__}.{name}").operator
    assert isinstance(operator, Operator)
    return operator
