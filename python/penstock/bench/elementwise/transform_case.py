"""Cases of transform: one elementwise function of large arrays."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ..._dtypes import SIZES
from .. import _cub
from .._compiled import NEEDS_TRITON, Compiled, has_triton
from .._device_copy import device_copy
from .._fastest import chosen
from .._operator import Absent, Call, Case, Context, Peer
from .._rotation import cache_bytes
from .._values import HALF_STEPS, dtype_on, empty, normal
from .functions import GELU, Function

PAGE = 4096  # elements; cudaMemcpy then has whole pages to copy
# Besides one rounding of the result: roundings in f32 of operands that may be larger than it, and
# exponentials that are as exact as 16 bits need.
SLACK = {"f32": 2.0**-19, "f16": 2.0**-13, "bf16": 2.0**-13}


class TransformCase(Case):
    """Inputs are a list of arrays, together of `input_bytes`, rounded down to whole pages."""

    def __init__(self, context: Context, name: str, function: Function, dtype: str, result: str,
                 input_bytes: int) -> None:
        self.name = name
        self._context, self._function = context, function
        self._on_cpu = context.device.kind == "cpu"
        self._dtype, self._result = (dtype_on(context, each) for each in (dtype, result))
        element = SIZES[self._dtype]
        self._elements = input_bytes // function.inputs // element // PAGE * PAGE
        self.params = {"elements": self._elements, "inputs": function.inputs, "dtype": self._dtype,
                       "result": self._result}
        self.tolerance = HALF_STEPS[self._result] + SLACK[self._result]
        self.bytes = self._elements * (function.inputs * element + SIZES[self._result])
        self.flop = function.flop * self._elements

    def make_inputs(self, rotation: int) -> Any:
        return [normal(self._context, [rotation, number], (self._elements,), self._dtype, 2)
                for number in range(self._function.inputs)]

    def make_outputs(self, inputs: Any) -> Any:
        return empty(self._context, (self._elements,), self._result)

    def reference(self, inputs: Any) -> Any:
        if self._on_cpu:
            return self._function.exact(*(each.astype("f8") for each in inputs))
        return self._function.torch(*(each.double() for each in inputs))

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        names = ["best"]
        if not self._on_cpu:
            hopper = self._context.device.capabilities["compute_capability"] == (9, 0)
            names += ["portable", *(["sm90"] if hopper else [])]
        return {name: self._function.ours(name) for name in names}

    def kernels(self) -> Mapping[str, Call]:
        return self._kernels

    @cached_property
    def _peers(self) -> dict[str, Peer | Absent]:
        if self._on_cpu:
            import numpy

            return {"numpy": Absent("NumPy has no error function") if self._function is GELU
                    else Peer(numpy.__version__, self._numpy)}
        import torch

        # torch's operations round after every step, to values that may be larger than the result.
        tolerance = 8 * self.tolerance
        cache = cache_bytes(self._context.device)
        return {"torch": Peer(torch.__version__, self._eager, tolerance),
                "torch.compile": Peer(torch.__version__, Compiled(self._fused), tolerance)
                if has_triton() else NEEDS_TRITON,
                "CUB": _cub.peer(self._function.name, [self._dtype, self._result],
                                 self._function.numbers, self.tolerance, cache),
                **device_copy(self.bytes, self._context.device.name, cache)}

    def peers(self) -> Mapping[str, Peer | Absent]:
        return self._peers

    def _numpy(self, inputs: Any, out: Any) -> None:
        out[:] = self._function.exact(*(each.astype("f4", copy=False) for each in inputs))

    def _eager(self, inputs: Any, out: Any) -> Any:
        if self._dtype != self._result:
            out.copy_(inputs[0])
            return None
        return self._function.torch(*inputs)

    def _fused(self, inputs: Any, out: Any) -> None:
        out.copy_(self._function.torch(*inputs))

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        return self.bytes / ceilings["host_copy" if self._on_cpu else "device_copy"] * 1e6

    def more_metrics(self) -> dict[str, Any]:
        return chosen(self._peers)
