"""moe_rounding: what rounding the routes to whole tiles gains, and how many it changes."""

from .._operator import Case, Context, Operator
from ..mixture.rounding_case import RoundedCase
from ..mixture.shapes import Shape
from .moe import SHAPES

QUICK = {"small": Shape(200, 64, 40, 8, 2)}


class MoeRounding(Operator):
    name = "moe_rounding"
    summary = "a layer whose routes are rounded to whole tiles"

    def cases(self, context: Context) -> list[Case]:
        small = context.quick or context.device.kind == "cpu"
        fine = {name: SHAPES[name] for name in ("fine-grained 7B", "fine-grained 30B")}
        return [RoundedCase(context, name, shape, tile)
                for name, shape in (QUICK if small else fine).items()
                for tile in ((16,) if small else (64, 128))]


operator = MoeRounding()
