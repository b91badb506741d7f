"""Cases of attention of one query per sequence, as when text is generated: reading keys and values takes
most of the time."""

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from ... import attention
from ..._dtypes import SIZES
from .._captured import Captured
from .._device_read import DeviceRead
from .._operator import Absent, Call, Case, Context
from .._rotation import cache_bytes
from ..prefill.case import AttentionCase
from ..prefill.reference import given
from ..prefill.shapes import Shape

READ = "read of the keys and values"
PAGES = (64, 16)  # rows


def paged(rows: int) -> str:
    return f"pages of {rows}"


class DecodeCase(AttentionCase):
    """The query attends to all keys of its sequence, so their order has no effect on the result.

    Pages are therefore the same memory as the contiguous keys and values: `tables` of the inputs lists
    those of each sequence in random order.
    """

    def __init__(self, context: Context, name: str, shape: Shape) -> None:
        super().__init__(context, name, shape)
        self.yardstick = Case.yardstick

    def make_inputs(self, rotation: int) -> Any:
        inputs = super().make_inputs(rotation)
        inputs["lengths"] = self._integers([self._shape.keys] * self._shape.batch, inputs["q"])
        inputs["tables"] = {rows: self._table(rows, rotation, inputs["q"]) for rows in PAGES}
        return inputs

    def _table(self, rows: int, rotation: int, like: Any) -> Any:
        each, random = self._shape.keys // rows, self._context.random(rotation)
        return self._integers([random.permutation(each) + sequence * each
                               for sequence in range(self._shape.batch)], like)

    @staticmethod
    def _integers(values: Any, like: Any) -> Any:
        import numpy

        return given(numpy.array(values, "i4"), like)

    def kernels(self) -> Mapping[str, Call]:
        calls: dict[str, Call] = {"best": self._attention}
        if not self._on_cpu:
            calls |= {"captured": Captured(self._attention),
                      "batch invariant": self._batch_invariant,
                      "decode_portable": partial(self._attention, kernel="decode_portable"),
                      "one block per head": partial(self._attention, kernel="portable")}
        return calls | {paged(rows): partial(self._paged, rows) for rows in PAGES}

    @staticmethod
    def _batch_invariant(inputs: Any, out: Any) -> None:
        attention(inputs["q"], inputs["k"], inputs["v"], out=out, batch_invariant=True)

    @staticmethod
    def _paged(rows: int, inputs: Any, out: Any) -> None:
        caches = (each.reshape(-1, rows, *each.shape[2:]) for each in (inputs["k"], inputs["v"]))
        attention(inputs["q"], *caches, pages=inputs["tables"][rows], lengths_k=inputs["lengths"],
                  out=out)

    @cached_property
    def _others(self) -> dict[str, tuple[str, Call] | Absent]:
        others = super()._others
        return others if self._on_cpu else others | {"FlashAttention 2": self._torch("flash")}

    @cached_property
    def _read(self) -> DeviceRead:
        device, shape = self._context.device, self._shape
        numbers = shape.rows[1] * shape.kv_heads * (shape.dim + shape.value_dim)
        return DeviceRead(numbers * SIZES[self._dtype], device.name, cache_bytes(device))

    def engines(self) -> Mapping[str, Call]:
        return {} if self._on_cpu else {READ: self._read}

    def roof_parts(self) -> Mapping[str, Call]:
        return {}

    def roof_of_parts(self, ceilings: Mapping[str, float], parts_us: Mapping[str, float]) -> float:
        return self.roof_us(ceilings)
