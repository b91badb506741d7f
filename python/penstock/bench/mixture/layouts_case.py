"""Cases of moe with weights in other layouts, with biases, and with a shared expert."""

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from ... import __version__, moe, route
from .._operator import Absent, Call, Context, Peer
from .arrays import Arrays
from .decode_case import FEWEST_SETS, DecodeCase
from .layer_case import LayerCase
from .shapes import Shape

PLAIN = "concatenated"
STORED = "as transformers stores it"
ALPHA, LIMIT = 1.702, 7.0  # of gpt-oss


class LayoutsCase(LayerCase):
    """The same weights in every layout, so that one reference serves all. The biases are zeros."""

    def make_inputs(self, rotation: int) -> Any:
        inputs = super().make_inputs(rotation)
        shape, gate_up, down = self._shape, inputs["gate_up"], inputs["down"]
        alternate = interleaved(gate_up)
        biases = {"gate_up_bias": self._zeros((shape.experts, 2 * shape.width)),
                  "down_bias": self._zeros((shape.experts, shape.hidden))}
        alternating = {"layout": "interleaved"}
        return {**inputs, "variants": {
            PLAIN: (gate_up, down, {}),
            "interleaved": (alternate, down, alternating),
            "transposed": (transposed(self._arrays, gate_up), transposed(self._arrays, down), {}),
            "transposed, interleaved": (transposed(self._arrays, alternate),
                                        transposed(self._arrays, down), alternating),
            "with biases": (gate_up, down, biases)}}

    def _zeros(self, size: tuple[int, ...]) -> Any:
        zeros = self._arrays.empty(size)
        zeros[:] = 0
        return zeros

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


class GptOssCase(DecodeCase):
    """Few tokens in a layer of gpt-oss, with biases and its clamped gate: with weights that lie as those of
    other models do, and as transformers stores them, transposed and interleaved."""

    def __init__(self, context: Context, name: str, shape: Shape,
                 arrays: Arrays | None = None) -> None:
        super().__init__(context, name, shape, arrays)
        self.fewest_sets = FEWEST_SETS  # each has the weights twice

    def make_inputs(self, rotation: int) -> Any:
        inputs, shape, normal = super().make_inputs(rotation), self._shape, self._arrays.normal
        # So large that some numbers are clamped.
        gate_up_bias = normal(self._random(rotation, 5), (shape.experts, 2 * shape.width), LIMIT / 2)
        down_bias = normal(self._random(rotation, 6), (shape.experts, shape.hidden), 1)
        gate_up, down = inputs["gate_up"], inputs["down"]
        return {**inputs, "gate_up_bias": gate_up_bias, "down_bias": down_bias, "variants": {
            PLAIN: (gate_up, down, {"gate_up_bias": gate_up_bias}),
            STORED: (transposed(self._arrays, interleaved(gate_up)), transposed(self._arrays, down),
                     {"gate_up_bias": interleaved(gate_up_bias), "layout": "interleaved"})}}

    def _activated(self, gate: Any, up: Any) -> Any:
        return self._arrays.silu(ALPHA * gate.clip(max=LIMIT)) / ALPHA * (up.clip(-LIMIT, LIMIT) + 1)

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        return {name: partial(self._variant, name=name) for name in (PLAIN, STORED)}

    def _variant(self, inputs: Any, out: Any, name: str) -> None:
        x = inputs["x"]
        gate_up, down, options = inputs["variants"][name]
        logits = self._arrays.project(x, inputs["router"])
        ids, weights = route(logits, self._shape.choices, renormalise=True)
        moe(x, gate_up, down, ids, weights, out=out, activation="clamped_swiglu", alpha=ALPHA,
            limit=LIMIT, down_bias=inputs["down_bias"], **options)

    def peers(self) -> Mapping[str, Peer | Absent]:
        return {}


class SharedCase(DecodeCase):
    """Few tokens in a layer with a shared expert, of the width of the others: in the call of moe(), and in
    a call of its own, whose result is added."""

    def __init__(self, context: Context, name: str, shape: Shape,
                 arrays: Arrays | None = None) -> None:
        super().__init__(context, name, shape, arrays)
        self.flop += 6 * shape.tokens * shape.hidden * shape.width

    @property
    def _experts_read(self) -> int:
        return super()._experts_read + 1

    def make_inputs(self, rotation: int) -> Any:
        inputs, shape, normal = super().make_inputs(rotation), self._shape, self._arrays.normal
        return {**inputs,
                "shared_gate_up": normal(self._random(rotation, 5), (2 * shape.width, shape.hidden),
                                         shape.hidden**-0.5),
                "shared_down": normal(self._random(rotation, 6), (shape.hidden, shape.width),
                                      shape.width**-0.5)}

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        return {PLAIN: self._in_one_call}

    def _in_one_call(self, inputs: Any, out: Any) -> None:
        ids, weights = self._route(inputs)
        moe(inputs["x"], inputs["gate_up"], inputs["down"], ids, weights, out=out,
            shared_gate_up=inputs["shared_gate_up"], shared_down=inputs["shared_down"])

    def _in_two_calls(self, inputs: Any, out: Any) -> None:
        x, (ids, weights) = inputs["x"], self._route(inputs)
        moe(x, inputs["gate_up"], inputs["down"], ids, weights, out=out)
        if "everyone" not in inputs:  # the shared expert is the only one, and all tokens have it
            inputs["everyone"] = 0 * ids[:, :1], 0 * weights[:, :1] + 1
        out += moe(x, inputs["shared_gate_up"][None], inputs["shared_down"][None], *inputs["everyone"])

    def _route(self, inputs: Any) -> tuple[Any, Any]:
        logits = self._arrays.project(inputs["x"], inputs["router"])
        ids, weights = route(logits, self._shape.choices, renormalise=True)
        return ids, weights

    def peers(self) -> Mapping[str, Peer | Absent]:
        return {"in two calls": Peer(__version__, self._in_two_calls, self._peer_tolerance)}


def interleaved(halves: Any) -> Any:
    """Gate 0, up 0, gate 1, up 1 and so on, along dimension 1."""
    experts, both, *rest = halves.shape
    return halves.reshape(experts, 2, both // 2, *rest).swapaxes(1, 2).reshape(halves.shape)


def transposed(arrays: Arrays, weights: Any) -> Any:
    """The same elements, with contiguous columns."""
    stored = arrays.empty((weights.shape[0], weights.shape[2], weights.shape[1]))
    stored[:] = weights.swapaxes(1, 2)
    return stored.swapaxes(1, 2)
