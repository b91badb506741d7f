"""The array libraries of the cases: NumPy with f32 on the CPU, torch with bf16 or f32 on any device.

Each has a wider type for references: f64 for f32, and f32 for bf16.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

from .._errors import BenchError
from .._operator import Context
from .._values import HALF_STEPS


class Arrays(ABC):
    dtype: str
    element: int  # bytes
    half_step: float  # the largest relative error of one rounding

    @abstractmethod
    def normal(self, random: Any, shape: tuple[int, ...], scale: float) -> Any:
        """Normally distributed numbers. `random` is NumPy's generator."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...]) -> Any: ...

    @abstractmethod
    def given(self, array: Any, dtype: str = "") -> Any:
        """A NumPy array as one of this library: with the type of the case, "wide" or "i64"."""

    @abstractmethod
    def wide(self, array: Any) -> Any:
        """In the type of references."""

    @abstractmethod
    def rounded(self, wide: Any) -> Any:
        """Rounded to the type of the case; the result is wide again."""

    @abstractmethod
    def silu(self, wide: Any) -> Any: ...

    @abstractmethod
    def on_host(self, array: Any) -> Any:
        """A NumPy array of f32."""

    @abstractmethod
    def project(self, x: Any, router: Any) -> Any:
        """The router's logits, x times the transposed matrix."""


class HostArrays(Arrays):
    dtype, element, half_step = "f32", 4, HALF_STEPS["f32"]

    def normal(self, random: Any, shape: tuple[int, ...], scale: float) -> Any:
        values = random.standard_normal(shape, dtype="f4")
        values *= scale
        return values

    def empty(self, shape: tuple[int, ...]) -> Any:
        import numpy

        return numpy.empty(shape, "f4")

    def given(self, array: Any, dtype: str = "") -> Any:
        return array.astype({"": "f4", "wide": "f8", "i64": "i8"}[dtype])

    def wide(self, array: Any) -> Any:
        return array.astype("f8")

    def rounded(self, wide: Any) -> Any:
        return wide.astype("f4").astype("f8")

    def silu(self, wide: Any) -> Any:
        import numpy

        return wide / (1 + numpy.exp(-wide))

    def on_host(self, array: Any) -> Any:
        return array

    def project(self, x: Any, router: Any) -> Any:
        return x @ router.T


class TorchArrays(Arrays):
    def __init__(self, device: str, dtype: str = "bf16") -> None:
        self._device, self.dtype = device, dtype
        self.element, self.half_step = {"bf16": 2, "f32": 4}[dtype], HALF_STEPS[dtype]

    @cached_property
    def _torch(self) -> Any:
        """Imported at first use, since cases are also listed where torch is missing."""
        try:
            import torch
        except ImportError:
            raise BenchError("this benchmark needs torch: pip install torch") from None
        return torch

    @cached_property
    def _own(self) -> Any:
        return self._torch.bfloat16 if self.dtype == "bf16" else self._torch.float32

    @cached_property
    def _wide(self) -> Any:
        return self._torch.float32 if self.dtype == "bf16" else self._torch.float64

    @cached_property
    def _linear(self) -> Any:
        return self._torch.nn.functional.linear

    def normal(self, random: Any, shape: tuple[int, ...], scale: float) -> Any:
        generator = self._torch.Generator(self._device)
        generator.manual_seed(int(random.integers(1 << 62)))
        return self.empty(shape).normal_(0, scale, generator=generator)

    def empty(self, shape: tuple[int, ...]) -> Any:
        return self._torch.empty(shape, dtype=self._own, device=self._device)

    def given(self, array: Any, dtype: str = "") -> Any:
        kinds = {"": self._own, "wide": self._wide, "i64": self._torch.int64}
        return self._torch.from_numpy(array).to(self._device, kinds[dtype])

    def wide(self, array: Any) -> Any:
        return array.to(self._wide)

    def rounded(self, wide: Any) -> Any:
        return wide.to(self._own).to(self._wide)

    def silu(self, wide: Any) -> Any:
        return self._torch.nn.functional.silu(wide)

    def on_host(self, array: Any) -> Any:
        return array.float().cpu().numpy()

    def project(self, x: Any, router: Any) -> Any:
        return self._linear(x, router)


def arrays_for(context: Context) -> Arrays:
    return HostArrays() if context.device.kind == "cpu" else TorchArrays(context.device.name)
