"""Arrays for results, of the library that the caller uses."""

from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

from .. import _core
from .._errors import InvalidArgument, Unsupported
from .._memory import empty

_NUMPY = {"f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32",
          "u8": "uint8", "bool": "bool"}
_TORCH = {**_NUMPY, "bf16": "bfloat16"}


class Results:
    """Creates NumPy, torch or Penstock arrays on a device."""

    def __init__(self, like: str | None, device: _core.Device, types: set[str]) -> None:
        if like not in (None, "numpy", "torch", "penstock"):
            raise InvalidArgument("like", "'numpy', 'torch' or 'penstock'", repr(like))
        gpu = device.kind != "cpu"
        if like is None:
            like = "torch" if find_spec("torch") else "penstock" if gpu else "numpy"
        if like == "torch" and not find_spec("torch"):
            raise Unsupported("like='torch' needs torch: pip install torch")
        if like == "numpy" and (gpu or "bf16" in types):
            where = f"on {device.name}" if gpu else "for bf16"
            raise InvalidArgument("like", f"'torch' or 'penstock' {where}", "'numpy'")
        self.like, self._device = like, device

    def on(self, stream: _core.Stream) -> Any:
        """torch memory belongs to a stream, which must be the one that first writes to it."""
        if self.like != "torch" or self._device.kind == "cpu":
            return nullcontext()
        import torch

        return torch.cuda.stream(stream.torch())

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        if self.like == "torch":
            import torch

            return torch.empty(shape, dtype=getattr(torch, _TORCH[dtype]), device=self._device.name)
        if self.like == "numpy":
            import numpy

            return numpy.empty(shape, _NUMPY[dtype])
        memory = "pinned" if self._device.kind == "cpu" else "device"
        return empty(shape, dtype, memory=memory, device=self._device)

    def taken(self, arrays: list[Any]) -> None:
        """Called by the caller's thread: torch must not reuse the memory before its stream is done."""
        if self.like == "torch" and self._device.kind != "cpu":
            import torch

            for array in arrays:
                array.record_stream(torch.cuda.current_stream(array.device))
