"""Cases of gemm: products of random matrices."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

from ... import gemm
from ..._dtypes import SIZES
from .._captured import Captured
from .._fastest import Fastest, chosen
from .._operator import Absent, Call, Case, Context, Peer
from .._rotation import cache_bytes
from .._values import HALF_STEPS, dtype_on, empty, normal
from . import cublas_lt, torch_peer
from .large_product import PART, LargeProduct

MEANING = ("the multiply-adds at the rate that cuBLASLt reached in the same run for 8192 x 8192 x 8192, "
           "or the bytes at the measured copy rate, whichever takes longer")


@dataclass(frozen=True)
class Size:
    """The product of a (m, k) and the transpose of b (n, k)."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"


class GemmCase(Case):
    """Inputs are a (M, K) and b (N, K); b is scaled so that results are normally distributed, too."""

    def __init__(self, context: Context, name: str, size: Size) -> None:
        self.name = name
        self._context, self._size = context, size
        self._on_cpu = context.device.kind == "cpu"
        self._dtype = dtype_on(context, size.dtype)
        m, n, k = size.m, size.n, size.k
        self.params = asdict(size) | {"dtype": self._dtype}
        # One rounding of the result, and one of an f32 sum per product.
        self.tolerance = HALF_STEPS[self._dtype] + k * HALF_STEPS["f32"]
        self.bytes = SIZES[self._dtype] * (m * k + n * k + m * n)
        self.flop = 2 * m * n * k
        if not self._on_cpu:
            self.yardstick = MEANING

    def make_inputs(self, rotation: int) -> Any:
        m, n, k = self._size.m, self._size.n, self._size.k
        return (normal(self._context, [rotation, 0], (m, k), self._dtype),
                normal(self._context, [rotation, 1], (n, k), self._dtype, k**-0.5))

    def make_outputs(self, inputs: Any) -> Any:
        return empty(self._context, (self._size.m, self._size.n), self._dtype)

    def reference(self, inputs: Any) -> Any:
        a, b = inputs
        if self._on_cpu:
            return a.astype("f8") @ b.astype("f8").T
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cuBLASLt may leave a product of f64 to cuBLAS
            return a.double() @ b.double().t()

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        if self._on_cpu:
            return {"best": self._best}
        return {"best": self._best, "captured": Captured(self._best), "portable": self._portable}

    def kernels(self) -> Mapping[str, Call]:
        return self._kernels

    @staticmethod
    def _best(inputs: Any, out: Any) -> None:
        gemm(*inputs, out=out)

    @staticmethod
    def _portable(inputs: Any, out: Any) -> None:
        gemm(*inputs, out=out, kernel="portable")

    @cached_property
    def _peers(self) -> dict[str, Peer | Absent]:
        if self._on_cpu:
            import numpy

            return {"numpy": Peer(numpy.__version__, self._numpy)}
        import torch

        torch_peer.prefer_cublas_lt()
        # Its algorithms may add up parts of a sum that are rounded to the dtype of the result.
        tolerance = 4 * self.tolerance
        first = Peer(f"torch {torch.__version__}, workspace of 32 MiB", torch_peer.multiply, tolerance)
        return {"cuBLASLt": first, "cuBLASLt-best16": self._best_of(tolerance)}

    def peers(self) -> Mapping[str, Peer | Absent]:
        return self._peers

    def _best_of(self, tolerance: float) -> Peer | Absent:
        try:
            library = cublas_lt.of_torch()
        except OSError as error:
            return Absent(str(error))
        size = self._size
        ways = partial(cublas_lt.ways, library, size.m, size.n, size.k, self._dtype)
        return Peer(f"{library.version}, workspace of 32 MiB",
                    Fastest(ways, 2 * tolerance, cache_bytes(self._context.device)), tolerance)

    @staticmethod
    def _numpy(inputs: Any, out: Any) -> None:
        """In f32, since NumPy has no fast product of f16."""
        a, b = inputs
        out[:] = a.astype("f4") @ b.astype("f4").T

    @cached_property
    def _large(self) -> LargeProduct:
        return LargeProduct(self._context, self._dtype, torch_peer.multiply)

    def roof_parts(self) -> Mapping[str, Call]:
        return {} if self._on_cpu else {PART: self._large}

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        return self.bytes / ceilings["host_copy" if self._on_cpu else "device_copy"] * 1e6

    def roof_of_parts(self, ceilings: Mapping[str, float], parts_us: Mapping[str, float]) -> float:
        if self._on_cpu:
            return self.roof_us(ceilings)
        return max(self._large.us(parts_us[PART], self.flop), self.roof_us(ceilings))

    def more_metrics(self) -> dict[str, Any]:
        return chosen(self._peers)
