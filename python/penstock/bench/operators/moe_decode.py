"""moe_decode: mixture-of-experts layers of a few tokens, as when text is generated."""

from dataclasses import replace

from .._operator import Case, Context, Operator
from ..mixture.decode_case import DecodeCase
from ..mixture.shapes import Shape

MODELS = {
    "Qwen3-30B": Shape(1, 2048, 768, 128, 8),
    "DeepSeek-V3": Shape(1, 7168, 2048, 256, 8),
    "gpt-oss-120B": Shape(1, 2880, 2880, 128, 4),
}
TOKENS = (1, 8, 64)
SMALL = {"small": Shape(1, 64, 40, 8, 2)}  # on the CPU


class MoeDecode(Operator):
    name = "moe_decode"
    summary = "moe with 1, 8 and 64 tokens, with weights that are in no cache"

    def cases(self, context: Context) -> list[Case]:
        small = context.quick or context.device.kind == "cpu"
        return [DecodeCase(context, f"{name}, {tokens} token{'s' if tokens > 1 else ''}",
                           replace(shape, tokens=tokens))
                for name, shape in (SMALL if small else MODELS).items() for tokens in TOKENS]


operator = MoeDecode()
