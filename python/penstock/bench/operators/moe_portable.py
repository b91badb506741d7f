"""moe_portable: the kernel of moe for every supported GPU, beside the one for Hopper."""

from dataclasses import replace

from .._operator import Case, Context, Operator
from ..mixture.arrays import TorchArrays
from ..mixture.portable_case import PortableCase
from .moe import ON_CPU, QUICK, QWEN3, SHAPES

CASES = {
    "Qwen3-30B": QWEN3,
    "Qwen3-30B, 1024 tokens": replace(QWEN3, tokens=1024),
    "Qwen3-30B, 64 tokens": replace(QWEN3, tokens=64),
    "fine-grained 7B": SHAPES["fine-grained 7B"],
}
F32 = {f"{name}, f32": CASES[name] for name in ("Qwen3-30B, 1024 tokens", "Qwen3-30B, 64 tokens")}


class MoePortable(Operator):
    name = "moe_portable"
    summary = "moe with the kernel that runs on every supported GPU"

    def cases(self, context: Context) -> list[Case]:
        on_cpu = context.device.kind == "cpu"
        shapes = QUICK if context.quick else ON_CPU if on_cpu else CASES
        cases: list[Case] = [PortableCase(context, name, shape) for name, shape in shapes.items()]
        if shapes is CASES:  # the others are f32 on the CPU
            cases += [PortableCase(context, name, shape, TorchArrays(context.device.name, "f32"))
                      for name, shape in F32.items()]
        return cases


operator = MoePortable()
