"""Arrays of the cases on the device that is measured: NumPy's on the CPU, torch's on a GPU."""

from collections.abc import Sequence
from typing import Any

from .._dtypes import FULL_NAMES
from ._operator import Context

# The largest relative error of one rounding.
HALF_STEPS = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


def dtype_on(context: Context, dtype: str) -> str:
    """f16 instead of bf16 on the CPU, since NumPy has no bf16."""
    return "f16" if dtype == "bf16" and context.device.kind == "cpu" else dtype


def normal(context: Context, seeds: Sequence[int], shape: tuple[int, ...], dtype: str,
           scale: float = 1.0) -> Any:
    """Normally distributed numbers. They depend on the context's seed and on `seeds`."""
    import numpy

    random = numpy.random.default_rng([context.seed, *seeds])
    if context.device.kind == "cpu":
        values = random.standard_normal(shape, dtype="f4")
        values *= scale
        return values.astype(FULL_NAMES[dtype], copy=False)
    import torch

    generator = torch.Generator(context.device.name)
    generator.manual_seed(int(random.integers(1 << 62)))
    made = empty(context, shape, dtype)
    return made.normal_(0, scale, generator=generator)


def empty(context: Context, shape: tuple[int, ...], dtype: str) -> Any:
    if context.device.kind == "cpu":
        import numpy

        return numpy.empty(shape, FULL_NAMES[dtype])
    import torch

    return torch.empty(shape, dtype=getattr(torch, FULL_NAMES[dtype]), device=context.device.name)
