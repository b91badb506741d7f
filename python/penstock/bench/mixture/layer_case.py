"""Cases of moe: the forward of a whole layer, from the router's projection to the sum."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from math import pi, sqrt
from typing import Any

from ... import moe, moe_workspace_bytes, route
from .._captured import Captured
from .._operator import Absent, Call, Case, Context, Peer
from . import numpy_peer, reference, sonic_peer
from .arrays import Arrays, arrays_for
from .load import Load, log_popularity
from .roof import MEANING, Roof
from .shapes import Shape

SAMPLE = 256  # tokens that are compared with the reference
# Larger than any result, and smaller than the poison: what is not below it was never written.
LARGEST = 2.0**20
GUMBEL = pi / sqrt(6)  # standard deviation of Gumbel noise


class LayerCase(Case):
    """Inputs are a dict of x (T, d), router (E, d), gate_up (E, 2n, d) and down (E, d, n).

    The choice is a softmax over the logits, the K largest, renormalised. All columns compute the same
    projection, with the logits in the dtype of x. Tokens whose choice depends on rounding are not
    compared; every element of the result must have been written.
    """

    most_enqueued = 40  # a call of the torch peer launches about twenty kernels

    def __init__(self, context: Context, name: str, shape: Shape,
                 arrays: Arrays | None = None) -> None:
        self.name = name
        self._context, self._shape = context, shape
        self._on_cpu = context.device.kind == "cpu"
        self._arrays = arrays or arrays_for(context)
        self.params = asdict(shape) | {"dtype": self._arrays.dtype}
        self.bytes = shape.least_bytes(self._arrays.element)
        self.flop = shape.flop
        self.tolerance = self._peer_tolerance = 0.0  # set by the reference
        if not self._on_cpu:
            self.yardstick = MEANING

    def make_inputs(self, rotation: int) -> Any:
        shape, normal = self._shape, self._arrays.normal
        return {**self._tokens(rotation),
                "gate_up": normal(self._random(rotation, 2),
                                  (shape.experts, 2 * shape.width, shape.hidden),
                                  shape.hidden**-0.5),
                "down": normal(self._random(rotation, 3),
                               (shape.experts, shape.hidden, shape.width), shape.width**-0.5)}

    def _tokens(self, rotation: int) -> dict[str, Any]:
        """The tokens and the router's matrix, and so the load of the experts."""
        shape, normal = self._shape, self._arrays.normal
        x = normal(self._random(rotation, 0), (shape.tokens, shape.hidden), 1)
        random = self._random(rotation, 1)
        # With Gumbel noise, the largest sums of noise and log-popularity are a draw by popularity.
        # Normal noise of the same variance comes close.
        scale = (GUMBEL if shape.zipf else 1) * shape.hidden**-0.5
        router = normal(random, (shape.experts, shape.hidden), scale)
        if shape.zipf:
            x[:, 0] = 1
            router[:, 0] = self._arrays.given(log_popularity(random, shape.experts, shape.zipf))
        return {"x": x, "router": router}

    def _random(self, rotation: int, part: int) -> Any:
        import numpy

        return numpy.random.default_rng([self._context.seed, rotation, part])

    def make_outputs(self, inputs: Any) -> Any:
        return self._arrays.empty((self._shape.tokens, self._shape.hidden))

    @cached_property
    def load(self) -> Load:
        """The routing of the first set of inputs."""
        return self._load_of(self._tokens(0))

    def _load_of(self, tokens: dict[str, Any]) -> Load:
        logits = self._arrays.project(tokens["x"], tokens["router"])
        return Load.of(self._arrays.on_host(logits), self._shape.choices)

    @cached_property
    def _sample(self) -> Any:
        return self.load.clear_tokens(SAMPLE)

    def compared(self, result: Any) -> Any:
        unwritten = ~(abs(result) < LARGEST)  # true for NaN
        return [result[self._arrays.given(self._sample, "i64")], unwritten.sum()]

    def reference(self, inputs: Any) -> Any:
        import numpy

        exact, rounded = reference.of_tokens(self._arrays, inputs, self.load, self._sample,
                                             self._activated)
        self.tolerance = reference.tolerance(self._arrays, self._shape, exact, rounded)
        # Peers also round the weights, each product with them, and every step of the sum.
        self._peer_tolerance = self.tolerance + (
            (self._shape.choices + 2) * self._arrays.half_step * float(abs(exact).max()))
        return [exact, numpy.zeros((), "i8")]

    def _activated(self, gate: Any, up: Any) -> Any:
        return self._arrays.silu(gate) * up

    def error(self, got: Any, wanted: Any) -> Any:
        return abs(got - wanted)

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        if self._on_cpu:
            return {"best": self._layer}
        return {"best": self._layer, "captured": Captured(self._layer),
                "sequential": self._sequential}

    def kernels(self) -> Mapping[str, Call]:
        return self._kernels

    def _layer(self, inputs: Any, out: Any, kernel: str = "best") -> None:
        x = inputs["x"]
        logits = self._arrays.project(x, inputs["router"])
        ids, weights = route(logits, self._shape.choices, renormalise=True)
        moe(x, inputs["gate_up"], inputs["down"], ids, weights, out=out, kernel=kernel)

    def _sequential(self, inputs: Any, out: Any) -> None:
        """Without overlap inside the products, to show what it gains."""
        self._layer(inputs, out, "sequential")

    @cached_property
    def _others(self) -> dict[str, tuple[str, Call] | Absent]:
        """Version and call of each peer."""
        choices = self._shape.choices
        if self._on_cpu:
            import numpy

            return {"numpy": (numpy.__version__, numpy_peer.NumpyLayer(choices))}
        import torch

        from . import torch_peer

        sonic = sonic_peer.version()
        return {"torch": (torch.__version__, torch_peer.TorchLayer(choices))
                if torch_peer.is_there() else Absent(torch_peer.MISSING),
                "SonicMoE": Absent(sonic_peer.NEEDED) if sonic is None
                else (sonic, sonic_peer.SonicLayer(choices))}

    def peers(self) -> Mapping[str, Peer | Absent]:
        return {name: other if isinstance(other, Absent) else Peer(*other, self._peer_tolerance)
                for name, other in self._others.items()}

    @cached_property
    def _roof(self) -> Roof:
        return Roof(self._arrays, self._shape, self._random(0, 4))

    def roof_parts(self) -> Mapping[str, Call]:
        return {} if self._on_cpu else self._roof.parts()

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        return self.bytes / ceilings["host_copy"] * 1e6

    def roof_of_parts(self, ceilings: Mapping[str, float], parts_us: Mapping[str, float]) -> float:
        if self._on_cpu:
            return self.roof_us(ceilings)
        return self._roof.us(ceilings, parts_us, self.load)

    def more_metrics(self) -> dict[str, Any]:
        shape, load = self._shape, self.load
        return {"padded_share": round(1 - shape.rows / load.padded_rows, 4),
                "padded_rows": load.padded_rows,
                "experts_touched": load.touched,
                "workspace_bytes": self._workspace_bytes(),
                "workspace_bound": shape.workspace_bound(self._arrays.element),
                "load": load.counts.tolist()}

    def _workspace_bytes(self) -> int:
        """Of a call with i32 ids, as route() makes them. Only shapes and dtypes are read."""
        shape = self._shape
        x = self._arrays.empty((shape.tokens, shape.hidden))
        gate_up = self._arrays.empty((shape.experts, 2 * shape.width, shape.hidden))
        logits = self._arrays.empty((shape.tokens, shape.experts))
        return moe_workspace_bytes(x, gate_up, route(logits, shape.choices)[0])
