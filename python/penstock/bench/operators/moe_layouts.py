"""moe_layouts: mixture-of-experts layers whose weights are stored in other ways, or have biases, as those
of gpt-oss, or a shared expert, as those of DeepSeek-V3."""

from dataclasses import replace

from .._operator import Case, Context, Operator
from ..mixture.decode_case import DecodeCase
from ..mixture.layouts_case import GptOssCase, LayoutsCase, SharedCase
from .moe import QUICK, QWEN3
from .moe_decode import MODELS, SMALL
from .moe_decode import TOKENS as FEW_TOKENS

TOKENS = (8, 1024, 16384)


class MoeLayouts(Operator):
    name = "moe_layouts"
    summary = "moe with weights in every layout, with biases, and with a shared expert"

    def cases(self, context: Context) -> list[Case]:
        small = context.quick or context.device.kind == "cpu"
        shapes = {"small": QUICK["small"]} if small else {
            f"Qwen3-30B, {tokens} tokens": replace(QWEN3, tokens=tokens) for tokens in TOKENS}

        def few(kind: type[DecodeCase], model: str, label: str = "") -> list[Case]:
            name, shape = (f"{model.partition('-1')[0]} small", SMALL["small"]) if small else (
                model, MODELS[model])
            return [kind(context, f"{name}, {tokens} token{'s' if tokens > 1 else ''}{label}",
                         replace(shape, tokens=tokens)) for tokens in FEW_TOKENS]

        return [*(LayoutsCase(context, name, shape) for name, shape in shapes.items()),
                *few(SharedCase, "DeepSeek-V3", ", shared expert"), *few(GptOssCase, "gpt-oss-120B")]


operator = MoeLayouts()
