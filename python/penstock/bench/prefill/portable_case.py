"""Cases of attention with the kernel that runs on every supported GPU."""

from collections.abc import Mapping
from functools import cached_property, partial

from .._operator import Absent, Call
from .case import AttentionCase


class PortableCase(AttentionCase):
    """The portable kernel is compared with torch's FlashAttention 2, which does not take f32; there, with
    torch's memory-efficient kernel. The kernel that `best` chooses stands beside it."""

    def kernels(self) -> Mapping[str, Call]:
        if self._on_cpu:
            return super().kernels()
        return {kernel: partial(self._attention, kernel=kernel) for kernel in ("portable", "best")}

    @cached_property
    def _others(self) -> dict[str, tuple[str, Call] | Absent]:
        if self._on_cpu:
            return super()._others
        if self._dtype == "f32":
            return {"efficient": self._torch("efficient")}
        return {"FlashAttention 2": self._torch("flash")}
