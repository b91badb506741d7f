"""attention in NumPy: one head of one sequence after the other."""

from typing import Any

from .shapes import Shape


class NumpyAttention:
    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def __call__(self, inputs: dict[str, Any], out: Any) -> None:
        import numpy

        shape = self._shape
        q, k, v = (inputs[name].reshape(-1, *inputs[name].shape[-2:]) for name in ("q", "k", "v"))
        results = out.reshape(-1, *out.shape[-2:])
        group = shape.heads // shape.kv_heads
        row = first_key = 0
        for sequence, (queries, keys) in enumerate(shape.sequences):
            first, end = shape.seen(sequence, numpy.arange(queries))
            key = numpy.arange(keys)
            hidden = (key < first[:, None]) | (key >= end[:, None])
            mine, theirs = slice(row, row + queries), slice(first_key, first_key + keys)
            for head in range(shape.heads):
                scores = q[mine, head] @ k[theirs, head // group].T
                scores *= shape.dim**-0.5
                if shape.softcap:
                    scores = shape.softcap * numpy.tanh(scores / shape.softcap)
                scores[hidden] = -numpy.inf
                largest = scores.max(1, keepdims=True)
                if shape.sinks:
                    largest = numpy.maximum(largest, inputs["sinks"][head])
                numpy.exp(scores - largest, out=scores)
                total = scores.sum(1, keepdims=True)
                if shape.sinks:
                    total += numpy.exp(inputs["sinks"][head] - largest)
                results[mine, head] = scores @ v[theirs, head // group] / total
            row, first_key = row + queries, first_key + keys
