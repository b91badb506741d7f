"""Reads and writes checkpoints in the safetensors format.

Tensors are read from disk straight into NumPy arrays, torch tensors or GPU memory, bypassing the page
cache where possible. A checkpoint is one file, or several files with an index. Files that violate the
format are refused with :class:`penstock.InvalidArgument`, which says what is wrong and where.

>>> import numpy, os, tempfile
>>> from penstock import weights
>>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
>>> weights.save(path, {"up": numpy.ones((4, 2), "f4"), "bias": numpy.zeros(4, "f2")})
>>> checkpoint = weights.open(path)
>>> checkpoint.names
['up', 'bias']
>>> checkpoint.dtype("up"), checkpoint.shape("up")
('F32', (4, 2))
>>> checkpoint.read("up", rows=range(1, 3))
array([[1., 1.],
       [1., 1.]], dtype=float32)
"""

import math
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from . import _core
from ._check import not_negative
from ._errors import InvalidArgument
from ._memory import empty, is_torchs, tell_autograd

__all__ = ["Checkpoint", "load", "open", "save"]

Path = str | bytes | os.PathLike[str]

_PAGE = 4096
_SHARED = 64 << 20  # bytes of a piece of memory that several arrays share; malloc() gives it back

# Types of the format, from the largest elements to the smallest, and their names in NumPy and torch.
_NUMPY = {"U64": "uint64", "I64": "int64", "F64": "float64", "C64": "complex64", "F32": "float32",
          "U32": "uint32", "I32": "int32", "F16": "float16", "U16": "uint16", "I16": "int16",
          "I8": "int8", "U8": "uint8", "BOOL": "bool"}
_TORCH = _NUMPY | {"BF16": "bfloat16", "F8_E5M2FNUZ": "float8_e5m2fnuz",
                   "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E8M0": "float8_e8m0fnu",
                   "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_ORDER = ["U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16",
          "F8_E5M2FNUZ", "F8_E4M3FNUZ", "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"]


def open(path: Path) -> "Checkpoint":
    """Opens a safetensors file, an index file (``*.json``), or a folder that holds
    ``model.safetensors`` or ``model.safetensors.index.json``. Reads and checks the headers only.

    Raises OSError if a file cannot be read, and :class:`penstock.InvalidArgument` if a file violates
    the format.
    """
    return Checkpoint(path)


class Checkpoint:
    """The tensors of a checkpoint. Made by :func:`open`."""

    def __init__(self, path: Path) -> None:
        self._files = _core.Weights(path)
        self._names = self._files.names

    @property
    def names(self) -> list[str]:
        """The names of the tensors, in the order of their bytes, file after file."""
        return list(self._names)

    @property
    def files(self) -> list[str]:
        """The paths of the files."""
        return self._files.files

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return self._files.nbytes

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._files.contains(name)

    def metadata(self, file: int = 0) -> dict[str, str]:
        """What a file says about itself: the strings of its ``__metadata__``."""
        not_negative("file", file)
        return self._files.metadata(file)

    def dtype(self, name: str) -> str:
        """The type of a tensor's elements, as files name it: "BF16", "F8_E4M3", "BOOL"."""
        return self._files.info(name)[0]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self._files.info(name)[1]

    def read(self, name: str, out: Any = None, *, rows: range | None = None, like: str = "numpy",
             device: Any = None) -> Any:
        """Reads a tensor, or a range of its rows (slices of the first dimension).

        With `out`, fills that contiguous array of the same number of bytes, in host memory or on a
        GPU, and returns it; reading into a GPU's memory goes through page-locked memory, and reading
        and uploading overlap. Without it, returns a new NumPy array, or with ``like="torch"`` a
        tensor on `device`. NumPy has no BF16 and no FP8.
        """
        first, count = _row_range(rows, self.shape(name))
        _check_kind(like, device)
        if device is not None and out is not None:
            raise InvalidArgument("device", "None, as `out` determines the device", repr(device))
        if out is None:
            out = self._new(name, like, device, first, count)
        self._files.read([(name, _as_bytes(out), first, count)])
        tell_autograd(out)
        return out

    def read_into(self, arrays: Mapping[str, Any]) -> None:
        """Fills several arrays with whole tensors, as :meth:`read` does with `out`. The reads
        overlap, so this is faster than one call per tensor."""
        self._files.read([(name, _as_bytes(out), 0, -1) for name, out in arrays.items()])
        for out in arrays.values():
            tell_autograd(out)

    def _new(self, name: str, like: str, device: Any, first: int = 0, count: int = -1) -> Any:
        """An array for `count` rows of a tensor; all rows if it is -1."""
        dtype, shape, _, offset, nbytes = self._files.info(name)
        if count >= 0:
            offset += first * (nbytes // max(shape[0], 1))
            shape = (count, *shape[1:])
        return _new_numpy(dtype, shape, offset) if like == "numpy" else _new_torch(dtype, shape, device)

    def __repr__(self) -> str:
        return (f"<penstock.weights.Checkpoint of {len(self)} tensors, {self.nbytes} bytes in "
                f"{len(self.files)} files>")


def load(path: Path, *, like: str = "numpy", device: Any = None) -> dict[str, Any]:
    """Reads all tensors of a checkpoint into new arrays; the arguments are those of :func:`open` and
    :meth:`Checkpoint.read`. NumPy arrays of less than 64 MiB share pieces of memory of this size, which
    are freed when none of their arrays is used any more."""
    checkpoint = open(path)
    _check_kind(like, device)
    arrays = (_new_arrays(checkpoint) if like == "numpy" else
              {name: checkpoint._new(name, like, device) for name in checkpoint})
    checkpoint.read_into(arrays)
    return arrays


def save(path: Path, tensors: Mapping[str, Any], *, metadata: Mapping[str, str] | None = None,
         shard_bytes: int = 0, alignment: int = 8) -> None:
    """Writes NumPy arrays and torch tensors in host memory to a file, which appears complete or not
    at all.

    As the reference does, tensors with larger elements come first, and then by name. With
    `shard_bytes`, several files of at most that many bytes of tensors are written if needed, with an
    index: ``model-00001-of-00003.safetensors`` and ``model.safetensors.index.json``. The first tensor
    of a file begins at a multiple of `alignment`.
    """
    not_negative("shard_bytes", shard_bytes)
    not_negative("alignment", alignment)
    types = {name: _type_of(name, array) for name, array in tensors.items()}
    names = sorted(tensors, key=lambda name: (_ORDER.index(types[name]), name))
    specs = [(name, types[name], tuple(tensors[name].shape)) for name in names]
    writer = _core.WeightsWriter(path, specs, dict(metadata or {}), shard_bytes, alignment)
    try:
        for name in names:
            writer.write(name, _bytes_of(name, tensors[name]))
        writer.finish()
    finally:
        writer.close()


def _check_kind(like: str, device: Any) -> None:
    if like not in ("numpy", "torch"):
        raise InvalidArgument("like", "'numpy' or 'torch'", repr(like))
    if device is not None and like == "numpy":
        raise InvalidArgument("device", "None, except with like='torch'", repr(device))


def _as_bytes(out: Any) -> Any:
    """Not every version of torch shares all types through DLPack, but bytes they all do."""
    if is_torchs(out) and out.is_contiguous():
        return out.detach().reshape(-1).view(sys.modules["torch"].uint8)
    return out


def _row_range(rows: range | None, shape: tuple[int, ...]) -> tuple[int, int]:
    if rows is None:
        return 0, -1
    most = shape[0] if shape else 0
    if not isinstance(rows, range) or rows.step != 1 or not 0 <= rows.start <= rows.stop <= most:
        raise InvalidArgument("rows", f"a range of consecutive rows inside 0 to {most}", repr(rows))
    return rows.start, len(rows)


def _new_numpy(dtype: str, shape: tuple[int, ...], offset: int) -> Any:
    import numpy  # here, as importing it takes longer than importing this package

    if dtype not in _NUMPY:
        raise InvalidArgument("like", f"'torch', or an array as out, because NumPy has no {dtype}",
                              "'numpy'")
    element = numpy.dtype(_NUMPY[dtype])
    nbytes = math.prod(shape) * element.itemsize
    if nbytes == 0:
        return numpy.empty(shape, element)
    # A read bypasses the page cache if memory and file are equally far behind a multiple of 4 KiB.
    shift = offset % _PAGE if offset % element.itemsize == 0 else 0
    memory = empty(shift + nbytes, "u8", device="cpu").numpy()
    return memory[shift:].view(element).reshape(shape)


def _new_arrays(checkpoint: Checkpoint) -> dict[str, Any]:
    """NumPy arrays for all tensors. Smaller ones share memory: large pieces have huge pages, which are
    there sooner than as many small ones."""
    arrays: dict[str, Any] = {}
    group: list[tuple[str, int]] = []  # names, and where they begin in the memory that they share
    used = 0

    def allocate() -> None:
        memory: Any = empty(used, "u8", device="cpu").numpy() if group else None
        for name, begin in group:
            dtype, shape, _, _, nbytes = checkpoint._files.info(name)
            arrays[name] = memory[begin:begin + nbytes].view(_NUMPY[dtype]).reshape(shape)

    for name in checkpoint:
        dtype, shape, _, offset, nbytes = checkpoint._files.info(name)
        if not 0 < nbytes < _SHARED or dtype not in _NUMPY or offset % (nbytes // math.prod(shape)):
            arrays[name] = checkpoint._new(name, "numpy", None)
            continue
        begin = used + (offset - used) % _PAGE
        if begin + nbytes > _SHARED:
            allocate()
            group, begin = [], offset % _PAGE
        group.append((name, begin))
        used = begin + nbytes
    allocate()
    return {name: arrays[name] for name in checkpoint}


def _new_torch(dtype: str, shape: tuple[int, ...], device: Any) -> Any:
    import torch

    element = getattr(torch, _TORCH.get(dtype, "no such type"), None)
    if element is None:
        raise InvalidArgument("out", f"an array of bytes, because torch has no {dtype}", "None")
    return torch.empty(shape, dtype=element, device=device)


def _type_of(name: str, array: Any) -> str:
    known = _TORCH if is_torchs(array) else _NUMPY
    element = str(getattr(array, "dtype", None)).removeprefix("torch.")
    for dtype, other in known.items():
        if other == element:
            return dtype
    raise InvalidArgument(f"tensors[{name!r}]", "an array of a type of the format, little-endian",
                          f"{type(array).__name__} of {element}")


def _bytes_of(name: str, array: Any) -> Any:
    if is_torchs(array):
        if array.device.type != "cpu":
            raise InvalidArgument(f"tensors[{name!r}]", "a tensor in host memory",
                                  f"one on {array.device}")
        return array.detach().contiguous().reshape(-1).view(sys.modules["torch"].uint8)
    import numpy

    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
