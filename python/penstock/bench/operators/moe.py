"""moe: the forward of a mixture-of-experts layer, router included."""

from dataclasses import replace

from .._operator import Case, Context, Operator
from ..mixture.layer_case import LayerCase
from ..mixture.shapes import Shape

QWEN3 = Shape(16384, 2048, 768, 128, 8)
# The first six are large layers of published models, then come small batches, an uneven load, and
# shapes that are no multiples of anything in the kernels.
SHAPES = {
    "Qwen3-30B": QWEN3,
    "fine-grained 7B": Shape(24576, 1536, 256, 128, 8),
    "fine-grained 30B": Shape(32768, 4096, 512, 128, 8),
    "OLMoE": Shape(32768, 2048, 1024, 64, 8),
    "Mixtral": Shape(16384, 4096, 14336, 8, 2),
    "DeepSeek-V3, 64 experts": Shape(16384, 7168, 2048, 64, 8),
    "Qwen3-30B, 256 tokens": replace(QWEN3, tokens=256),
    "Qwen3-30B, 1024 tokens": replace(QWEN3, tokens=1024),
    "Qwen3-30B, 4096 tokens": replace(QWEN3, tokens=4096),
    "Qwen3-30B, Zipf load": replace(QWEN3, zipf=1.0),
    "32 experts of 1440": Shape(5000, 2880, 1440, 32, 4),
    "60 experts of 704": Shape(777, 1024, 704, 60, 6),
    "160 experts of 1536": Shape(8192, 5120, 1536, 160, 6),
}
ON_CPU = {"medium": Shape(512, 512, 256, 16, 4), "one token": Shape(1, 1024, 512, 16, 4)}
QUICK = {"small": Shape(70, 64, 40, 8, 2), "Zipf load": Shape(200, 32, 24, 16, 4, 1.0)}


class Moe(Operator):
    name = "moe"
    summary = "the SwiGLU experts that a router chose for every token, and their weighted sum"

    def cases(self, context: Context) -> list[Case]:
        on_cpu = context.device.kind == "cpu"
        shapes = QUICK if context.quick else ON_CPU if on_cpu else SHAPES
        return [LayerCase(context, name, shape) for name, shape in shapes.items()]


operator = Moe()
