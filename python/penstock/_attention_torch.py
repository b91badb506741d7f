"""attention() for torch tensors: operators that torch traces and compiles. They have no backward.

Functions take the input tensors, some of which may be None, and the other options as two tuples, in
the order of the schema. This module is imported at the first call with a tensor.
"""

from typing import Any, TypeAlias

import torch
from torch import empty, float32, is_grad_enabled, uint8

from . import _core
from ._attention_arguments import result_shapes
from ._core import Array
from ._operators import (EXCHANGES, as_tensors, bypasses, current_stream, define, have_tangents,
                         no_backward, tell_of_write)

_NEEDED = ("q", "k", "v")
_OPTIONAL = ("sinks", "cu_q", "cu_k", "first_k", "lengths_k", "pages")
_NO_OPTIONAL = (None,) * len(_OPTIONAL)
_NAMES = _NEEDED + _OPTIONAL
_TENSORS = [f"Tensor {name}" for name in _NEEDED] + [f"Tensor? {name}" for name in _OPTIONAL]
_SCHEMA = (", ".join(_TENSORS) + ", bool causal, SymInt window_left, SymInt window_right, "
           "float softcap, float scale, SymInt max_q, SymInt max_k, str kernel, "
           "bool batch_invariant, bool check")
Tuple: TypeAlias = tuple[Any, ...]

_MOST_SIZES = 1024
_sizes: dict[Tuple, int] = {}  # of workspaces


def attention(inputs: Tuple, options: Tuple, out: Any, return_lse: bool, stream: Any) -> Any:
    if type(inputs[1]) is Array or type(inputs[2]) is Array:  # those of a KVCache
        inputs = as_tensors(inputs)
    shape, lse_shape = result_shapes(inputs[0], inputs[2], inputs[4])
    if not bypasses("attention", inputs[:3], _NAMES, stream, inputs[3:]):
        if out is None:
            out, lse = torch.ops.penstock.attention(*inputs, *options, return_lse)
        else:
            lse = _lse(inputs) if return_lse else None
            torch.ops.penstock.attention_out(*inputs, *options, out, lse)
        return (out, lse) if return_lse else out
    # new_empty() takes less time than empty(), and sizes as several arguments less than as one.
    if out is None:
        out = inputs[0].new_empty(*shape)
    else:
        tell_of_write("out", out)
    lse = inputs[0].new_empty(*lse_shape, dtype=float32) if return_lse else None
    _run(inputs, options, out, lse, stream)
    return (out, lse) if return_lse else out


def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float,
                                 is_causal: bool, scale: float | None, enable_gqa: bool) -> Any:
    if attn_mask is not None or dropout_p != 0 or not _takes(query, key, value, is_causal, scale,
                                                             enable_gqa):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if is_causal:
        # Query i attends to keys 0 to i, so keys behind the last query have no effect; without them
        # the last query is at the position of the last key.
        key, value = key[:, :, :query.shape[2]], value[:, :, :query.shape[2]]
    swapped = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    options = is_causal, -1, -1, 0.0, 0.0 if scale is None else scale, 0, 0, "best", False, False
    return attention(swapped + _NO_OPTIONAL, options, None, False, None).transpose(1, 2)


def _takes(query: Any, key: Any, value: Any, is_causal: bool, scale: float | None,
           enable_gqa: bool) -> bool:
    """Whether attention() computes what torch does for these arguments."""
    # Loops, as all() of a generator takes a multiple of their time.
    tensors, learns = (query, key, value), is_grad_enabled()
    for each in tensors:
        if not isinstance(each, torch.Tensor) or each.dim() != 4 or learns and each.requires_grad:
            return False
    if query.dtype not in (torch.bfloat16, torch.float16, torch.float32) or _is_cast(query):
        return False
    if have_tangents(tensors):
        return False
    for each in (key, value):
        if each.dtype != query.dtype or each.device != query.device:
            return False
    if scale == 0 or not (query.is_cpu or query.is_cuda) or has_slow_kernel(query):
        return False
    if query.is_cuda and torch.cuda.get_device_properties(query.device).major < 8:
        return False
    batch, heads, rows, dim = query.shape
    heads_k, keys, dim_v = key.shape[1], key.shape[2], value.shape[3]
    if key.shape != (batch, heads_k, keys, dim) or value.shape != (batch, heads_k, keys, dim_v):
        return False
    if heads == 0 or heads_k == 0 or heads % heads_k or (heads != heads_k and not enable_gqa):
        return False
    if is_causal and rows > keys:
        return False
    if not (0 < dim <= 256 and dim % 8 == 0 and 0 < dim_v <= 256 and dim_v % 8 == 0):
        return False
    return _aligned(query) and _aligned(key) and _aligned(value)


def has_slow_kernel(tensor: Any) -> bool:
    """Whether torch's function should compute calls with tensors like this one: f32 on a GPU, for which
    attention() has kernels without tensor cores alone."""
    return bool(tensor.is_cuda and tensor.dtype == torch.float32)


def _is_cast(tensor: Any) -> bool:
    """Whether autocast makes torch's function compute in another dtype."""
    device = tensor.device.type
    return bool(torch.is_autocast_enabled(device)
                and torch.get_autocast_dtype(device) != tensor.dtype)


def _aligned(tensor: Any) -> bool:
    """Whether rows are contiguous and, on a GPU, begin at multiples of 16 bytes."""
    if tensor.numel() == 0 or tensor.stride(3) != 1:
        return bool(tensor.numel() == 0)
    if tensor.is_cpu:
        return True
    each = 16 // tensor.element_size()
    for stride in tensor.stride()[:3]:
        if stride % each:
            return False
    # While a graph is compiled, offsets are unknown: the operator copies what it does not take.
    return torch.compiler.is_compiling() or bool(tensor.storage_offset() % each == 0)


def _begins_aligned(tensor: Any) -> Any:
    return tensor if tensor.is_cpu or tensor.data_ptr() % 16 == 0 else tensor.clone()


def _result(inputs: Tuple) -> Any:
    q, _, v, _, cu_q, *_ = inputs
    return empty(result_shapes(q, v, cu_q)[0], dtype=q.dtype, device=q.device)


def _lse(inputs: Tuple) -> Any:
    q, _, v, _, cu_q, *_ = inputs
    return empty(result_shapes(q, v, cu_q)[1], dtype=torch.float32, device=q.device)


def _no_lse(inputs: Tuple) -> Any:
    """What an operator returns instead, since its schema has no optional results."""
    return empty(0, dtype=torch.float32, device=inputs[0].device)


def _run(inputs: Tuple, options: Tuple, out: Any, lse: Any, stream: Any = None) -> None:
    q = inputs[0]
    # From torch's allocator, which knows the current stream and CUDA graphs. Otherwise the library
    # allocates.
    allocates = stream is None and q.is_cuda
    if not EXCHANGES:
        stream = current_stream(stream, q)
    if stream is not None or not EXCHANGES:
        inputs = tuple(each if each is None else each.detach() for each in inputs)
    workspace = (q.new_empty(_workspace_bytes(inputs, options), dtype=uint8) if allocates else None)
    arguments = *inputs, *options, out, lse, workspace, stream
    _core.attention(*arguments)


def _workspace_bytes(inputs: Tuple, options: Tuple) -> int:
    q, k, v, _, cu_q, cu_k, _, _, pages = inputs
    *_, max_q, max_k, kernel, batch_invariant, _ = options
    if EXCHANGES:  # the library reads the shapes as fast as a key is made of them
        return _core.attention_workspace_bytes(q, k, v, cu_q, cu_k, pages, max_q, max_k, kernel,
                                               batch_invariant)
    # Without batch_invariant they do not depend on the number of keys, so that a cache that grows
    # does not fill the table.
    # The library checks the number of dimensions of k.
    key = (q.shape, k.shape[-2:-1], v.shape[-1], q.dtype, cu_q if cu_q is None else cu_q.shape, max_q,
           kernel)
    found = None if batch_invariant else _sizes.get(key)
    if found is None:
        found = _core.attention_workspace_bytes(q, k, v, cu_q, cu_k, pages, max_q, max_k, kernel,
                                                batch_invariant)
        if not batch_invariant:
            if len(_sizes) >= _MOST_SIZES:
                _sizes.clear()
            _sizes[key] = found
    return found


def _attention(*arguments: Any) -> Any:
    inputs, (*options, return_lse) = arguments[:len(_NAMES)], arguments[len(_NAMES):]
    inputs = tuple(_begins_aligned(each) for each in inputs[:3]) + inputs[3:]
    out = _result(inputs)
    lse = _lse(inputs) if return_lse else None
    _run(inputs, tuple(options), out, lse)
    return out, lse if return_lse else _no_lse(inputs)


def _attention_out(*arguments: Any) -> None:
    inputs, (*options, out, lse) = arguments[:len(_NAMES)], arguments[len(_NAMES):]
    _run(inputs, tuple(options), out, lse)


def _fake(*arguments: Any) -> Any:
    inputs, return_lse = arguments[:len(_NAMES)], arguments[-1]
    return _result(inputs), _lse(inputs) if return_lse else _no_lse(inputs)


define("attention", f"({_SCHEMA}, bool return_lse) -> (Tensor, Tensor)", _attention, _fake)
define("attention_out", f"({_SCHEMA}, Tensor(a!) out, Tensor(b!)? lse) -> ()", _attention_out,
       lambda *_: None)
no_backward("attention")
