"""attention_cpu: attention of f32 on the CPU, next to torch."""

from .._operator import Case, Context, Operator
from .._timing import Plan
from ..prefill.cpu_case import CpuCase
from ..prefill.shapes import Shape

SHAPES = {f"d{dim}, {length}, {'causal' if causal else 'full'}":
          Shape(4096 // length, length, 512 // dim, dim, causal)
          for dim in (64, 128) for length in (512, 4096) for causal in (False, True)}
SHAPES["GQA, 16 over 4 heads"] = Shape(1, 2048, 16, 128, True, heads_kv=4)
SHAPES["1001 rows"] = Shape(2, 1001, 8, 64, True)
QUICK = {"causal": Shape(2, 70, 4, 32, True), "GQA": Shape(1, 129, 4, 64, heads_kv=2)}


class AttentionCpu(Operator):
    name = "attention_cpu"
    summary = "attention of f32 on the CPU, on all cores"
    plan = Plan(samples=20)

    def cases(self, context: Context) -> list[Case]:
        if context.device.kind != "cpu":
            return []
        return [CpuCase(context, name, shape)
                for name, shape in (QUICK if context.quick else SHAPES).items()]


operator = AttentionCpu()
