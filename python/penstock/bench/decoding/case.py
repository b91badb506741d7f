"""Cases of attention of few queries per sequence, as when text is generated: reading keys and values takes
most of the time."""

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from ..._dtypes import SIZES
from .._captured import Captured
from .._device_read import DeviceRead
from .._operator import Absent, Call, Case, Context
from .._rotation import cache_bytes
from ..prefill.shapes import Shape
from .paged_case import PagedCase

READ = "read of the keys and values"


class DecodeCase(PagedCase):
    """With `brief`, without the other kernels and without the peer that has to compile."""

    def __init__(self, context: Context, name: str, shape: Shape, brief: bool = False) -> None:
        super().__init__(context, name, shape)
        self.yardstick = Case.yardstick
        self._brief = brief

    def kernels(self) -> Mapping[str, Call]:
        calls = dict(super().kernels())
        if self._on_cpu:
            return calls
        calls["batch invariant"] = partial(self._attention, batch_invariant=True)
        if not self._brief:
            calls |= {"captured": Captured(self._attention),
                      "decode_portable": partial(self._attention, kernel="decode_portable"),
                      "one block per head": partial(self._attention, kernel="portable")}
        return calls

    @cached_property
    def _others(self) -> dict[str, tuple[str, Call] | Absent]:
        others = super()._others
        if self._on_cpu:
            return others
        if self._brief:
            others = {"cuDNN": others["cuDNN"]}
        return others | {"FlashAttention 2": self._torch("flash"), "efficient": self._torch("efficient")}

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
