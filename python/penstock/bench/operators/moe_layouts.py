"""moe_layouts: mixture-of-experts layers whose weights are stored in other ways, or have biases, as those
of gpt-oss."""

from dataclasses import replace

from .._operator import Case, Context, Operator
from ..mixture.layouts_case import GptOssCase, LayoutsCase
from .moe import QUICK, QWEN3
from .moe_decode import MODELS, SMALL
from .moe_decode import TOKENS as FEW_TOKENS

TOKENS = (8, 1024, 16384)


class MoeLayouts(Operator):
    name = "moe_layouts"
    summary = "moe with weights in every layout, and with biases"

    def cases(self, context: Context) -> list[Case]:
        small = context.quick or context.device.kind == "cpu"
        shapes = {"small": QUICK["small"]} if small else {
            f"Qwen3-30B, {tokens} tokens": replace(QWEN3, tokens=tokens) for tokens in TOKENS}
        few = SMALL["small"] if small else MODELS["gpt-oss-120B"]
        return [*(LayoutsCase(context, name, shape) for name, shape in shapes.items()),
                *(GptOssCase(context, f"gpt-oss{' small' if small else '-120B'}, {tokens} "
                             f"token{'s' if tokens > 1 else ''}", replace(few, tokens=tokens))
                  for tokens in FEW_TOKENS)]


operator = MoeLayouts()
