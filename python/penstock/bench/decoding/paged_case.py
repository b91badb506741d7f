"""Cases of attention whose keys and values are also in pages."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ... import attention
from .._operator import Call
from ..prefill.case import AttentionCase
from ..prefill.reference import given
from ..prefill.shapes import Shape

PAGES = (64, 16)  # rows


def paged(rows: int) -> str:
    return f"pages of {rows}"


class PagedCase(AttentionCase):
    """The order of keys that every query attends to has no effect on the result.

    Pages are therefore the same memory as the contiguous keys and values: `tables` of the inputs lists
    those of each sequence in random order, except the last ones if queries attend to some of their rows.
    """

    def make_inputs(self, rotation: int) -> Any:
        inputs = super().make_inputs(rotation)
        keys = [each for _, each in self._shape.sequences]
        inputs["lengths"] = integers(keys, inputs["q"])
        inputs["tables"] = {rows: self._table(rows, rotation, inputs["q"]) for rows in PAGES}
        return inputs

    def _table(self, rows: int, rotation: int, like: Any) -> Any:
        import numpy

        random, counts = self._context.random(rotation), pages_of(self._shape, rows)
        table = numpy.zeros((len(counts), max(counts)), "i4")
        for sequence, count in enumerate(counts):
            order = numpy.arange(count)
            movable = count - pages_in_place(self._shape, rows)
            order[:movable] = random.permutation(movable)
            table[sequence, :count] = order + sum(counts[:sequence])
        return integers(table, like)

    def kernels(self) -> Mapping[str, Call]:
        return dict(super().kernels()) | {paged(rows): partial(self._paged, rows) for rows in PAGES}

    def _paged(self, rows: int, inputs: Any, out: Any) -> None:
        attention(inputs["q"], *in_pages(rows, inputs["k"], inputs["v"]), sinks=inputs.get("sinks"),
                  pages=inputs["tables"][rows], lengths_k=inputs["lengths"], out=out, **self._options)


def pages_of(shape: Shape, rows: int) -> list[int]:
    """The pages of every sequence, all of which are full."""
    return [keys // rows for _, keys in shape.sequences]


def pages_in_place(shape: Shape, rows: int) -> int:
    """How many pages of a sequence hold keys that some of its queries do not attend to."""
    return -(-shape.length // rows) if shape.causal else 0


def in_pages(rows: int, *caches: Any) -> tuple[Any, ...]:
    return tuple(each.reshape(-1, rows, *each.shape[-2:]) for each in caches)


def integers(values: Any, like: Any) -> Any:
    import numpy

    return given(numpy.array(values, "i4"), like)
