"""Cases of moe_rounding: a layer whose routes are rounded to whole tiles, beside the same layer as it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ... import __version__, moe, round_routes, route
from ..._round_routes import usual_extra
from .._operator import Absent, Call, Context, Peer, Yardstick
from .layer_case import SAMPLE, LayerCase
from .load import Load
from .shapes import Shape


@dataclass(frozen=True)
class RoundedLoad(Load):
    """The routing after rounding. Places without an expert have id E and weight 0."""

    shares: Any  # (T, K + extra), the weights
    changes: Any  # (E)

    def weights(self, tokens: Any) -> Any:
        return self.shares[tokens].astype("f8")

    @cached_property
    def counts(self) -> Any:
        import numpy

        return numpy.bincount(self.ids[self.shares != 0], minlength=self.logits.shape[1])


class RoundedCase(LayerCase):
    def __init__(self, context: Context, name: str, shape: Shape, tile: int) -> None:
        super().__init__(context, f"{name}, tile {tile}", shape)
        self._tile = tile
        self.params = {**self.params, "tile": tile, "extra": usual_extra(shape.choices, shape.experts)}

    @cached_property
    def load(self) -> RoundedLoad:
        tokens = self._tokens(0)
        logits = self._arrays.on_host(self._arrays.project(tokens["x"], tokens["router"]))
        ids, weights, changes = self._rounded(logits)
        return RoundedLoad(logits, ids, weights, changes)

    @cached_property
    def _sample(self) -> Any:
        """Every choice is exact: CPU and GPU round the same logits to the same bits."""
        import numpy

        return numpy.linspace(0, self._shape.tokens - 1, min(SAMPLE, self._shape.tokens)).astype(int)

    def _rounded(self, logits: Any) -> Any:
        ids, weights = route(logits, self._shape.choices, renormalise=True)
        return round_routes(logits, ids, weights, tile=self._tile)

    def kernels(self) -> Mapping[str, Call]:
        return {"rounded": self._rounded_layer}

    def _rounded_layer(self, inputs: Any, out: Any) -> None:
        x = inputs["x"]
        ids, weights, _ = self._rounded(self._arrays.project(x, inputs["router"]))
        moe(x, inputs["gate_up"], inputs["down"], ids, weights, out=out)

    def peers(self) -> Mapping[str, Peer | Absent]:
        return {"not rounded": Yardstick(__version__, self._layer),
                "rounded before": Yardstick(__version__, self._moe_alone)}

    def _moe_alone(self, inputs: Any, out: Any) -> None:
        """Without the time of rounding: the routes are computed at the first call."""
        x = inputs["x"]
        logits = self._arrays.project(x, inputs["router"])
        route(logits, self._shape.choices, renormalise=True)
        if "rounded" not in inputs:
            inputs["rounded"] = self._rounded(logits)[:2]
        moe(x, inputs["gate_up"], inputs["down"], *inputs["rounded"], out=out)

    def more_metrics(self) -> dict[str, Any]:
        return super().more_metrics() | {
            "changed_share": round(float(abs(self.load.changes).sum()) / self._shape.rows, 4),
            "experts_rounded_up": int((self.load.changes > 0).sum()),
            "experts_rounded_down": int((self.load.changes < 0).sum())}
