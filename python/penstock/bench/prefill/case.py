"""Cases of attention: queries, keys and values of whole sequences, as when a prompt is read."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ... import attention
from ..._dtypes import SIZES
from .._operator import Absent, Call, Case, Context, Peer
from .._values import empty, normal
from ..products import torch_peer as products
from ..products.large_product import PART, LargeProduct
from . import first_call, flash_peer, reference
from .numpy_peer import NumpyAttention
from .shapes import Sample, Shape, sample_of

# Larger than any result, which is a mean of normally distributed numbers, and smaller than both poisons
# in every dtype: what is not below it was never written.
LARGEST = 64.0
HOST_LARGE, QUICK_LARGE = 2048, 256  # sizes of the large product on the CPU, and if sizes are small
MEANING = ("the multiply-adds at the rate that {} reached in the same run for a product of {} x {} x {}, "
           "or the bytes at the measured copy rate, whichever takes longer")


class AttentionCase(Case):
    """Inputs are a dict of q (B, S, Hq, D), k (B, S, Hk, D) and v (B, S, Hk, Dv); or (rows, H, D) and
    `begins` (B + 1) of sequences of several lengths, or `begins_k` of their keys; `sinks` (Hq) if the shape
    has some.

    A few queries are compared with the reference. Every element of the result must have been written.
    """

    fewest_sets = 2  # so that no buffers are used twice in a row

    def __init__(self, context: Context, name: str, shape: Shape, new_process: bool = False) -> None:
        """`new_process`: the first call is also timed in a process of its own."""
        self.name = name
        self._context, self._shape, self._new_process = context, shape, new_process
        self._on_cpu = context.device.kind == "cpu"
        self._dtype = "f32" if self._on_cpu else shape.dtype  # NumPy has no bf16
        self.params = shape.params() | {"dtype": self._dtype}
        self.bytes, self.flop = shape.least_bytes(SIZES[self._dtype]), shape.flop
        self.tolerance = self._peer_tolerance = 0.0  # set by the reference
        longest = max(shape.packed) if shape.packed else None
        most_keys = max(shape.keys_of) if shape.keys_of else longest
        self._options: dict[str, Any] = {
            "causal": shape.causal, "softcap": shape.softcap, "max_q": longest, "max_k": most_keys,
            "window": None if shape.window is None else (shape.window, None)}
        size = self._large.size
        self.yardstick = MEANING.format("NumPy" if self._on_cpu else "torch", size, size, size)

    def make_inputs(self, rotation: int) -> Any:
        shape = self._shape
        queries, keys = shape.rows
        count = len(shape.sequences)
        lead_q = (queries,) if shape.packed else (count, queries // count)
        lead_k = (keys,) if shape.packed or shape.keys_of else (count, keys // count)
        sizes = {"q": (*lead_q, shape.heads, shape.dim), "k": (*lead_k, shape.kv_heads, shape.dim),
                 "v": (*lead_k, shape.kv_heads, shape.value_dim)}
        if shape.sinks:
            sizes["sinks"] = (shape.heads,)
        inputs = {name: normal(self._context, [rotation, part], size, self._dtype)
                  for part, (name, size) in enumerate(sizes.items())}
        if shape.packed:
            inputs["begins"] = self._begins(shape.packed, inputs["q"])
        if shape.keys_of:
            inputs["begins_k"] = self._begins(shape.keys_of, inputs["q"])
        return inputs

    @staticmethod
    def _begins(lengths: tuple[int, ...], like: Any) -> Any:
        import numpy

        return reference.given(numpy.cumsum([0, *lengths], dtype="i4"), like)

    def make_outputs(self, inputs: Any) -> Any:
        shape = (*inputs["q"].shape[:-1], self._shape.value_dim)
        return empty(self._context, tuple(shape), self._dtype)

    @cached_property
    def _sample(self) -> list[Sample]:
        return sample_of(self._shape, self._context.random(0))

    def _scaled(self, results: Any) -> Any:
        return results * reference.given(reference.scales(self._shape, self._sample), results)[
            :, None, None]

    def compared(self, result: Any) -> Any:
        import numpy

        rows = numpy.concatenate([part.first_row + part.queries for part in self._sample])
        all_rows = result.reshape(-1, *result.shape[-2:])
        unwritten = ~(abs(result) < LARGEST)  # true for NaN
        return [self._scaled(reference.wide(all_rows[reference.given(rows, result)])), unwritten.sum()]

    def reference(self, inputs: Any) -> Any:
        import numpy

        exact, coarse = map(self._scaled, reference.of_sample(self._shape, inputs, self._sample))
        self.tolerance = reference.tolerance(self._shape, self._dtype, exact, coarse)
        self._peer_tolerance = 2 * self.tolerance  # peers may round more often
        return [exact, numpy.zeros((), "i8")]

    def error(self, got: Any, wanted: Any) -> Any:
        return abs(got - wanted)

    def kernels(self) -> Mapping[str, Call]:
        return {"best": self._attention}

    def _attention(self, inputs: Any, out: Any, kernel: str = "best",
                   batch_invariant: bool = False) -> None:
        begins = inputs.get("begins")
        attention(inputs["q"], inputs["k"], inputs["v"], sinks=inputs.get("sinks"), cu_q=begins,
                  cu_k=inputs.get("begins_k", begins), out=out, kernel=kernel,
                  batch_invariant=batch_invariant, **self._options)

    @cached_property
    def _others(self) -> dict[str, tuple[str, Call] | Absent]:
        """Version and call of each peer."""
        if self._on_cpu:
            import numpy

            return {"numpy": (numpy.__version__, NumpyAttention(self._shape))}
        flash = flash_peer.version()
        return {"cuDNN": self._torch("cuDNN"), "FlashAttention": Absent(flash_peer.NEEDED)
                if flash is None else (flash, flash_peer.FlashAttention(self._shape))}

    def _torch(self, backend: str) -> tuple[str, Call] | Absent:
        from . import torch_peer

        return torch_peer.reason_against(self._shape) or (
            torch_peer.version(backend), torch_peer.TorchAttention(self._shape, backend))

    def peers(self) -> Mapping[str, Peer | Absent]:
        return {name: other if isinstance(other, Absent) else Peer(*other, self._peer_tolerance)
                for name, other in self._others.items()}

    @cached_property
    def _large(self) -> LargeProduct:
        size = QUICK_LARGE if self._context.quick else HOST_LARGE if self._on_cpu else None
        multiply = _multiply if self._on_cpu else products.multiply
        return LargeProduct(self._context, self._dtype, multiply, size)

    def roof_parts(self) -> Mapping[str, Call]:
        return {PART: self._large}

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        return self.bytes / ceilings["host_copy" if self._on_cpu else "device_copy"] * 1e6

    def roof_of_parts(self, ceilings: Mapping[str, float], parts_us: Mapping[str, float]) -> float:
        return max(self._large.us(parts_us[PART], self.flop), self.roof_us(ceilings))

    def more_metrics(self) -> dict[str, Any]:
        return first_call.metrics(self._context, self._shape) if self._new_process else {}


def _multiply(inputs: Any, out: Any) -> None:
    import numpy

    numpy.matmul(inputs[0], inputs[1].T, out=out)
