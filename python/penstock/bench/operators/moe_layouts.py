"""moe_layouts: mixture-of-experts layers whose weights are stored in other ways, or have biases."""

from dataclasses import replace

from .._operator import Case, Context, Operator
from ..mixture.layouts_case import LayoutsCase
from .moe import QUICK, QWEN3

TOKENS = (8, 1024, 16384)


class MoeLayouts(Operator):
    name = "moe_layouts"
    summary = "moe with weights in every layout, and with biases"

    def cases(self, context: Context) -> list[Case]:
        small = context.quick or context.device.kind == "cpu"
        shapes = {"small": QUICK["small"]} if small else {
            f"Qwen3-30B, {tokens} tokens": replace(QWEN3, tokens=tokens) for tokens in TOKENS}
        return [LayoutsCase(context, name, shape) for name, shape in shapes.items()]


operator = MoeLayouts()
