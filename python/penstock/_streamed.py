"""Elementwise functions on arrays that do not fit in device memory."""

import os
from collections.abc import Callable
from typing import Any

from . import _core
from ._check import not_negative
from ._dtypes import check_same, float_name
from ._errors import InvalidArgument
from ._files import Path


class FileArray(_core.FileArray):
    """Describes an array in a file, for :class:`Streamed`.

    The array starts at byte `offset` and has `count` elements of `dtype`, or all to the end of the
    file. The file is opened only when the array is used.

    >>> import penstock
    >>> penstock.transform.FileArray("weights.bin", "bf16", offset=128)
    <penstock.transform.FileArray bf16[...] in 'weights.bin' from byte 128>
    """

    def __init__(self, path: Path, dtype: Any, *, offset: int = 0,
                 count: int | None = None) -> None:
        if count is not None:
            not_negative("count", count)
        super().__init__(path, float_name(dtype), not_negative("offset", offset), count)


class Streamed:
    """The functions of :mod:`penstock.transform` for arrays that do not fit in device memory.

    Arrays are in host memory or in files, and go through the device in pieces, so that reading,
    uploading, computing, downloading and writing overlap. Inputs are NumPy, torch or Penstock
    arrays, or :class:`FileArray`. `out` is one of these, or a path: a file that is created or
    replaced. It is always required. All operands of a call have the same number of elements, and
    all arrays the same shape. `out` may be the same array as an input, but not the same file.

    `device` is the first GPU by default, or the CPU if there is none. At most `device_bytes` of its
    memory are used, and at most `pinned_bytes` of page-locked host memory, through which files and
    pageable arrays are staged. Arrays from :func:`penstock.empty` and page-locked torch tensors are
    not staged; pass the array itself, since a NumPy view of it cannot be recognised.

    A call returns when the last piece is done. It returns a :class:`penstock.RunReport` whose items
    are the pieces. `progress`, `recorder` and `after` are as in :meth:`penstock.Pipeline.run`. With
    `flush` an output file is on the disk, as after fsync. A file error raises OSError, and Ctrl-C
    stops the call; the content of `out` is then undefined.

    >>> import numpy, os, penstock, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "halves.f16")
    >>> x = numpy.arange(100_000, dtype=numpy.float32)
    >>> streamed = penstock.transform.Streamed("cpu", pinned_bytes=64 << 20)
    >>> streamed.cast(x, "f16", out=path).cancelled
    False
    >>> halves = penstock.transform.FileArray(path, "f16")
    >>> report = streamed.scale(halves, 0.5, out=path + ".scaled")
    >>> penstock.read_file(path + ".scaled", dtype="f16", count=4)
    array([0. , 0.5, 1. , 1.5], dtype=float16)
    """

    def __init__(self, device: str | _core.Device | None = None, *, device_bytes: int = 2 << 30,
                 pinned_bytes: int = 512 << 20,
                 progress: Callable[[int, int], object] | None = None,
                 recorder: _core.Timeline | None = None, after: Any = None,
                 flush: bool = False) -> None:
        if progress is not None and not callable(progress):
            raise InvalidArgument("progress", "a function of the pieces done and the number of "
                                  "pieces, or None", repr(progress))
        self._device = _core.Device(device)
        self._options = (not_negative("device_bytes", device_bytes),
                         not_negative("pinned_bytes", pinned_bytes), progress, recorder, after,
                         flush)

    @property
    def device(self) -> _core.Device:
        return self._device

    def cast(self, x: Any, dtype: Any = None, *, out: Any) -> _core.RunReport:
        """Converts x to the dtype of `out`, or to `dtype`, which is required if `out` is a path.

        >>> import numpy, penstock
        >>> out = numpy.empty(2, numpy.float16)
        >>> report = penstock.transform.Streamed("cpu").cast(numpy.float32([0.1, 1e6]), out=out)
        >>> out
        array([0.1, inf], dtype=float16)
        """
        if _is_path(out):
            if dtype is None:
                raise InvalidArgument("dtype", "the dtype of the result, as `out` is a path", "None")
            out = FileArray(out, dtype)
        elif dtype is not None:
            check_same(dtype, out)
        return self._run("cast", {"x": x}, out)

    def scale(self, x: Any, factor: float, *, out: Any) -> _core.RunReport:
        """factor * x

        >>> import numpy, penstock
        >>> x = numpy.ones(3, numpy.float16)
        >>> report = penstock.transform.Streamed("cpu").scale(x, 0.5, out=x)  # in place
        >>> x
        array([0.5, 0.5, 0.5], dtype=float16)
        """
        return self._run("scale", {"x": x}, out, a=factor)

    def axpby(self, x: Any, y: Any, a: float = 1.0, b: float = 1.0, *, out: Any
              ) -> _core.RunReport:
        """a * x + b * y

        >>> import numpy, penstock
        >>> x, y = numpy.float32([1, 2]), numpy.float32([1, 1])
        >>> report = penstock.transform.Streamed("cpu").axpby(x, y, a=10, b=-1, out=y)
        >>> y
        array([ 9., 19.], dtype=float32)
        """
        return self._run("axpby", {"x": x, "y": y}, out, a=a, b=b)

    def add(self, *inputs: Any, out: Any) -> _core.RunReport:
        """The sum of two to four arrays.

        >>> import numpy, penstock
        >>> x = numpy.float32([1, 2])
        >>> report = penstock.transform.Streamed("cpu").add(x, x, x, out=x)
        >>> x
        array([3., 6.], dtype=float32)
        """
        if not 2 <= len(inputs) <= 4:
            raise InvalidArgument("inputs", "two to four arrays", str(len(inputs)))
        return self._run("add", {f"inputs[{i}]": x for i, x in enumerate(inputs)}, out)

    def mul(self, x: Any, y: Any, *, out: Any) -> _core.RunReport:
        """x * y

        >>> import numpy, penstock
        >>> x = numpy.float32([1, 2])
        >>> report = penstock.transform.Streamed("cpu").mul(x, x, out=x)
        >>> x
        array([1., 4.], dtype=float32)
        """
        return self._run("mul", {"x": x, "y": y}, out)

    def swiglu(self, gate: Any, up: Any, *, out: Any) -> _core.RunReport:
        """gate / (1 + exp(-gate)) * up

        >>> import numpy, penstock
        >>> gate, up = numpy.float32([-100, 0, 100]), numpy.float32([2, 2, 2])
        >>> report = penstock.transform.Streamed("cpu").swiglu(gate, up, out=up)
        >>> up.round(3)
        array([ -0.,   0., 200.], dtype=float32)
        """
        return self._run("swiglu", {"gate": gate, "up": up}, out)

    def gelu(self, x: Any, *, out: Any, approximate: str = "none") -> _core.RunReport:
        """x/2 (1 + erf(x / sqrt(2))), or with ``approximate="tanh"`` its tanh approximation.

        >>> import numpy, penstock
        >>> x = numpy.float32([-1, 0, 1])
        >>> report = penstock.transform.Streamed("cpu").gelu(x, out=x)
        >>> x.round(4)
        array([-0.1587,  0.    ,  0.8413], dtype=float32)
        """
        return self._run(gelu_form(approximate), {"x": x}, out)

    def __repr__(self) -> str:
        return f"<penstock.transform.Streamed on '{self._device.name}'>"

    def _run(self, function: str, inputs: dict[str, Any], out: Any, *, a: float = 1.0,
             b: float = 1.0) -> _core.RunReport:
        for name, x in inputs.items():
            if _is_path(x):
                raise InvalidArgument(name, "an array, or a FileArray, which gives a file its dtype",
                                      repr(x))
        if _is_path(out):
            out = _core.FileArray(out, None, 0, None)
        if isinstance(out, _core.FileArray):
            _refuse_to_empty_what_is_mapped(inputs, out)
        return _core.elementwise_streamed(function, list(inputs.values()), out, a, b, self._device,
                                          *self._options)


def gelu_form(approximate: str) -> str:
    forms = {"none": "gelu", "tanh": "gelu_tanh"}
    if approximate not in forms:
        raise InvalidArgument("approximate", "'none' or 'tanh'", repr(approximate))
    return forms[approximate]


def _is_path(given: Any) -> bool:
    return isinstance(given, (str, bytes, os.PathLike))


def _refuse_to_empty_what_is_mapped(inputs: dict[str, Any], out: _core.FileArray) -> None:
    """Truncating a file that is mapped into memory would crash the process."""
    for name, x in inputs.items():
        mapped = getattr(x, "filename", None)  # of numpy.memmap
        if mapped and os.path.exists(out.path) and os.path.samefile(mapped, out.path):
            raise InvalidArgument("out", f"another file than that of {name}", repr(out.path))
