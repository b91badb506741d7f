"""SonicMoE, if the folder $PEERS holds its wheel and those it needs, unpacked."""

from typing import Any

from .. import _wheels
from .._progress import Progress

NEEDED = _wheels.needed("sonic-moe")


def version() -> str | None:
    """Its version, or None if it is not there. Puts its folder on the path, and imports nothing."""
    return _wheels.version("sonicmoe", "sonic_moe")


class SonicLayer:
    """Compiles and tunes at its first call with a new shape, which takes up to two minutes."""

    def __init__(self, choices: int) -> None:
        self._choices = choices
        self._layer: Any = None

    def __call__(self, inputs: dict[str, Any], out: Any) -> Any:
        if self._layer is None:
            self._load(inputs)
        return self._run(inputs)

    def _load(self, inputs: dict[str, Any]) -> None:
        import torch
        from sonicmoe.enums import ActivationType  # type: ignore[import-not-found]
        from sonicmoe.functional import (  # type: ignore[import-not-found]
            moe_TC_softmax_topk_layer)

        self._torch, self._activation = torch, ActivationType.SWIGLU
        self._layer = moe_TC_softmax_topk_layer
        with Progress() as progress:
            progress.show("SonicMoE compiles for this shape, up to two minutes")
            self._run(inputs)
            torch.cuda.synchronize()

    def _run(self, inputs: dict[str, Any]) -> Any:
        """Inference; the weights as it wants them, gate and up one after the other."""
        stream = self._torch.cuda.current_stream().cuda_stream
        with self._torch.no_grad():
            return self._layer(
                inputs["x"], inputs["router"], inputs["gate_up"].permute(1, 2, 0), None,
                inputs["down"].permute(1, 2, 0), None, self._choices, stream, self._activation, True,
                concat_layout=True)[0]
