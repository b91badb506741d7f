"""gemm: products of 16-bit matrices, with f32 sums."""

from .._operator import Case, Context, Operator
from ..products.gemm_case import GemmCase, Size

# Squares, layers of published models, a short K, few tiles, sizes that tiles do not divide, many rows,
# and few rows. Those that begin with a word are no bf16 products that a tensor map can describe.
SIZES = {
    **{f"{m}x{n}x{k}": Size(m, n, k) for m, n, k in (
        (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (16384, 16384, 16384),
        (16384, 1536, 2048), (16384, 2048, 768), (4096, 14336, 4096), (8192, 8192, 1024),
        (2048, 2048, 512), (1000, 1000, 1000), (776, 4104, 1032), (3072, 5120, 1280),
        (131072, 512, 512), (512, 7168, 2048), (64, 8192, 8192), (256, 4096, 14336))},
    "f16, 4096x4096x4096": Size(4096, 4096, 4096, "f16"),
    "odd, 1023x1537x777": Size(1023, 1537, 777),
}
ON_CPU = {f"{m}x{n}x{k}": Size(m, n, k, "f16") for m, n, k in (
    (512, 512, 512), (2048, 256, 1024), (1, 4096, 1024))}
QUICK = {f"{m}x{n}x{k}": Size(m, n, k) for m, n, k in ((64, 48, 96), (33, 70, 21))}


class Gemm(Operator):
    name = "gemm"
    summary = "a matrix times the transpose of another, bf16 or f16, with f32 sums"

    def cases(self, context: Context) -> list[Case]:
        on_cpu = context.device.kind == "cpu"
        sizes = QUICK if context.quick else ON_CPU if on_cpu else SIZES
        return [GemmCase(context, name, size) for name, size in sizes.items()]


operator = Gemm()
