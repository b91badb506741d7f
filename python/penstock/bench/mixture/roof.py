"""What the roof of a layer is made of: calls that are timed beside it on a GPU.

It is a yardstick and no floor: a kernel may beat it.
"""

from collections.abc import Mapping
from typing import Any

from .._operator import Call
from .arrays import Arrays
from .load import Load
from .shapes import Shape

GEMMS, READ, ROUTER = "batched GEMMs", "read of the experts", "router projection"
MEANING = ("the router's projection; then both batched GEMMs over groups of equal size, times the rows "
           "padded to 64 per expert, or the read of the experts that are used, whichever takes longer; "
           "then the bytes of adding up, at the measured copy rate")
# Small batches are compared with the GEMMs' rate at this size, where it is best.
FEWEST_TOKENS = 16384


class BatchedGemms:
    """Both products of all experts, each with the same number of rows."""

    def __init__(self, arrays: Arrays, shape: Shape, random: Any) -> None:
        self._arrays, self._shape, self._random = arrays, shape, random
        tokens = max(shape.tokens, FEWEST_TOKENS)
        self.rows = -(-tokens * shape.choices // shape.experts)  # per expert
        self._buffers: Any = None

    def prepare(self, inputs: Any, outputs: Any) -> None:
        if self._buffers is None:
            shape, arrays = self._shape, self._arrays
            lead = shape.experts, self.rows
            self._buffers = (arrays.normal(self._random, (*lead, shape.hidden), 1),
                             arrays.empty((*lead, 2 * shape.width)),
                             arrays.normal(self._random, (*lead, shape.width), 1),
                             arrays.empty((*lead, shape.hidden)))

    def __call__(self, inputs: Any, outputs: Any) -> None:
        import torch

        x, gate_up, hidden, results = self._buffers
        torch.bmm(x, inputs["gate_up"].transpose(1, 2), out=gate_up)
        torch.bmm(hidden, inputs["down"].transpose(1, 2), out=results)


class Roof:
    """The parts that are timed, and the time that they add up to."""

    def __init__(self, arrays: Arrays, shape: Shape, random: Any) -> None:
        self._arrays, self._shape = arrays, shape
        self._gemms = BatchedGemms(arrays, shape, random)

    def parts(self) -> dict[str, Call]:
        return {GEMMS: self._gemms, READ: self._read, ROUTER: self._project}

    def us(self, ceilings: Mapping[str, float], parts_us: Mapping[str, float], load: Load) -> float:
        shape, element = self._shape, self._arrays.element
        copy = ceilings["device_copy"]
        experts = shape.experts * shape.expert_bytes(element)
        rate = max(experts / parts_us[READ] * 1e6, copy)  # bytes per second
        read_us = load.touched * shape.expert_bytes(element) / rate * 1e6
        gemms_us = parts_us[GEMMS] * load.padded_rows / (shape.experts * self._gemms.rows)
        return (max(gemms_us, read_us) + shape.combine_bytes(element) / copy * 1e6
                + parts_us[ROUTER])

    def _project(self, inputs: Any, outputs: Any) -> Any:
        return self._arrays.project(inputs["x"], inputs["router"])

    @staticmethod
    def _read(inputs: Any, outputs: Any) -> Any:
        """Sums of the weights, read as numbers of four bytes; their values do not matter."""
        import torch

        return [inputs[name].view(torch.float32).sum() for name in ("gate_up", "down")]
