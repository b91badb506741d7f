"""attention_decode: attention of few queries per sequence, as when text is generated."""

from .._operator import Case, Context, Operator
from .._timing import Plan
from ..decoding.case import DecodeCase
from ..prefill.shapes import Shape

SHAPES = {
    "1 sequence, 131072 keys": Shape(1, 1, 32, 128, heads_kv=8, keys=131072),
    "16 sequences, 16384 keys": Shape(16, 1, 32, 128, heads_kv=8, keys=16384),
    "64 sequences, 4096 keys": Shape(64, 1, 32, 128, heads_kv=8, keys=4096),
    "128 sequences, 2048 keys, 32 heads of k": Shape(128, 1, 32, 128, heads_kv=32, keys=2048),
    "head dimension 64": Shape(64, 1, 64, 64, heads_kv=8, keys=8192),
    "head dimension 256": Shape(64, 1, 16, 256, heads_kv=4, keys=4096),
    "f32, 1 sequence, 65536 keys": Shape(1, 1, 32, 128, heads_kv=8, keys=65536, dtype="f32"),
}
# With fewer kernels and peers. In the first one, the longest of 33 sequences has half of all keys.
BRIEF = {
    "1024 to 131072 keys": Shape(33, 1, 32, 128, heads_kv=8,
                                 keys_of=(131072, *(8 * (1024, 3072, 4096, 8192)))),
    "4 queries each, 32 sequences, 4096 keys": Shape(32, 4, 32, 128, heads_kv=8, keys=4096),
    "16 queries each, 32 sequences, 4096 keys": Shape(32, 16, 32, 128, heads_kv=8, keys=4096),
    "f16, 32 sequences, 4096 keys": Shape(32, 1, 32, 128, heads_kv=8, keys=4096, dtype="f16"),
}
SMALL = {  # on the CPU
    "small": Shape(3, 1, 8, 32, heads_kv=2, keys=192),
    "several lengths": Shape(3, 2, 8, 32, heads_kv=2, keys_of=(192, 64, 128)),
}


class AttentionDecode(Operator):
    name = "attention_decode"
    summary = "attention of few queries per sequence, with keys and values that are not in the L2 cache"
    plan = Plan(samples=30, sustained_seconds=0.15)

    def cases(self, context: Context) -> list[Case]:
        small = context.quick or context.device.kind == "cpu"
        return [DecodeCase(context, name, shape, name in BRIEF)
                for name, shape in (SMALL if small else SHAPES | BRIEF).items()]


operator = AttentionDecode()
