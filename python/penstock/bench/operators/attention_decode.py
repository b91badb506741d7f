"""attention_decode: attention of one query per sequence, as when text is generated."""

from .._operator import Case, Context, Operator
from ..decoding.case import DecodeCase
from ..prefill.shapes import Shape

SHAPES = {
    "1 sequence, 131072 keys": Shape(1, 1, 32, 128, heads_kv=8, keys=131072),
    "16 sequences, 16384 keys": Shape(16, 1, 32, 128, heads_kv=8, keys=16384),
    "64 sequences, 4096 keys": Shape(64, 1, 32, 128, heads_kv=8, keys=4096),
    "128 sequences, 2048 keys, 32 heads of k": Shape(128, 1, 32, 128, heads_kv=32, keys=2048),
    "head dimension 64": Shape(64, 1, 64, 64, heads_kv=8, keys=8192),
    "head dimension 256": Shape(64, 1, 16, 256, heads_kv=4, keys=4096),
}
SMALL = {"small": Shape(3, 1, 8, 32, heads_kv=2, keys=192)}  # on the CPU


class AttentionDecode(Operator):
    name = "attention_decode"
    summary = "attention of one query per sequence, with keys and values that are in no cache"

    def cases(self, context: Context) -> list[Case]:
        small = context.quick or context.device.kind == "cpu"
        return [DecodeCase(context, name, shape)
                for name, shape in (SMALL if small else SHAPES).items()]


operator = AttentionDecode()
