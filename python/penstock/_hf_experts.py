"""The experts of a transformers model as one call of moe(). penstock.hf registers experts().

transformers calls it with the module that holds the weights, whose class was decorated with
use_experts_implementation; the decorator's arguments are attributes of the module. torch traces all
of this file when it compiles a model, so it keeps to what torch can trace.
"""

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.compiler import is_compiling
from torch.nn.functional import pad
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from transformers import activations
from transformers.integrations.moe import _default_apply_gate
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

from ._errors import Unsupported
from ._moe_torch import moe
from ._operators import PLAIN

_WEIGHTS = "gate_up_proj", "down_proj"
_WEIGHTS_AND_BIASES = *_WEIGHTS, "gate_up_proj_bias", "down_proj_bias"
_DTYPES = torch.bfloat16, torch.float16, torch.float32
# What dequantises weights that have these dtypes.
_DEQUANTISING = {torch.uint8: "Mxfp4Config", torch.int8: "FineGrainedFP8Config",
                 torch.float8_e4m3fn: "FineGrainedFP8Config", torch.float8_e5m2: "FineGrainedFP8Config"}
_ACTIVATIONS = {torch.nn.SiLU: "swiglu", activations.SiLUActivation: "swiglu",
                activations.GELUActivation: "geglu", activations.GELUTanh: "geglu_tanh",
                activations.NewGELUActivation: "geglu_tanh"}
_MULTIPLE = 8  # moe() takes widths that are multiples of it
_MOST_EXPERTS = 1024


class Sizes(NamedTuple):
    """The sizes of a module with experts."""

    experts: int
    hidden: int
    width: int


class _Call(NamedTuple):
    """What the check of a module found out, for all calls until the module changes."""

    state: Any
    is_padded: bool
    layout: str
    options: tuple[Any, ...]  # in the order of the operator


# By module, and not an attribute of the module, which would be copied and pickled with it.
_calls: WeakKeyDictionary[Any, _Call] = WeakKeyDictionary()


def experts(module: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    """The weighted sum of the chosen experts, (tokens, d) like `hidden_states`."""
    call = _checked(module)
    gate_up, down = module.gate_up_proj, module.down_proj
    if module.is_transposed:
        gate_up, down = gate_up.mT, down.mT  # takes less time than transpose()
    gate_up_bias = module.gate_up_proj_bias if module.has_bias else None
    down_bias = module.down_proj_bias if module.has_bias else None
    dtype, d = hidden_states.dtype, down.shape[1]
    x = hidden_states if dtype == gate_up.dtype else hidden_states.to(gate_up.dtype)
    if call.is_padded:
        x = _padded(x, 1)
        gate_up = _padded(_padded_rows(gate_up, call.layout), 2)
        down = _padded(_padded(down, 1), 2)
        if module.has_bias:
            gate_up_bias = _padded_rows(gate_up_bias, call.layout)
            down_bias = _padded(down_bias, 1)
    inputs = (x, gate_up, down, top_k_index.contiguous(), top_k_weights.contiguous(), gate_up_bias,
              down_bias, None, None, None, None)
    out = moe(inputs, call.options, None, None, None)
    if call.is_padded:
        out = out[:, :d]
    return out if out.dtype == dtype else out.to(dtype)


def _checked(module: Any) -> _Call:
    """What the check of the module found out, which is repeated when the module has changed."""
    if is_compiling():
        return _check_anew(module, None)
    state = _state(module)
    call = _calls.get(module)
    if call is None or call.state != state:
        call = _calls[module] = _check_anew(module, state)
    return call


def _state(module: Any) -> Any:
    """All that the check looks at. Not the tensors themselves, whose memory that would keep."""
    own, kind = module.__dict__, type(module)
    parameters, has_bias = own["_parameters"], own.get("has_bias")
    weights = []
    for name in _WEIGHTS_AND_BIASES if has_bias else _WEIGHTS:
        tensor = parameters.get(name)
        if tensor is None:
            tensor = getattr(module, name, None)
        weights.append(None if tensor is None else (type(tensor), tensor.dtype, tensor.shape))
    return (weights, has_bias, own.get("has_gate"), own.get("is_transposed"),
            own.get("is_concatenated"), type(own["_modules"].get("act_fn")), own.get("_apply_gate"),
            getattr(kind, "_apply_gate", None), own.get("alpha"), own.get("limit"))


def _check_anew(module: Any, state: Any) -> _Call:
    name = type(module).__name__
    sizes = check(module, name)
    options = {"alpha": 1.702, "limit": 7.0, **activation(module, name)}
    layout = "concatenated" if module.is_concatenated else "interleaved"
    is_padded = sizes.hidden % _MULTIPLE != 0 or sizes.width % _MULTIPLE != 0
    return _Call(state, is_padded, layout, (options["activation"], options["alpha"], options["limit"],
                                            layout, "best", False, False))


def check(module: Any, name: str) -> Sizes:
    """Refuses experts that moe() does not compute, whatever their activation is. `name` is what
    messages call the module."""
    if not module.has_gate:
        raise Unsupported(f"penstock.hf: {name} has experts without a gate, which moe() does not "
                          "compute; use another experts_implementation")
    for part in _WEIGHTS_AND_BIASES if module.has_bias else _WEIGHTS:
        _check_kind(getattr(module, part), part, name)
        _check_dtype(getattr(module, part), module.gate_up_proj, part, name)
    return _checked_sizes(module, name)


def _check_kind(tensor: Any, part: str, name: str) -> None:
    if type(tensor) not in PLAIN and is_traceable_wrapper_subclass(tensor):
        raise Unsupported(f"penstock.hf: {name}: {part}: expected a plain tensor, given a "
                          f"{type(tensor).__name__}; load the model without quantisation and without "
                          "distributed tensors")


def _check_dtype(tensor: Any, first: Any, part: str, name: str) -> None:
    dtype = tensor.dtype
    if dtype not in _DTYPES:
        instead = "convert the model, with model.to(torch.bfloat16)"
        if dtype in _DEQUANTISING:
            instead = ("load the model with dequantised weights, by quantization_config="
                       f"{_DEQUANTISING[dtype]}(dequantize=True)")
        raise Unsupported(f"penstock.hf: {name}: {part}: expected expert weights in bf16, f16 or f32, "
                          f"given {dtype}; {instead}")
    if dtype != first.dtype:
        raise Unsupported(f"penstock.hf: {name}: {part}: expected {first.dtype}, the dtype of "
                          f"gate_up_proj, given {dtype}; convert the model to one of them")


def _checked_sizes(module: Any, name: str) -> Sizes:
    gate_up, down = module.gate_up_proj, module.down_proj
    if gate_up.dim() != 3 or down.dim() != 3:
        raise Unsupported(f"penstock.hf: {name} has weights of {gate_up.dim()} and {down.dim()} "
                          "dimensions, expected 3")
    count, rows, hidden = gate_up.shape
    if module.is_transposed:
        rows, hidden = hidden, rows
    width = rows // 2
    expected: dict[str, tuple[int, ...]] = {
        "down_proj": (count, width, hidden) if module.is_transposed else (count, hidden, width)}
    if module.has_bias:
        expected |= {"gate_up_proj_bias": (count, rows), "down_proj_bias": (count, hidden)}
    for part, shape in expected.items():
        given = tuple(getattr(module, part).shape)
        if given != shape or rows % 2:
            raise Unsupported(f"penstock.hf: {name} has gate_up_proj of shape {tuple(gate_up.shape)} and "
                              f"{part} of shape {given}, which do not fit together")
    if count > _MOST_EXPERTS:
        raise Unsupported(f"penstock.hf: {name} has {count} experts, expected at most {_MOST_EXPERTS}")
    return Sizes(count, hidden, width)


def activation(module: Any, name: str) -> dict[str, Any]:
    """The arguments of moe() that give the module's gate."""
    gate = None if "_apply_gate" in module.__dict__ else type(module)._apply_gate
    if gate is _default_apply_gate:
        known = _ACTIVATIONS.get(type(module.act_fn))
        if known is None:
            raise Unsupported(f"penstock.hf: {name} has the activation {type(module.act_fn).__name__}, "
                              "expected silu, gelu or gelu_pytorch_tanh; use another "
                              "experts_implementation")
        return {"activation": known}
    if gate is GptOssExperts._apply_gate:
        return {"activation": "clamped_swiglu", "alpha": module.alpha, "limit": module.limit}
    raise Unsupported(f"penstock.hf: {name} has a gate of its own, _apply_gate(), which moe() does not "
                      "compute; use another experts_implementation")


def _padded(tensor: Any, dimension: int) -> Any:
    """Zeros added at the end of a dimension, up to a width that moe() takes."""
    missing = -tensor.shape[dimension] % _MULTIPLE
    return pad(tensor, (0, 0) * (tensor.dim() - 1 - dimension) + (0, missing))


def _padded_rows(gate_up: Any, layout: str) -> Any:
    """The same for the rows of gate and of up, which dimension 1 holds."""
    count, rows = gate_up.shape[:2]
    if layout == "interleaved":
        shape = (count, rows // 2, 2, *gate_up.shape[2:])
        return _padded(gate_up.reshape(shape), 1).flatten(1, 2)
    shape = (count, 2, rows // 2, *gate_up.shape[2:])
    return _padded(gate_up.reshape(shape), 2).flatten(1, 2)
