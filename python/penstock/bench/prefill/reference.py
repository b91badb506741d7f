"""The results of a few queries in higher precision, and how far rounding alone moves them.

Arrays are NumPy's or torch's. f32 is computed in f64, and 16-bit types are computed in f32.
"""

from math import sqrt
from typing import Any

from .._arrays import torch_of
from .._values import HALF_STEPS
from .shapes import Sample, Shape


def wide(array: Any) -> Any:
    torch = torch_of(array)
    if torch is None:
        return array.astype("f8" if array.dtype == "f4" else "f4")
    return array.to(torch.float64 if array.dtype == torch.float32 else torch.float32)


def rounded(array: Any, like: Any) -> Any:
    """A wide array, rounded to the dtype of `like`; the result is wide again."""
    return wide(array.astype(like.dtype) if torch_of(array) is None else array.to(like.dtype))


def given(array: Any, like: Any) -> Any:
    """A NumPy array as an array of the library of `like`, in the same place."""
    torch = torch_of(like)
    return array if torch is None else torch.from_numpy(array).to(like.device)


def scales(shape: Shape, sample: list[Sample]) -> Any:
    """The root of the number of keys that each query of the sample sees.

    Means of n random numbers have the size 1 / sqrt(n). Multiplied by sqrt(n), all results have the same
    size, and one tolerance fits them all.
    """
    import numpy

    counts = [numpy.subtract(*reversed(shape.seen(part.sequence, part.queries))) for part in sample]
    return numpy.sqrt(numpy.concatenate(counts).astype("f8"))


def of_sample(shape: Shape, inputs: dict[str, Any], sample: list[Sample]) -> tuple[Any, Any]:
    """The results of the sample (rows, heads, dimension), wide: exact, and with what an implementation of
    the same type rounds rounded: the numerators of the probabilities, and the result."""
    exact, coarse = zip(*(_of_sequence(shape, inputs, part) for part in sample))
    xp = torch_of(exact[0]) or _numpy()
    return xp.concatenate(exact), xp.concatenate(coarse)


def _of_sequence(shape: Shape, inputs: dict[str, Any], part: Sample) -> tuple[Any, Any]:
    xp = torch_of(inputs["q"]) or _numpy()
    q, k, v = _heads(shape, inputs, part)
    scores = q @ k.swapaxes(1, 2) * shape.dim**-0.5  # (KV heads, queries of the group, keys)
    if shape.softcap:
        scores = shape.softcap * xp.tanh(scores / shape.softcap)
    by_head = shape.heads, len(part.queries), k.shape[1]
    scores = xp.where(_visible(shape, part, inputs["q"]), scores.reshape(by_head), -xp.inf)
    largest = xp.amax(scores, -1)
    if shape.sinks:
        sinks = wide(inputs["sinks"])[:, None]
        largest = xp.maximum(largest, sinks)
    numerators = xp.exp(scores - largest[..., None])
    total = numerators.sum(-1)
    if shape.sinks:
        total = total + xp.exp(sinks - largest)
    results = []
    for each in (numerators, rounded(numerators, inputs["q"])):
        sums = (each.reshape(*q.shape[:2], -1) @ v).reshape(*by_head[:2], -1)
        results.append((sums / total[..., None]).swapaxes(0, 1))
    return results[0], rounded(results[1], inputs["q"])


def _heads(shape: Shape, inputs: dict[str, Any], part: Sample) -> tuple[Any, Any, Any]:
    """The sample's queries, and all keys and values of its sequence, wide, heads first. The queries of
    all heads that share keys are together."""
    keys = _rows(shape, part.sequence)
    rows = given(part.queries + part.first_row, inputs["q"])
    q = wide(inputs["q"].reshape(-1, shape.heads, shape.dim)[rows]).swapaxes(0, 1)
    k, v = (wide(inputs[name].reshape(-1, *inputs[name].shape[-2:])[keys]).swapaxes(0, 1)
            for name in ("k", "v"))
    return q.reshape(shape.kv_heads, -1, shape.dim), k, v


def _rows(shape: Shape, sequence: int) -> slice:
    """The keys of a sequence among those of all."""
    before = sum(keys for _, keys in shape.sequences[:sequence])
    return slice(before, before + shape.sequences[sequence][1])


def _visible(shape: Shape, part: Sample, like: Any) -> Any:
    """Whether each query of the sample sees each key (queries, keys)."""
    import numpy

    first, end = shape.seen(part.sequence, part.queries)
    keys = numpy.arange(shape.sequences[part.sequence][1])
    return given((keys >= first[:, None]) & (keys < end[:, None]), like)


def _numpy() -> Any:
    import numpy

    return numpy


def tolerance(shape: Shape, dtype: str, exact: Any, coarse: Any) -> float:
    """Twice the error of the rounded results, one rounding of the largest number, and what sums in f32
    add, whose roundings mostly cancel each other."""
    largest = float(abs(exact).max())
    longest = max(keys for _, keys in shape.sequences)
    summed = 2 * HALF_STEPS["f32"] * sqrt(shape.dim + longest)
    return 2 * float(abs(coarse - exact).max()) + (HALF_STEPS[dtype] + summed) * largest
