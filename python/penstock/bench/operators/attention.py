"""attention: whole sequences, as when a prompt is read."""

from .._operator import Case, Context, Operator
from .._timing import Plan
from ..decoding.paged_case import PagedCase
from ..prefill.case import AttentionCase
from ..prefill.shapes import Shape

TOKENS, HIDDEN = 16384, 2048
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
DIMS = (64, 128, 256)
# Whose first call is timed in a process of its own: one per head dimension.
NEW_PROCESS = tuple(f"d{dim}, 4096, causal" for dim in DIMS)
LARGE, SMALL = 8192, 128  # the longest and the shortest of the packed sequences
OTHERS = {
    "GQA, 32 over 8 heads": Shape(4, 4096, 32, 128, True, heads_kv=8),
    "head dimension 96": Shape(4, 4096, 20, 96, True),
    "head dimensions 192 and 128": Shape(4, 4096, 16, 192, True, dim_v=128),
    "1000 rows": Shape(16, 1000, 16, 128),
    "3001 rows": Shape(5, 3001, 16, 128, True),
    "1000 rows behind 2001": Shape(8, 1000, 16, 128, True, keys=3001),
    "1024 rows behind 8192": Shape(4, 1024, 32, 128, True, heads_kv=8, keys=9216),
    "window of 1024": Shape(2, 8192, 16, 128, True, window=1024),
    "softcap 50": Shape(4, 4096, 8, 256, True, softcap=50.0),
    "sinks": Shape(4, 4096, 64, 64, True, heads_kv=8, sinks=True),
    "f16": Shape(4, 4096, 16, 128, True, dtype="f16"),
}
PAGED = ("1024 rows behind 8192", "behind a cache")  # as when a long prompt is read in chunks
ON_CPU = {"causal": Shape(2, 512, 8, 64, True), "GQA": Shape(2, 512, 8, 128, heads_kv=2)}
QUICK = {
    "causal": Shape(2, 70, 4, 32, True),
    "GQA": Shape(1, 33, 6, 64, keys=90, heads_kv=2),
    "packed": Shape(3, 50, 4, 16, True, heads_kv=2, dim_v=24, packed=(17, 1, 50)),
    "behind a cache": Shape(2, 64, 4, 32, True, heads_kv=2, keys=256),
    "window, softcap and sinks": Shape(2, 65, 4, 24, True, window=9, softcap=5.0, sinks=True),
}


def listed() -> dict[str, Shape]:
    """16384 tokens with 2048 numbers each, as sequences of several lengths and heads of several sizes.

    Shapes that FlashAttention compiles for once are together.
    """
    return {f"d{dim}, {length}, {'causal' if causal else 'full'}":
            Shape(TOKENS // length, length, HIDDEN // dim, dim, causal)
            for dim in DIMS for causal in (False, True) for length in LENGTHS}


def packed() -> Shape:
    """16 sequences whose lengths are drawn evenly on a logarithmic scale."""
    import numpy

    drawn = numpy.random.default_rng(1).uniform(numpy.log(SMALL), numpy.log(LARGE), 16)
    lengths = tuple(int(length) for length in numpy.rint(numpy.exp(drawn)))
    return Shape(len(lengths), max(lengths), 32, 128, True, heads_kv=8, packed=lengths)


def on_gpu() -> dict[str, Shape]:
    return listed() | {"packed, 128 to 8192 rows": packed()} | OTHERS


class Attention(Operator):
    name = "attention"
    summary = "attention of whole sequences, without storing the scores"
    plan = Plan(samples=24, sustained_seconds=0.12)  # shorter than usual, since there are many cases

    def cases(self, context: Context) -> list[Case]:
        on_cpu = context.device.kind == "cpu"
        shapes = QUICK if context.quick else ON_CPU if on_cpu else on_gpu()
        return [PagedCase(context, name, shape) if name in PAGED else
                AttentionCase(context, name, shape, name in NEW_PROCESS)
                for name, shape in shapes.items()]


operator = Attention()
