"""append_kv: new rows are rotated and written behind those that a key-value cache has."""

from .._operator import Case, Context, Operator
from .._timing import Plan
from ..appending.append_case import Append, AppendCase

CASES = {
    "8 prompts of 2048 rows": Append(8, 2048),
    "8 prompts of 2048 rows, pages of 16": Append(8, 2048, page=16),
    "8 prompts of 2048 rows, interleaved": Append(8, 2048, interleaved=True),
    "1 row for 256 sequences": Append(256, 1, had=63),
}
SMALL = {  # on the CPU
    "prompts": Append(2, 40, heads=4, heads_kv=2, dim=32),
    "pages": Append(3, 5, had=21, page=8, heads=4, heads_kv=2, dim=32),
    "interleaved": Append(3, 1, had=9, interleaved=True, heads=4, heads_kv=2, dim=32),
}


class AppendKv(Operator):
    name = "append_kv"
    summary = "new rows of a key-value cache, with rotary embedding"
    plan = Plan(samples=30, sustained_seconds=0.1)

    def cases(self, context: Context) -> list[Case]:
        small = context.quick or context.device.kind == "cpu"
        return [AppendCase(context, name, append)
                for name, append in (SMALL if small else CASES).items()]


operator = AppendKv()
