"""Where checkpoints of transformers models have the weights of experts.

Most models are stored with three tensors per expert, whose names differ. transformers merges them
when it loads a model (its conversion_mapping.py); the tests compare this table with it. A type that is
not in the table is understood if transformers merges its experts from the usual names.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ._errors import InvalidArgument, Unsupported


@dataclass(frozen=True)
class Naming:
    """Tensors PREFIX.{folder}.{expert}.{gate}.weight and so on."""

    folder: str
    gate: str
    up: str
    down: str


MODULE = "mlp.experts"  # the end of the path of the modules with experts
_USUAL = Naming("mlp.experts", "gate_proj", "up_proj", "down_proj")
# By model_type. None: the checkpoint has the tensors of the module itself.
NAMINGS: dict[str, Naming | None] = {
    "deepseek_v2": _USUAL,
    "deepseek_v3": _USUAL,
    "glm4_moe": _USUAL,
    "gpt_oss": None,
    "mixtral": Naming("block_sparse_moe.experts", "w1", "w3", "w2"),
    "olmoe": _USUAL,
    "qwen2_moe": _USUAL,
    "qwen3_moe": _USUAL,
    "qwen3_next": _USUAL,
}
Conversions = dict[str, tuple[list[str], list[tuple[str, int | None]]]]
DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


@dataclass(frozen=True)
class Source:
    """Rows of a tensor of a checkpoint, and the elements of an expert's part that they are."""

    tensor: str
    layer: int
    expert: int
    part: str  # of the expert: gate_up, down, gate_up_bias or down_bias
    begin: int  # the first element in the part
    count: int
    first_row: int = 0
    rows: int = -1  # all
    dtype: str = "bfloat16"  # of the tensor
    place: tuple[int, int] = (0, 0)  # file and offset


def sources(checkpoint: Any, where: str, path: str, layer: int, experts: Any, prefix: str
            ) -> list[Source]:
    """Where `checkpoint`, whose name is `where`, has the weights of the experts of the module at
    `path`: layer `layer` of the store. `prefix` is the one that the names of the base model lack."""
    naming = _naming_of(experts.model_type)
    for start in (path, path.removeprefix(prefix + "."), f"{prefix}.{path}"):
        if f"{start}.gate_up_proj" in checkpoint:
            return list(_merged(checkpoint, where, start, layer, experts))
        if naming is None:
            continue
        folder = start.removesuffix(MODULE) + naming.folder
        if f"{folder}.0.{naming.gate}.weight" in checkpoint:
            return list(_per_expert(checkpoint, where, folder, naming, layer, experts))
    first = f"{path}.gate_up_proj"
    if naming is not None:
        first = f"{path.removesuffix(MODULE)}{naming.folder}.0.{naming.gate}.weight"
    raise InvalidArgument("path_or_name", f"a checkpoint with the tensor {first}",
                          f"{where}, which does not have it")


def _naming_of(model_type: str) -> Naming | None:
    if model_type in NAMINGS:
        return NAMINGS[model_type]
    if conversions(model_type) == merged_from(_USUAL):
        return _USUAL
    raise Unsupported(
        f"penstock.hf.load: expected a model of type {', '.join(NAMINGS)}, or one whose experts transformers "
        f"merges from {_USUAL.folder}.N.{_USUAL.gate}.weight, {_USUAL.up} and {_USUAL.down}, given {model_type}; "
        "load it with from_pretrained() and call penstock.hf.offload()")


def merged_from(naming: Naming) -> Conversions:
    """The conversions() of models with such names."""
    names = [f"{naming.folder}.*.{name}.weight" for name in (naming.gate, naming.up, naming.down)]
    merge, join = ("MergeModulelist", 0), ("Concatenate", 1)
    return {"gate_up_proj": (names[:2], [merge, join]), "down_proj": (names[2:], [merge])}


def conversions(model_type: str) -> Conversions:
    """From what transformers makes each tensor of a module with experts: the names in the checkpoint, and
    the operations with their dimensions. Empty if this version of transformers does not say so."""
    try:
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping
        from transformers.core_model_loading import WeightConverter
    except ImportError:
        return {}
    found: Conversions = {}
    for entry in get_checkpoint_conversion_mapping(model_type) or []:
        target = entry.target_patterns[0]
        if isinstance(entry, WeightConverter) and "experts" in target:
            found[target.rpartition(".")[2]] = (
                [each.lstrip(".") for each in entry.source_patterns],
                [(type(each).__name__, getattr(each, "dim", None)) for each in entry.operations])
    return found


def _per_expert(checkpoint: Any, where: str, folder: str, naming: Naming, layer: int, experts: Any
                ) -> Iterator[Source]:
    d, n = experts.hidden, experts.width
    for expert in range(experts.experts):
        for name, part, begin, shape in ((naming.gate, "gate_up", 0, (n, d)),
                                         (naming.up, "gate_up", n * d, (n, d)),
                                         (naming.down, "down", 0, (d, n))):
            tensor = f"{folder}.{expert}.{name}.weight"
            dtype, place, _ = _checked(checkpoint, where, tensor, shape)
            yield Source(tensor, layer, expert, part, begin, n * d, dtype=dtype, place=place)


def _merged(checkpoint: Any, where: str, path: str, layer: int, experts: Any) -> Iterator[Source]:
    """Tensors of all experts, in the order in which the module has them."""
    d, n = experts.hidden, experts.width
    shapes = {"gate_up": (2 * n, d), "down": (d, n)}
    if experts.transposed:
        shapes = {part: shape[::-1] for part, shape in shapes.items()}
    parts: dict[str, tuple[int, ...]] = dict(shapes)
    if experts.bias:
        parts |= {"gate_up_bias": (2 * n,), "down_bias": (d,)}
    for part, shape in parts.items():
        name = part.removesuffix("_bias")
        tensor = f"{path}.{name}_proj{part.removeprefix(name)}"
        dtype, (file, offset), nbytes = _checked(checkpoint, where, tensor, (experts.experts, *shape))
        for expert in range(experts.experts):
            begin = offset + nbytes // experts.experts * expert
            yield Source(tensor, layer, expert, part, 0, math.prod(shape), expert, 1, dtype,
                         (file, begin))


def _checked(checkpoint: Any, where: str, tensor: str, shape: tuple[int, ...]
             ) -> tuple[str, tuple[int, int], int]:
    """The dtype of a tensor, its file and offset, and its size."""
    if tensor not in checkpoint:
        raise InvalidArgument("path_or_name", f"a checkpoint with the tensor {tensor}",
                              f"{where}, which does not have it")
    dtype, given, file, offset, nbytes = checkpoint._files.info(tensor)
    if given != shape:
        raise InvalidArgument("path_or_name", f"{tensor} of shape {shape}, as config.json says",
                              f"{given} in {where}")
    if dtype not in DTYPES:
        raise Unsupported(f"penstock.hf.load: expected weights in BF16, F16 or F32, given {tensor} in "
                          f"{dtype}; quantised experts are not supported")
    return DTYPES[dtype], (file, offset), nbytes
