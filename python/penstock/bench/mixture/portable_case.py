"""Cases of moe with the kernel that runs on every supported GPU."""

from collections.abc import Mapping
from functools import cached_property, partial

from .._operator import Absent, Call, Peer
from .layer_case import LayerCase

class PortableCase(LayerCase):
    """The portable kernel is compared with torch; the one for this GPU stands beside it, except for f32,
    which has no other."""

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        if self._on_cpu:
            return {"best": self._layer}
        kernels = ("portable",) if self._arrays.dtype == "f32" else ("portable", "best")
        return {kernel: partial(self._layer, kernel=kernel) for kernel in kernels}

    def peers(self) -> Mapping[str, Peer | Absent]:
        return {name: peer for name, peer in super().peers().items() if name != "SonicMoE"}
