"""Experts in host memory that are compressed without loss, so that fewer bytes are copied to the GPU."""

import threading
from typing import Any

from . import _core
from ._check import not_negative
from ._dtypes import float_name
from ._errors import InvalidArgument
from ._experts import ExpertStore


class CompressedExpertStore:
    """The experts of all layers of a model in host memory, compressed as by :func:`compress`.

    The arguments are those of :class:`ExpertStore`; `dtype` must be bf16. Normally distributed weights
    take 0.67 of their bytes. :class:`StreamedExperts` copies the compressed bytes, and the GPU restores
    every bit.

    Memory is page-locked as experts are :meth:`set`, in pieces of up to 128 MiB: what the compressed
    experts need, and little more.

    >>> import numpy, penstock
    >>> store = penstock.CompressedExpertStore(layers=1, experts=2, hidden=8, width=8, device="cpu")
    >>> bits = numpy.full((16, 8), 0x3F80, numpy.uint16)  # NumPy has no bf16: these are ones
    >>> for expert in range(2):
    ...     store.set(0, expert, gate_up=bits, down=bits[:8])
    >>> store.complete
    True
    >>> store
    <penstock.CompressedExpertStore of 1 layers of 2 experts, bf16, 2 set>
    """

    def __init__(self, *, layers: int, experts: int, hidden: int, width: int, dtype: Any = "bf16",
                 layout: str = "concatenated", transposed: bool = False, bias: bool = False,
                 device: str | _core.Device | None = None) -> None:
        self.layers, self.experts, self.hidden, self.width = layers, experts, hidden, width
        self.dtype, self.layout = float_name(dtype), layout
        self.transposed, self.bias = transposed, bias
        self.device = _core.Device(device)
        self._shape = _core.ExpertShape(layers, experts, hidden, width, self.dtype, layout, transposed,
                                        bias)
        self._core = _core.CompressedExpertStore(self.device, self._shape)
        self._one = self._plain(1)
        self._filling = threading.Lock()

    def set(self, layer: int, expert: int, gate_up: Any, down: Any, gate_up_bias: Any = None,
            down_bias: Any = None) -> None:
        """Compresses an expert on all cores; blocks until done. Each expert is set once.

        `gate_up` is (2n, d) and `down` (d, n), whatever `layout` and `transposed` are; with `bias`,
        `gate_up_bias` is (2n) and `down_bias` (d). They are bf16 torch tensors in host memory, or NumPy
        arrays of the bits as uint16. Raises OutOfMemory if the memory cannot be locked.
        """
        parts = {"gate_up": gate_up, "down": down, "gate_up_bias": gate_up_bias, "down_bias": down_bias}
        with self._filling:
            for part, values in parts.items():
                if part.endswith("_bias") and not self.bias:
                    if values is not None:
                        raise InvalidArgument(part, "None, because the store has no biases", "an array")
                    continue
                _fill(self._one, part, values)
            self._set(layer, expert, self._one, 0)

    @property
    def count(self) -> int:
        """The number of experts that are set."""
        return self._core.count

    @property
    def complete(self) -> bool:
        """Whether all experts are set."""
        return self._core.complete

    @property
    def nbytes(self) -> int:
        """The bytes of the compressed experts so far."""
        return self._core.nbytes

    def least_bytes(self, *, pinned: int = 0, calls_in_flight: int = 64) -> int:
        """The least `device_bytes` of :class:`StreamedExperts` with these experts, `pinned` of them
        pinned."""
        return self._shape.least_bytes(not_negative("pinned", pinned),
                                       not_negative("calls_in_flight", calls_in_flight), True)

    def _plain(self, experts: int) -> ExpertStore:
        """Room for a few experts that are not compressed yet."""
        return ExpertStore(layers=1, experts=experts, hidden=self.hidden, width=self.width,
                           dtype=self.dtype, layout=self.layout, transposed=self.transposed,
                           bias=self.bias, device="cpu")

    def _set(self, layer: int, expert: int, plain: ExpertStore, number: int) -> None:
        """Compresses expert `number` of what _plain() returned."""
        self._core.set(layer, expert, plain._core, 0, number)

    def __repr__(self) -> str:
        return (f"<penstock.CompressedExpertStore of {self.layers} layers of {self.experts} experts, "
                f"{self.dtype}, {self.count} set>")


def _fill(plain: ExpertStore, part: str, values: Any) -> None:
    is_torch = type(values).__module__.partition(".")[0] == "torch"
    view = getattr(plain, part)(0, 0, like="torch" if is_torch else "numpy")
    if getattr(values, "dtype", None) != view.dtype or tuple(values.shape) != tuple(view.shape):
        given = f"{getattr(values, 'dtype', type(values).__name__)} {tuple(getattr(values, 'shape', ()))}"
        wanted = "bf16 torch tensor" if is_torch else "NumPy array of uint16"
        raise InvalidArgument(part, f"a {wanted} of shape {tuple(view.shape)}", given)
    if is_torch:
        view.copy_(values.detach())
    else:
        view[:] = values
