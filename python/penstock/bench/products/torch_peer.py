"""Matrix products by torch, which is told to call cuBLASLt with a workspace of 32 MiB.

torch then asks cuBLASLt's heuristic for one algorithm and runs it. This needs three settings:
torch.backends.cuda.preferred_blas_library, since torch calls cuBLAS otherwise; CUBLASLT_WORKSPACE_SIZE,
in KiB; and TORCH_CUBLASLT_UNIFIED_WORKSPACE, without which newer versions limit that workspace to the
size of the one of cuBLAS. torch reads the variables when it first calls the library.
"""

import os
import warnings
from typing import Any

WORKSPACE_BYTES = 32 << 20
SETTINGS = {"CUBLASLT_WORKSPACE_SIZE": str(WORKSPACE_BYTES >> 10),
            "TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0"}
FALLBACK = ".*calling cublas instead.*"  # torch's warning if cuBLASLt failed


def prefer_cublas_lt() -> None:
    """For the whole process, in which nothing else is measured."""
    import torch

    os.environ.update(SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the function is marked as experimental
        torch.backends.cuda.preferred_blas_library("cublaslt")
    # A product by cuBLAS would be timed under the wrong name.
    warnings.filterwarnings("error", message=FALLBACK)


def multiply(inputs: Any, out: Any) -> None:
    import torch

    a, b = inputs
    torch.mm(a, b.t(), out=out)
