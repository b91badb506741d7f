"""The experts of a transformers model as one call of moe(). penstock.hf registers experts().

transformers calls it with the module that holds the weights, whose class was decorated with
use_experts_implementation; the decorator's arguments are attributes of the module. torch traces all
of this file when it compiles a model, so it keeps to what torch can trace.
"""

from typing import Any

import torch
from torch.nn.functional import pad
from transformers import activations
from transformers.integrations.moe import _default_apply_gate
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

from ._errors import Unsupported
from ._moe import moe

_DTYPES = torch.bfloat16, torch.float16, torch.float32
_ACTIVATIONS = {torch.nn.SiLU: "swiglu", activations.SiLUActivation: "swiglu",
                activations.GELUActivation: "geglu", activations.GELUTanh: "geglu_tanh",
                activations.NewGELUActivation: "geglu_tanh"}
_MULTIPLE = 8  # moe() takes widths that are multiples of it


def experts(module: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    """The weighted sum of the chosen experts, (tokens, d) like `hidden_states`."""
    _check(module)
    gate_up, down = module.gate_up_proj, module.down_proj
    if module.is_transposed:
        gate_up, down = gate_up.transpose(1, 2), down.transpose(1, 2)
    gate_up_bias = module.gate_up_proj_bias if module.has_bias else None
    down_bias = module.down_proj_bias if module.has_bias else None
    layout = "concatenated" if module.is_concatenated else "interleaved"
    x, d = hidden_states.to(gate_up.dtype), down.shape[1]
    if d % _MULTIPLE or down.shape[2] % _MULTIPLE:
        x = _padded(x, 1)
        gate_up = _padded(_padded_rows(gate_up, layout), 2)
        down = _padded(_padded(down, 1), 2)
        if module.has_bias:
            gate_up_bias = _padded_rows(gate_up_bias, layout)
            down_bias = _padded(down_bias, 1)
    out = moe(x, gate_up, down, top_k_index.contiguous(), top_k_weights.contiguous(),
              gate_up_bias=gate_up_bias, down_bias=down_bias, layout=layout, **_activation(module))
    return out[:, :d].to(hidden_states.dtype)


def _check(module: Any) -> None:
    if not module.has_gate:
        raise Unsupported(f"penstock: {type(module).__name__} has experts without a gate, which moe() "
                          "does not compute; use another experts_implementation")
    weights = module.gate_up_proj, module.down_proj
    if weights[0].dtype not in _DTYPES or weights[1].dtype != weights[0].dtype:
        raise Unsupported(
            f"penstock: expected expert weights in bf16, f16 or f32, given {weights[0].dtype}; load "
            "the model with dequantised weights, by quantization_config="
            "FineGrainedFP8Config(dequantize=True) or Mxfp4Config(dequantize=True)")


def _activation(module: Any) -> dict[str, Any]:
    """The arguments of moe() that give the module's gate."""
    gate = None if "_apply_gate" in module.__dict__ else type(module)._apply_gate
    if gate is _default_apply_gate:
        name = _ACTIVATIONS.get(type(module.act_fn))
        if name is None:
            raise Unsupported(f"penstock: {type(module).__name__} has the activation "
                              f"{type(module.act_fn).__name__}, expected silu, gelu or "
                              "gelu_pytorch_tanh; use another experts_implementation")
        return {"activation": name}
    if gate is GptOssExperts._apply_gate:
        return {"activation": "clamped_swiglu", "alpha": module.alpha, "limit": module.limit}
    raise Unsupported(f"penstock: {type(module).__name__} has a gate of its own, _apply_gate(), "
                      "which moe() does not compute; use another experts_implementation")


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
