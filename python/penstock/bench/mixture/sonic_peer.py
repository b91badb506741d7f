"""SonicMoE, if the folder $PEERS holds its wheel and those it needs, unpacked."""

import os
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .._progress import Progress

NEEDED = "set PEERS to a folder with the unpacked wheels of sonic-moe and what it needs"


def version() -> str | None:
    """Its version, or None if it is not there. Puts its folder on the path, and imports nothing."""
    if "PEERS" not in os.environ:
        return None
    folder = Path(os.environ["PEERS"])
    _put_on_path([folder, folder / "nvidia_cutlass_dsl/python_packages"])
    if find_spec("sonicmoe") is None:
        return None
    info = next(folder.glob("sonic_moe-*.dist-info"), None)
    return "of unknown version" if info is None else info.name.split("-")[1].removesuffix(".dist")


def _put_on_path(folders: Iterable[Path]) -> None:
    new = [str(folder) for folder in folders if str(folder) not in sys.path]
    sys.path[:0] = new


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
