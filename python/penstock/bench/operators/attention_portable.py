"""attention_portable: the kernel of attention for every supported GPU, beside the one for Hopper."""

from .._operator import Case, Context, Operator
from .._timing import Plan
from ..prefill.portable_case import PortableCase
from ..prefill.shapes import Shape
from .attention import ON_CPU, QUICK, listed

CASES = tuple(f"d{dim}, 4096, {mask}" for dim in (64, 128, 256) for mask in ("full", "causal"))
# scaled_dot_product_attention and transformers use torch for f32 on a GPU.
F32 = {f"d{dim}, {name}, f32": shape for dim in (64, 128) for name, shape in {
    "4096, causal": Shape(1, 4096, 16, dim, True, dtype="f32"),
    "one query, 4096 keys": Shape(64, 1, 16, dim, keys=4096, dtype="f32")}.items()}


class AttentionPortable(Operator):
    name = "attention_portable"
    summary = "attention with the kernel that runs on every supported GPU"
    plan = Plan(samples=30, sustained_seconds=0.3)

    def cases(self, context: Context) -> list[Case]:
        on_cpu = context.device.kind == "cpu"
        shapes = QUICK if context.quick else ON_CPU if on_cpu else self._on_gpu()
        return [PortableCase(context, name, shape) for name, shape in shapes.items()]

    @staticmethod
    def _on_gpu() -> dict[str, Shape]:
        shapes = listed()
        return {name: shapes[name] for name in CASES} | {
            "3001 rows": Shape(5, 3001, 16, 128, True)} | F32


operator = AttentionPortable()
