"""FlashAttention's kernels in CuTe DSL, if the folder $PEERS holds their wheels, unpacked."""

from typing import Any

from .. import _wheels
from .._progress import Progress
from .shapes import Shape

NEEDED = _wheels.needed("flash-attn-4")


def version() -> str | None:
    """Its version, or None if it is not there. Puts its folder on the path, and imports nothing."""
    return _wheels.version("flash_attn/cute", "flash_attn_4")


class FlashAttention:
    """Compiles at its first call with new options, which takes some seconds."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._function: Any = None
        self._options: dict[str, Any] = {"causal": shape.causal, "softcap": shape.softcap,
                                         "window_size": (shape.window, None)}
        if shape.packed:
            longest = max(shape.packed)
            self._options |= {"max_seqlen_q": longest, "max_seqlen_k": longest}

    def __call__(self, inputs: dict[str, Any], out: Any) -> Any:
        if self._function is None:
            self._load(inputs)
        return self._run(inputs)

    def _load(self, inputs: dict[str, Any]) -> None:
        import torch
        from flash_attn import cute  # type: ignore[import-not-found]

        self._function = cute.flash_attn_varlen_func if self._shape.packed else cute.flash_attn_func
        with Progress() as progress:
            progress.show("FlashAttention compiles for this shape")
            self._run(inputs)
            torch.cuda.synchronize()

    def _run(self, inputs: dict[str, Any]) -> Any:
        more = {"learnable_sink": inputs["sinks"]} if self._shape.sinks else {}
        if self._shape.packed:
            more |= {"cu_seqlens_q": inputs["begins"], "cu_seqlens_k": inputs["begins"]}
        result = self._function(inputs["q"], inputs["k"], inputs["v"], **self._options, **more)
        return result[0] if isinstance(result, tuple) else result
