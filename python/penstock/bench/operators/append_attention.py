"""append_attention: a step of a generation: new rows of a cache, and the attention of their queries."""

from .._operator import Case, Context, Operator
from .._timing import Plan
from ..appending.attend_case import AttendCase
from ..prefill.shapes import Shape

SHAPES = {
    "1 sequence, 8192 keys": Shape(1, 1, 32, 128, True, heads_kv=8, keys=8192),
    "64 sequences, 4096 keys": Shape(64, 1, 32, 128, True, heads_kv=8, keys=4096),
    "4 rows each, 32 sequences, 4096 keys": Shape(32, 4, 32, 128, True, heads_kv=8, keys=4096),
}
SMALL = {"small": Shape(3, 2, 8, 32, True, heads_kv=2, keys=192)}  # on the CPU


class AppendAttention(Operator):
    name = "append_attention"
    summary = "new rows of a key-value cache, and the attention of their queries, in one call"
    plan = Plan(samples=30, sustained_seconds=0.1)

    def cases(self, context: Context) -> list[Case]:
        small = context.quick or context.device.kind == "cpu"
        return [AttendCase(context, name, shape)
                for name, shape in (SMALL if small else SHAPES).items()]


operator = AppendAttention()
