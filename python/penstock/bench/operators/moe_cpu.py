"""moe_cpu: mixture-of-experts layers on the CPU, next to torch."""

import os
from dataclasses import replace

from .._operator import Case, Context, Operator
from .._rotation import cache_bytes
from ..mixture.cpu_case import CpuCase, experts_that_fit, sets_of
from ..mixture.shapes import Shape

QWEN3 = Shape(1, 2048, 768, 128, 8)
SMALL = Shape(1, 64, 40, 8, 2)
TOKENS = (1, 8, 64, 1024)
TRANSPOSED_TOKENS = (8, 1024)
ELEMENTS = {"bf16": 2, "f32": 4}  # bytes


class MoeCpu(Operator):
    name = "moe_cpu"
    summary = "moe with torch's tensors on the CPU, on all cores"

    def cases(self, context: Context) -> list[Case]:
        if context.device.kind != "cpu":
            return []
        most = 2 if context.quick else len(TOKENS)
        return [_case(context, dtype, tokens, by_column)
                for by_column, all_tokens in ((False, TOKENS[:most]), (True, TRANSPOSED_TOKENS[:most // 2]))
                for dtype in ELEMENTS for tokens in all_tokens]


def _case(context: Context, dtype: str, tokens: int, by_column: bool) -> Case:
    model, shape = ("small", SMALL) if context.quick else ("Qwen3-30B", QWEN3)
    shape = replace(shape, tokens=tokens)
    name = f"{model}, {dtype}, {tokens} token{'s' if tokens > 1 else ''}"
    name += ", transposed" if by_column else ""
    element = ELEMENTS[dtype]
    sets = 1 if context.quick else sets_of(shape, element, cache_bytes(context.device))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    experts = experts_that_fit(shape, element, sets + 1, memory)  # one more for the check
    if experts < shape.experts:
        name += f", {experts} of {shape.experts} experts for want of memory"
    return CpuCase(context, name, replace(shape, experts=experts), dtype, sets, by_column)


operator = MoeCpu()
