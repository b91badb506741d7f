"""Kernels that do nothing but read, with different amounts per block."""

from functools import partial
from typing import Any

import triton
import triton.language as tl


@triton.jit
def _add_up(source, sums, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(sums + tl.program_id(0), tl.sum(tl.load(source + at, mask=at < count, other=0.0), 0))


def sum_of_blocks(buffer: Any, *, block: int, warps: int) -> Any:
    """The sum of every `block` numbers of a buffer of f32."""
    import torch

    blocks = triton.cdiv(buffer.numel(), block)
    sums = torch.empty(blocks, device=buffer.device)
    _add_up[(blocks,)](buffer, sums, buffer.numel(), BLOCK=block, num_warps=warps)
    return sums


SUMS = {f"{block} numbers by {warps} warps": partial(sum_of_blocks, block=block, warps=warps)
        for block, warps in ((2048, 4), (4096, 4), (4096, 8), (8192, 8), (16384, 8), (16384, 16))}
