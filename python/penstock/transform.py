"""Elementwise functions at the speed of memory, on arrays of NumPy, torch and Penstock.

Elements are f32, f16 or bf16; all arrays of a call are contiguous, of one shape, on one device and,
but for :func:`cast`, of one type. Numbers are computed in f32 and rounded once, to the nearest. The
result goes into `out`, which may be one of the inputs, or into a new array of the first input's
library; both are returned. On a GPU the work is enqueued on `stream`, which must be given, and the
arrays must stay alive until it is done; on the CPU it is done when the call returns.

>>> import numpy, penstock
>>> x = numpy.array([-1, 0, 2], numpy.float32)
>>> penstock.transform.scale(x, 3)
array([-3.,  0.,  6.], dtype=float32)

`kernel` is for comparing a GPU's kernels: ``"portable"``, ``"sm90"``, or the ``"best"`` of them.

:class:`Streamed` has the same functions for arrays that the device has no memory for, in the host's
memory or in files.
"""

from typing import Any

from . import _core
from ._dtypes import float_name
from ._errors import InvalidArgument
from ._memory import room_like
from ._streamed import FileArray, Streamed, gelu_form

__all__ = ["FileArray", "Streamed", "add", "axpby", "cast", "gelu", "mul", "scale", "swiglu"]


def cast(x: Any, dtype: Any = None, out: Any = None, *, stream: Any = None,
         kernel: str = "best") -> Any:
    """x in another type: `dtype`, or that of `out`. The same type makes a copy, bit by bit.

    >>> import numpy, penstock
    >>> x = numpy.array([1, 0.1, 1e6], numpy.float32)
    >>> penstock.transform.cast(x, "f16")
    array([1. , 0.1, inf], dtype=float16)
    """
    if (dtype is None) == (out is None):
        raise InvalidArgument("dtype", "the type wanted, or None beside `out`", repr(dtype))
    return _run("cast", [x], out, stream, kernel, dtype=dtype)


def scale(x: Any, factor: float, out: Any = None, *, stream: Any = None,
          kernel: str = "best") -> Any:
    """factor * x

    >>> import numpy, penstock
    >>> x = numpy.ones(3, numpy.float16)
    >>> penstock.transform.scale(x, 0.5, out=x)  # in place
    array([0.5, 0.5, 0.5], dtype=float16)
    """
    return _run("scale", [x], out, stream, kernel, a=factor)


def axpby(x: Any, y: Any, a: float = 1.0, b: float = 1.0, out: Any = None, *, stream: Any = None,
          kernel: str = "best") -> Any:
    """a * x + b * y

    >>> import numpy, penstock
    >>> x = numpy.array([1, 2], numpy.float32)
    >>> penstock.transform.axpby(x, numpy.ones_like(x), a=10, b=-1)
    array([ 9., 19.], dtype=float32)
    """
    return _run("axpby", [x, y], out, stream, kernel, a=a, b=b)


def add(*inputs: Any, out: Any = None, stream: Any = None, kernel: str = "best") -> Any:
    """The sum of two to four arrays.

    >>> import numpy, penstock
    >>> x = numpy.array([1, 2], numpy.float32)
    >>> penstock.transform.add(x, x, x)
    array([3., 6.], dtype=float32)
    """
    if not 2 <= len(inputs) <= 4:
        raise InvalidArgument("inputs", "two to four arrays", str(len(inputs)))
    return _run("add", list(inputs), out, stream, kernel)


def mul(x: Any, y: Any, out: Any = None, *, stream: Any = None, kernel: str = "best") -> Any:
    """x * y

    >>> import numpy, penstock
    >>> x = numpy.array([1, 2], numpy.float32)
    >>> penstock.transform.mul(x, x)
    array([1., 4.], dtype=float32)
    """
    return _run("mul", [x, y], out, stream, kernel)


def swiglu(gate: Any, up: Any, out: Any = None, *, stream: Any = None,
           kernel: str = "best") -> Any:
    """gate / (1 + exp(-gate)) * up

    >>> import numpy, penstock
    >>> gate = numpy.array([-100, 0, 100], numpy.float32)
    >>> penstock.transform.swiglu(gate, numpy.full_like(gate, 2)).round(3)
    array([ -0.,   0., 200.], dtype=float32)
    """
    return _run("swiglu", [gate, up], out, stream, kernel)


def gelu(x: Any, out: Any = None, *, approximate: str = "none", stream: Any = None,
         kernel: str = "best") -> Any:
    """x/2 (1 + erf(x / sqrt(2))), or with ``approximate="tanh"`` the usual approximation of it.

    >>> import numpy, penstock
    >>> x = numpy.array([-1, 0, 1], numpy.float32)
    >>> penstock.transform.gelu(x).round(4)
    array([-0.1587,  0.    ,  0.8413], dtype=float32)
    >>> penstock.transform.gelu(x, approximate="tanh").round(4)
    array([-0.1588,  0.    ,  0.8412], dtype=float32)
    """
    return _run(gelu_form(approximate), [x], out, stream, kernel)


def _run(function: str, inputs: list[Any], out: Any, stream: Any, kernel: str, *,
         a: float = 1.0, b: float = 1.0, dtype: Any = None) -> Any:
    if out is None:
        name = None if dtype is None else float_name(dtype)
        out = room_like(inputs[0], getattr(inputs[0], "shape", ()), name)
    _core.elementwise(function, inputs, out, a, b, stream, kernel)
    return out
