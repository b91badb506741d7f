"""Cases of moe with weights in other layouts, and with biases."""

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from ... import moe, route
from .._operator import Absent, Call, Peer
from .layer_case import LayerCase

PLAIN = "concatenated"


class LayoutsCase(LayerCase):
    """The same weights in every layout, so that one reference serves all. The biases are zeros."""

    def make_inputs(self, rotation: int) -> Any:
        inputs = super().make_inputs(rotation)
        shape, gate_up, down = self._shape, inputs["gate_up"], inputs["down"]
        halves = gate_up.reshape(shape.experts, 2, shape.width, shape.hidden)
        interleaved = halves.swapaxes(1, 2).reshape(gate_up.shape)
        biases = {"gate_up_bias": self._zeros((shape.experts, 2 * shape.width)),
                  "down_bias": self._zeros((shape.experts, shape.hidden))}
        alternating = {"layout": "interleaved"}
        return {**inputs, "variants": {
            PLAIN: (gate_up, down, {}),
            "interleaved": (interleaved, down, alternating),
            "transposed": (self._transposed(gate_up), self._transposed(down), {}),
            "transposed, interleaved": (self._transposed(interleaved), self._transposed(down), alternating),
            "with biases": (gate_up, down, biases)}}

    def _zeros(self, size: tuple[int, ...]) -> Any:
        zeros = self._arrays.empty(size)
        zeros[:] = 0
        return zeros

    def _transposed(self, weights: Any) -> Any:
        """The same elements, with contiguous columns."""
        stored = self._arrays.empty((weights.shape[0], weights.shape[2], weights.shape[1]))
        stored[:] = weights.swapaxes(1, 2)
        return stored.swapaxes(1, 2)

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        names = PLAIN, "interleaved", "transposed", "transposed, interleaved", "with biases"
        return {name: partial(self._variant, name=name) for name in names}

    def _variant(self, inputs: Any, out: Any, name: str) -> None:
        x = inputs["x"]
        gate_up, down, options = inputs["variants"][name]
        logits = self._arrays.project(x, inputs["router"])
        ids, weights = route(logits, self._shape.choices, renormalise=True)
        moe(x, gate_up, down, ids, weights, out=out, **options)

    def peers(self) -> Mapping[str, Peer | Absent]:
        return {}
