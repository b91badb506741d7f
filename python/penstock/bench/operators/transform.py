"""transform: elementwise functions of arrays in the device's memory."""

from .._operator import Case, Context, Operator
from ..elementwise.functions import ADD, AXPBY, CAST, GELU, MUL, SCALE, SWIGLU
from ..elementwise.transform_case import TransformCase

MIB = 1 << 20
# Function, dtype of the inputs, and dtype of the result. On the CPU, f16 takes the place of bf16.
CASES = {
    "cast f32 to bf16": (CAST, "f32", "bf16"),
    "scale bf16": (SCALE, "bf16", "bf16"),
    "axpby f32": (AXPBY, "f32", "f32"),
    "axpby bf16": (AXPBY, "bf16", "bf16"),
    "add 3 f32": (ADD, "f32", "f32"),
    "swiglu bf16": (SWIGLU, "bf16", "bf16"),
    "gelu bf16": (GELU, "bf16", "bf16"),
    "mul f16": (MUL, "f16", "f16"),
}
INPUT_BYTES, ON_CPU, QUICK = 256 * MIB, 16 * MIB, MIB // 2


class Transform(Operator):
    name = "transform"
    summary = "elementwise functions, which run at memory bandwidth"

    def cases(self, context: Context) -> list[Case]:
        on_cpu = context.device.kind == "cpu"
        size = QUICK if context.quick else ON_CPU if on_cpu else INPUT_BYTES
        return [TransformCase(context, name.replace("bf16", "f16") if on_cpu else name, *case, size)
                for name, case in CASES.items()]


operator = Transform()
