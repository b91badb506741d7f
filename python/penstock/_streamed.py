"""Elementwise functions over arrays that a device has no room for."""

import os
from collections.abc import Callable
from typing import Any

from . import _core
from ._check import not_negative
from ._dtypes import float_name
from ._errors import InvalidArgument
from ._files import Path


class FileArray(_core.FileArray):
    """An array that lies in a file, for :class:`Streamed`: where, and what its elements are.

    It begins `offset` bytes into the file and has `count` elements, or all to the end. Nothing is
    opened before it is used.

    >>> import penstock
    >>> penstock.transform.FileArray("weights.bin", "bf16", offset=128)
    <penstock.transform.FileArray bf16[...] in 'weights.bin' from byte 128 on>
    """

    def __init__(self, path: Path, dtype: Any, *, offset: int = 0,
                 count: int | None = None) -> None:
        if count is not None:
            not_negative("count", count)
        super().__init__(path, float_name(dtype), not_negative("offset", offset), count)


class Streamed:
    """The functions of :mod:`penstock.transform` for more than the device has memory for.

    Arrays lie in the host's memory or in files, and flow through the device in pieces: reading,
    uploading, computing, downloading and writing overlap. Inputs are arrays of NumPy, torch or
    Penstock, or :class:`FileArray`; so is `out`, which is always given and may be a path too: a file
    that is made or replaced. All of a call have as many elements, and arrays one shape. `out` may be
    an array that is an input, but no file that is one.

    `device` is the first GPU, else the CPU, unless given. At most `device_bytes` of its memory are
    used, and `pinned_bytes` of page-locked slots, through which files and ordinary memory go.
    Page-locked memory of :func:`penstock.empty` or torch needs none; give the array itself, as a NumPy
    view of it looks like any other.

    A call returns when the last piece is done, with a :class:`penstock.RunReport` whose items are
    pieces. `progress`, `recorder` and `after` are those of :meth:`penstock.Pipeline.run`; with
    `flush` a file is on the disk itself at the end. A file that fails raises OSError, and Ctrl-C ends
    the call soon; `out` then holds anything.

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
            raise InvalidArgument("progress", "something to call with the pieces done and all "
                                  "pieces, or None", repr(progress))
        self._device = _core.Device(device)
        self._options = (not_negative("device_bytes", device_bytes),
                         not_negative("pinned_bytes", pinned_bytes), progress, recorder, after,
                         flush)

    @property
    def device(self) -> _core.Device:
        return self._device

    def cast(self, x: Any, dtype: Any = None, *, out: Any) -> _core.RunReport:
        """x in another type: that of `out`, or `dtype` where `out` is a path.

        >>> import numpy, penstock
        >>> out = numpy.empty(2, numpy.float16)
        >>> report = penstock.transform.Streamed("cpu").cast(numpy.float32([0.1, 1e6]), out=out)
        >>> out
        array([0.1, inf], dtype=float16)
        """
        if _is_path(out) == (dtype is None):
            raise InvalidArgument("dtype", "the type wanted, where `out` is a path, else None",
                                  repr(dtype))
        return self._run("cast", {"x": x}, out if dtype is None else FileArray(out, dtype))

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
        """x/2 (1 + erf(x / sqrt(2))), or with ``approximate="tanh"`` the usual approximation of it.

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
                raise InvalidArgument(name, "an array, or a FileArray, which says what the elements "
                                      "of a file are", repr(x))
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
    """A mapped file that becomes shorter takes the process with it."""
    for name, x in inputs.items():
        mapped = getattr(x, "filename", None)  # of numpy.memmap
        if mapped and os.path.exists(out.path) and os.path.samefile(mapped, out.path):
            raise InvalidArgument("out", f"another file than {name}'s", repr(out.path))
