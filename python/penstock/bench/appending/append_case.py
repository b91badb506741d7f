"""Cases of append_kv: new rows are rotated and written behind those that a cache has."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ... import append_kv
from ..._dtypes import SIZES
from .._arrays import torch_of
from .._captured import Captured
from .._device_copy import device_copy
from .._operator import Absent, Call, Case, Context, Peer
from .._rotation import cache_bytes
from .._values import HALF_STEPS, empty, normal
from ..decoding.paged_case import integers
from ..prefill.reference import given, wide
from . import rotary

F32_ROUNDINGS = 32  # of the largest numbers, by which a sum of two products may be off
PEER_ROUNDINGS = 16  # of a peer that rounds each product, and sums of which cancel


@dataclass(frozen=True)
class Append:
    """`new` rows for each of `sequences` that have `had` rows. With `page`, the cache has pages of so many
    rows."""

    sequences: int
    new: int
    had: int = 0
    page: int = 0
    interleaved: bool = False
    heads: int = 32
    heads_kv: int = 8
    dim: int = 128

    @property
    def pages(self) -> int:
        """Of each sequence."""
        return -(-(self.had + self.new) // self.page)


class Outputs(list[Any]):
    """The rotated queries and both caches. Unlike a tuple, it can be referenced weakly, by captured
    calls."""


class AppendCase(Case):
    """All rows that are written are compared with the reference, where they are, and no other row may have
    changed."""

    def __init__(self, context: Context, name: str, append: Append) -> None:
        self.name = name
        self._context, self._append = context, append
        self._on_cpu = context.device.kind == "cpu"
        self._dtype = "f32" if self._on_cpu else "bf16"  # NumPy has no bf16
        self.params = asdict(append) | {"dtype": self._dtype}
        self.tolerance = HALF_STEPS[self._dtype] + F32_ROUNDINGS * HALF_STEPS["f32"]
        rows, both = append.sequences * append.new, append.heads + append.heads_kv
        tables = 2 * append.new * append.dim // 2 * SIZES["f32"]
        self.bytes = 2 * rows * append.dim * (both + append.heads_kv) * SIZES[self._dtype] + tables
        self.flop = 3 * rows * append.dim * both

    def make_inputs(self, rotation: int) -> Any:
        append = self._append
        heads = {"q": append.heads, "k": append.heads_kv, "v": append.heads_kv}
        inputs = {name: normal(self._context, [rotation, part],
                               (append.sequences, append.new, count, append.dim), self._dtype)
                  for part, (name, count) in enumerate(heads.items())}
        like = inputs["q"]
        inputs["lengths"] = integers([append.had] * append.sequences, like)
        cos, sin = rotary.tables(append.had + append.new, append.dim, like)
        inputs |= {"cos": cos, "sin": sin}
        if append.page:
            inputs["pages"] = integers(self._table(rotation), like)
        # What a peer needs besides: it computes neither at every call.
        inputs["doubled"] = [rotary.doubled(each[append.had:], like) for each in (cos, sin)]
        inputs["rows"] = given(self._rows(rotation), like)
        return inputs

    def _table(self, rotation: int) -> Any:
        append = self._append
        count = append.sequences * append.pages
        return self._context.random(rotation).permutation(count).reshape(append.sequences, -1)

    def _rows(self, rotation: int) -> Any:
        """Where the new rows are among all rows of the cache (sequences, new)."""
        import numpy

        append = self._append
        rows = numpy.arange(append.had, append.had + append.new)
        if not append.page:
            return rows + (append.had + append.new) * numpy.arange(append.sequences)[:, None]
        return self._table(rotation)[:, rows // append.page] * append.page + rows % append.page

    def make_outputs(self, inputs: Any) -> Any:
        append = self._append
        lead = (append.sequences * append.pages, append.page) if append.page else (
            append.sequences, append.had + append.new)
        cache = (*lead, append.heads_kv, append.dim)
        return Outputs(empty(self._context, shape, self._dtype)
                       for shape in (tuple(inputs["q"].shape), cache, cache))

    @cached_property
    def _answer(self) -> list[Any]:
        """The rotated queries and keys, and the values, in higher precision."""
        append, inputs = self._append, self.make_inputs(0)
        tables = inputs["cos"][append.had:], inputs["sin"][append.had:]
        return [*(rotary.rotated(inputs[name], *tables, append.interleaved) for name in ("q", "k")),
                wide(inputs["v"])]

    def compared(self, result: Any) -> Any:
        """The largest errors of the rotated queries and of the new rows of both caches, and how many bytes
        of other rows have changed: before, all bytes were the same."""
        import numpy

        q, *caches = result
        rows, flat = self._rows(0), [each.reshape(-1, *each.shape[2:]) for each in caches]
        others = numpy.setdiff1d(numpy.arange(len(flat[0])), rows)
        written = [q, *(each[given(rows, q)] for each in flat)]
        return [*(_largest_error(got, wanted) for got, wanted in zip(written, self._answer)),
                sum(_changed(each[given(others, q)]) for each in flat)]

    def reference(self, inputs: Any) -> Any:
        import numpy

        return [numpy.zeros(())] * 3 + [numpy.zeros((), "i8")]

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        captured: dict[str, Call] = {} if self._on_cpu else {"captured": Captured(self._best)}
        return {"best": self._best, **captured}

    def kernels(self) -> Mapping[str, Call]:
        return self._kernels

    def _best(self, inputs: Any, outputs: Any) -> None:
        q_out, k_cache, v_cache = outputs
        append_kv(inputs["k"], inputs["v"], k_cache, v_cache, lengths=inputs["lengths"],
                  pages=inputs.get("pages"), cos=inputs["cos"], sin=inputs["sin"], q=inputs["q"],
                  q_out=q_out, interleaved=self._append.interleaved)

    @cached_property
    def _peers(self) -> dict[str, Peer | Absent]:
        tolerance = PEER_ROUNDINGS * HALF_STEPS[self._dtype]
        if self._on_cpu:
            import numpy

            return {"numpy": self._plain(numpy.__version__, tolerance)}
        import torch

        device = self._context.device
        return {"torch": self._plain(torch.__version__, tolerance),
                **device_copy(self.bytes, device.name, cache_bytes(device))}

    def _plain(self, version: str, tolerance: float) -> Peer | Absent:
        if self._append.interleaved:
            return Absent("it rotates halves")
        return Peer(version, _by_operations, tolerance)

    def peers(self) -> Mapping[str, Peer | Absent]:
        return self._peers

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        return self.bytes / ceilings["host_copy" if self._on_cpu else "device_copy"] * 1e6


def _by_operations(inputs: Any, outputs: Any) -> None:
    """As models in torch do it: operation by operation."""
    q_out, k_cache, v_cache = outputs
    q_out[:] = rotary.by_halves(inputs["q"], *inputs["doubled"])
    k = rotary.by_halves(inputs["k"], *inputs["doubled"])
    for cache, new in ((k_cache, k), (v_cache, inputs["v"])):
        cache.reshape(-1, *cache.shape[2:])[inputs["rows"]] = new


def _largest_error(got: Any, wanted: Any) -> Any:
    """Relative where the right number is above 1. NaN if there is any."""
    return (abs(wide(got) - wanted) / rotary.library_of(got).clip(abs(wanted), 1, None)).max()


def _changed(rows: Any) -> Any:
    """The number of bytes that are not the first one."""
    import numpy

    torch = torch_of(rows)
    flat = rows.reshape(-1)
    seen = flat.view("u1") if torch is None else flat.view(torch.uint8)
    return (seen != seen[:1]).sum() if len(seen) else numpy.zeros((), "i8")
