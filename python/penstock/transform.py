"""Elementwise functions that run at memory bandwidth, on NumPy, torch and Penstock arrays.

Elements are f32, f16 or bf16. All arrays of a call must be contiguous and have the same shape,
device and, except for :func:`cast`, dtype. Results are computed in f32 and rounded once, to
nearest.

The result is written to `out`, which may be one of the inputs, or to a new array of the library
that the first input belongs to, and is returned. On the CPU the call returns when the result is
complete. On a GPU the work is enqueued on `stream`; for torch tensors the default is torch's
current stream, and arrays of other libraries need an explicit `stream`. The arrays must stay alive
until the work is done; torch's allocator guarantees this on torch's current stream.

>>> import numpy, penstock
>>> x = numpy.array([-1, 0, 2], numpy.float32)
>>> penstock.transform.scale(x, 3)
array([-3.,  0.,  6.], dtype=float32)

`kernel` selects a GPU kernel: ``"portable"``, ``"sm90"``, or ``"best"``, the faster of the two. It
is only useful for comparing kernels.

:class:`Streamed` has the same functions for arrays that do not fit in device memory, in host memory
or in files.
"""

from typing import Any

from . import _core
from ._dtypes import check_same, float_name
from ._errors import InvalidArgument
from ._memory import empty_like, tell_autograd, torch_stream
from ._streamed import FileArray, Streamed, gelu_form

__all__ = ["FileArray", "Streamed", "add", "axpby", "cast", "gelu", "mul", "scale", "swiglu"]


def cast(x: Any, dtype: Any = None, out: Any = None, *, stream: Any = None,
         kernel: str = "best") -> Any:
    """Converts x to `dtype`, or to the dtype of `out`. Converting to the same dtype copies the bits.

    `dtype` is a name such as ``"f16"``, or a dtype of NumPy or torch. It may be omitted if `out` is
    given, and must otherwise be the dtype of `out`.

    >>> import numpy, penstock
    >>> x = numpy.array([1, 0.1, 1e6], numpy.float32)
    >>> penstock.transform.cast(x, "f16")
    array([1. , 0.1, inf], dtype=float16)
    """
    if dtype is None and out is None:
        raise InvalidArgument("dtype", "the dtype of the result, as there is no `out`", "None")
    if dtype is not None and out is not None:
        check_same(dtype, out)
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
    """x/2 (1 + erf(x / sqrt(2))), or with ``approximate="tanh"`` its tanh approximation.

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
    given = out
    if out is None:
        name = None if dtype is None else float_name(dtype)
        out = empty_like(inputs[0], getattr(inputs[0], "shape", ()), name)
    if stream is None:
        stream = torch_stream([*inputs, out])
    _core.elementwise(function, inputs, out, a, b, stream, kernel)
    if given is not None:
        tell_autograd(given)
    return out
