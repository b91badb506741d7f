"""Cases of moe with few tokens: reading the weights takes most of the time."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ... import moe, route
from .._captured import Captured
from .._device_read import DeviceRead
from .._errors import BenchError
from .._operator import Call, Case, Context
from .._rotation import cache_bytes
from .arrays import Arrays
from .layer_case import LayerCase
from .shapes import Shape

READ = "read of the experts"
GIVEN = "given logits"  # a kernel
SETS, FEWEST_SETS = 4, 2
MOST_BYTES = 100 << 30  # of all sets together
DRAWS = 100


class DecodeCase(LayerCase):
    """Several sets of weights, used in turn, so that no expert is in the cache when it is read again.

    The tokens are the same in all sets, and so are the experts that they choose: the floor is the read
    of the weights of these experts.
    """

    def __init__(self, context: Context, name: str, shape: Shape,
                 arrays: Arrays | None = None) -> None:
        super().__init__(context, name, shape, arrays)
        self.yardstick = Case.yardstick
        weights = shape.experts * shape.expert_bytes(self._arrays.element)
        self.fewest_sets = max(FEWEST_SETS, min(SETS, MOST_BYTES // weights))

    def _tokens(self, rotation: int) -> dict[str, Any]:
        return super()._tokens(self._draw)

    @cached_property
    def _draw(self) -> int:
        """The first draw of random tokens of which at least half can be compared with the reference."""
        for draw in range(DRAWS):
            clear = self._load_of(super()._tokens(draw)).clear_tokens(self._shape.tokens)
            if 2 * len(clear) >= self._shape.tokens:
                return draw
        raise BenchError(f"{self.name}: in {DRAWS} draws of random tokens, the choice of experts depended "
                         "on rounding for more than half of the tokens")

    @property
    def _experts_read(self) -> int:
        return self.load.touched

    def reference(self, inputs: Any) -> Any:
        self.bytes = self._shape.touched_bytes(self._experts_read, self._arrays.element)
        return super().reference(inputs)

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        if self._on_cpu:
            return {"best": self._layer, GIVEN: self._of_logits}
        return {"best": self._layer, "captured": Captured(self._layer), GIVEN: self._of_logits}

    def _of_logits(self, inputs: Any, out: Any) -> None:
        """Without the router's projection: the logits are computed at the first call."""
        if "logits" not in inputs:
            inputs["logits"] = self._arrays.project(inputs["x"], inputs["router"])
        ids, weights = route(inputs["logits"], self._shape.choices, renormalise=True)
        moe(inputs["x"], inputs["gate_up"], inputs["down"], ids, weights, out=out)

    @cached_property
    def _read(self) -> DeviceRead:
        device = self._context.device
        experts = self._experts_read * self._shape.expert_bytes(self._arrays.element)
        return DeviceRead(experts, device.name, cache_bytes(device))

    def engines(self) -> Mapping[str, Call]:
        return {} if self._on_cpu else {READ: self._read}

    def roof_parts(self) -> Mapping[str, Call]:
        return {}

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        return self.bytes / ceilings["host_copy" if self._on_cpu else "device_copy"] * 1e6

    def roof_of_parts(self, ceilings: Mapping[str, float], parts_us: Mapping[str, float]) -> float:
        return self.roof_us(ceilings)
