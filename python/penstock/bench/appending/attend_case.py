"""Cases of append_attention: a step of a generation in one call."""

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from ... import append_attention, append_kv, attention
from .._captured import Captured
from .._operator import Absent, Call, Peer
from .._values import normal
from ..decoding.case import DecodeCase
from ..decoding.paged_case import PAGES, in_pages, integers, paged
from ..prefill.reference import wide
from . import rotary

# Appended rows are divided by this number before they are compared. Their roundings are then far below the
# tolerance, which is that of attention, and rows that were not rotated far above.
ROW_SCALE = 4.0


class Outputs(list[Any]):
    """The result, and the inputs of the call, whose caches it writes."""

    inputs: Any = None


class AttendCase(DecodeCase):
    """The last rows of the inputs `k` and `v`, the caches, are NaN until a call writes the new rows there.

    Every call writes the same rows at the same places, so it can be repeated.
    """

    def make_inputs(self, rotation: int) -> Any:
        inputs, shape = super().make_inputs(rotation), self._shape
        new = shape.length
        for part, name in enumerate(("k", "v")):
            inputs[f"{name}_new"] = normal(self._context, [rotation, 10 + part],
                                           (shape.batch, new, *inputs[name].shape[2:]), self._dtype)
            inputs[name][:, -new:] = float("nan")
        inputs["had"] = integers([shape.keys - new] * shape.batch, inputs["q"])
        inputs["cos"], inputs["sin"] = rotary.tables(shape.keys, shape.dim, inputs["q"])
        inputs["q_out"] = inputs["q"] + 0  # room for it
        return inputs

    def make_outputs(self, inputs: Any) -> Any:
        return Outputs([super().make_outputs(inputs)])

    def compared(self, result: Any) -> Any:
        caches = [wide(result.inputs[name][:, -self._shape.length:]) / ROW_SCALE for name in ("k", "v")]
        return [*super().compared(result[0]), *caches]

    def reference(self, inputs: Any) -> Any:
        new = self._shape.length
        tables = inputs["cos"][-new:], inputs["sin"][-new:]
        q, k = (rotary.rotated(inputs[name], *tables, False) for name in ("q", "k_new"))
        rows = {"k": k, "v": wide(inputs["v_new"])}
        for name, each in rows.items():
            inputs[name][:, -new:] = _in_dtype_of(inputs[name], each)
        whole = inputs | {"q": _in_dtype_of(inputs["q"], q)}
        return [*super().reference(whole), *(each / ROW_SCALE for each in rows.values())]

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        calls: dict[str, Call] = {"best": self._in_one, "append_kv, attention": self._in_two}
        if not self._on_cpu:
            calls["captured"] = Captured(self._in_one)
        return calls | {paged(rows): partial(self._in_one, page=rows) for rows in PAGES}

    def kernels(self) -> Mapping[str, Call]:
        return self._kernels

    def _in_one(self, inputs: Any, outputs: Any, page: int = 0) -> None:
        outputs.inputs = inputs
        caches = in_pages(page, inputs["k"], inputs["v"]) if page else (inputs["k"], inputs["v"])
        append_attention(inputs["q"], inputs["k_new"], inputs["v_new"], *caches, lengths=inputs["had"],
                         pages=inputs["tables"][page] if page else None, cos=inputs["cos"],
                         sin=inputs["sin"], out=outputs[0], **self._options)

    def _in_two(self, inputs: Any, outputs: Any) -> None:
        outputs.inputs = inputs
        caches = inputs["k"], inputs["v"]
        append_kv(inputs["k_new"], inputs["v_new"], *caches, lengths=inputs["had"], cos=inputs["cos"],
                  sin=inputs["sin"], q=inputs["q"], q_out=inputs["q_out"])
        attention(inputs["q_out"], *caches, lengths_k=inputs["lengths"], out=outputs[0], **self._options)

    def peers(self) -> Mapping[str, Peer | Absent]:
        return {}


def _in_dtype_of(like: Any, array: Any) -> Any:
    return array.astype(like.dtype) if hasattr(array, "astype") else array.to(like.dtype)
