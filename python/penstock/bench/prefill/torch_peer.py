"""torch's scaled_dot_product_attention, with one of its backends and no other."""

from typing import Any

import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from .._errors import BenchError
from .._operator import Absent
from .shapes import Shape

# The switches of torch.backends.cuda, of which one is on. They also hold on the CPU.
SWITCHES = {"cuDNN": "enable_cudnn_sdp", "flash": "enable_flash_sdp",
            "efficient": "enable_mem_efficient_sdp", "math": "enable_math_sdp"}
# How the names begin of the operators that run the backends.
OPERATORS = {"cuDNN": "aten._scaled_dot_product_cudnn_attention",
             "flash": "aten._scaled_dot_product_flash_attention",
             "efficient": "aten._scaled_dot_product_efficient_attention"}
_enabled = ""


def enable_only(backend: str) -> None:
    """For the whole process, in which nothing else uses the function. The context manager sdpa_kernel
    would cost host time in every call."""
    global _enabled
    if _enabled != backend:
        for name, switch in SWITCHES.items():
            getattr(torch.backends.cuda, switch)(name == backend)
        _enabled = backend


def reason_against(shape: Shape) -> Absent | None:
    """Why the function cannot compute this shape, or None if it can."""
    if shape.packed or shape.keys_of:
        return Absent("scaled_dot_product_attention takes sequences of one length")
    if shape.window is not None or shape.softcap or shape.sinks:
        return Absent("scaled_dot_product_attention has no window, softcap or sinks")
    if shape.causal and shape.keys not in (0, shape.length):
        return Absent("scaled_dot_product_attention has the causal mask of the first keys")
    return None


def version(backend: str) -> str:
    cudnn = f", cuDNN {torch.backends.cudnn.version()}" if backend == "cuDNN" else ""
    return f"torch {torch.__version__}{cudnn}"


class Operators(TorchDispatchMode):  # type: ignore[misc]
    """Notes the names of all operators that run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class TorchAttention:
    """Raises BenchError at the first call if torch runs something else than the backend."""

    def __init__(self, shape: Shape, backend: str) -> None:
        self._options = {"is_causal": shape.causal, "enable_gqa": shape.kv_heads != shape.heads}
        self._backend, self._verified = backend, False

    def __call__(self, inputs: dict[str, Any], out: Any) -> Any:
        enable_only(self._backend)
        tensors = [torch.as_tensor(inputs[name]).transpose(1, 2) for name in ("q", "k", "v")]
        if not self._verified:
            self._verify(tensors)
        return functional.scaled_dot_product_attention(*tensors, **self._options).transpose(1, 2)

    def _verify(self, tensors: list[Any]) -> None:
        with Operators() as seen:
            functional.scaled_dot_product_attention(*tensors, **self._options)
        if not any(name.startswith(OPERATORS[self._backend]) for name in seen.names):
            fused = [name for name in seen.names if name.startswith("aten._scaled_dot_product_")]
            raise BenchError(f"torch ran {fused[0] if fused else 'no fused operator'} and not "
                             f"{self._backend}")
        self._verified = True
