"""CUB's DeviceTransform as a peer: CUB is a header library, so this needs one that the build makes.

PENSTOCK_CUB names the file, which the preset gpu builds as build/gpu/bin/libpenstock_cub.so.
"""

import ctypes
import os
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from ._arrays import arrays_in
from ._errors import BenchError
from ._fastest import Fastest
from ._operator import Absent, Call, Peer

VARIABLE = "PENSTOCK_CUB"
NEEDED = (f"{VARIABLE} must name the library with CUB's kernels: cmake --build --preset gpu --target "
          "penstock_cub makes build/gpu/bin/libpenstock_cub.so")
UNKNOWN = -1  # returned for a function that the library does not have


@cache
def _library(path: str) -> Any:
    library = ctypes.CDLL(path)
    library.penstock_cub_version.restype = ctypes.c_char_p
    return library


def peer(function: str, dtypes: Sequence[str], numbers: Mapping[str, float], tolerance: float,
         memory_cache: int) -> Peer | Absent:
    """The faster of two ways to call it: on elements, and on vectors of 16 bytes."""
    path = os.environ.get(VARIABLE, "")
    if not path:
        return Absent(NEEDED)
    try:
        library = _library(path)
    except OSError as error:
        return Absent(f"{VARIABLE}: {error}")

    def find_ways() -> dict[str, Call]:
        return {name: partial(_run, library, function, " ".join(dtypes), numbers, vectors)
                for name, vectors in (("elements", False), ("vectors", True))}

    return Peer(library.penstock_cub_version().decode(),
                Fastest(find_ways, 2 * tolerance, memory_cache), tolerance)


def _run(library: Any, function: str, dtypes: str, numbers: Mapping[str, float], vectors: bool,
         inputs: Any, out: Any) -> None:
    import torch

    address = ctypes.c_void_p
    arrays = [each.data_ptr() for each in arrays_in(inputs)]
    given = (address * len(arrays))(*arrays)
    status = library.penstock_cub_transform(
        function.encode(), dtypes.encode(), ctypes.c_bool(vectors), given, address(out.data_ptr()),
        ctypes.c_size_t(out.numel()), ctypes.c_float(numbers.get("factor", numbers.get("a", 1))),
        ctypes.c_float(numbers.get("b", 1)),
        address(torch.cuda.current_stream(out.device).cuda_stream))
    if status == UNKNOWN:
        raise BenchError(f"{VARIABLE}: the library has no {function} of {dtypes}")
    if status != 0:
        raise BenchError(f"cub::DeviceTransform: CUDA error {status}")
