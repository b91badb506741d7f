"""The algorithms that cuBLASLt's heuristic offers for a product, run by the library that torch brings."""

import ctypes
from collections.abc import Mapping
from functools import cache, cached_property, partial
from typing import Any

from .._errors import BenchError
from .._operator import Call
from .torch_peer import WORKSPACE_BYTES

MOST_ALGORITHMS = 16

# Of cublasLt.h, cublas_api.h and library_types.h.
COMPUTE_32F, OP_T, DESC_TRANSA, PREF_MAX_WORKSPACE_BYTES = 68, 1, 3, 1
F32 = 0
TYPES = {"f16": 2, "bf16": 14}


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [("algorithm", ctypes.c_uint64 * 8), ("workspace_bytes", ctypes.c_size_t),
                ("state", ctypes.c_int), ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


class CublasLt:
    """The library, and a workspace of 32 MiB. What is made here stays until the process ends."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._workspace: Any = None

    @cached_property
    def handle(self) -> ctypes.c_void_p:
        return self._made("cublasLtCreate")

    @property
    def version(self) -> str:
        self._library.cublasLtGetVersion.restype = ctypes.c_size_t
        return str(self._library.cublasLtGetVersion())

    def workspace(self, device: Any) -> int:
        """Its address."""
        if self._workspace is None:
            import torch

            self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        return int(self._workspace.data_ptr())

    def call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            raise BenchError(f"{function}: status {status}")

    def descriptor(self, m: int, n: int, k: int, dtype: str) -> dict[str, Any]:
        """The product out (m, n) = a (m, k) times the transposed b (n, k).

        The library stores matrices by columns, so it computes the transposed result: b times the
        transposed a.
        """
        product = self._made("cublasLtMatmulDescCreate", ctypes.c_int(COMPUTE_32F), ctypes.c_int(F32))
        transposed = ctypes.c_int32(OP_T)
        self.call("cublasLtMatmulDescSetAttribute", product, ctypes.c_int(DESC_TRANSA),
                  ctypes.byref(transposed), ctypes.c_size_t(ctypes.sizeof(transposed)))
        layouts = {name: self._made("cublasLtMatrixLayoutCreate", ctypes.c_int(TYPES[dtype]),
                                    ctypes.c_uint64(rows), ctypes.c_uint64(columns),
                                    ctypes.c_int64(rows))
                   for name, rows, columns in (("a", k, m), ("b", k, n), ("out", n, m))}
        return layouts | {"product": product}

    def algorithms(self, of: Mapping[str, Any]) -> list[HeuristicResult]:
        """The best guess of the heuristic first."""
        preference = self._made("cublasLtMatmulPreferenceCreate")
        size = ctypes.c_size_t(WORKSPACE_BYTES)
        self.call("cublasLtMatmulPreferenceSetAttribute", preference,
                  ctypes.c_int(PREF_MAX_WORKSPACE_BYTES), ctypes.byref(size),
                  ctypes.c_size_t(ctypes.sizeof(size)))
        found, count = (HeuristicResult * MOST_ALGORITHMS)(), ctypes.c_int()
        self.call("cublasLtMatmulAlgoGetHeuristic", self.handle, of["product"], of["b"], of["a"],
                  of["out"], of["out"], preference, ctypes.c_int(MOST_ALGORITHMS), found,
                  ctypes.byref(count))
        self.call("cublasLtMatmulPreferenceDestroy", preference)
        return [each for each in found[:count.value] if each.state == 0]

    def _made(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        """The object that a cublasLt...Create function makes."""
        made = ctypes.c_void_p()
        self.call(function, ctypes.byref(made), *arguments)
        return made


@cache
def of_torch() -> CublasLt:
    """Raises OSError if torch has loaded no cuBLASLt."""
    import torch

    major = str(torch.version.cuda).split(".")[0]
    return CublasLt(ctypes.CDLL(f"libcublasLt.so.{major}"))


def ways(library: CublasLt, m: int, n: int, k: int, dtype: str) -> dict[str, Call]:
    """One call per algorithm. Raises BenchError if there is none."""
    of = library.descriptor(m, n, k, dtype)
    found = library.algorithms(of)
    if not found:
        raise BenchError(f"cuBLASLt offers no algorithm for {m} x {n} x {k}")
    return {f"algorithm {number}": partial(_run, library, of, each.algorithm)
            for number, each in enumerate(found)}


def _run(library: CublasLt, of: Mapping[str, Any], algorithm: Any, inputs: Any, out: Any) -> None:
    import torch

    a, b = inputs
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    address = ctypes.c_void_p
    stream = torch.cuda.current_stream(out.device).cuda_stream
    to = address(out.data_ptr())
    library.call("cublasLtMatmul", library.handle, of["product"], ctypes.byref(one),
                 address(b.data_ptr()), of["b"], address(a.data_ptr()), of["a"], ctypes.byref(zero),
                 to, of["out"], to, of["out"], ctypes.byref(algorithm),
                 address(library.workspace(out.device)), ctypes.c_size_t(WORKSPACE_BYTES),
                 address(stream))
