"""append_attention() for torch tensors: an operator that torch traces and compiles. It has no backward.
This module is imported at the first call with a tensor."""

from typing import Any, TypeAlias

import torch

from . import _core
from ._append_attention import run
from ._core import Array
from ._operators import EXCHANGES, as_tensors, bypasses, current_stream, define, tell_of_write

_NAMES = ("q", "k", "v", "lengths", "pages", "cu_new", "cos", "sin", "positions", "sinks", "first_k")
_WRITTEN = ("k_cache", "v_cache", "out", "lse")
_SCHEMA = ("(Tensor q, Tensor k, Tensor v, Tensor(a!)? lengths, Tensor? pages, Tensor? cu_new, "
           "Tensor? cos, Tensor? sin, Tensor? positions, Tensor? sinks, Tensor? first_k, "
           "SymInt length, bool advance, bool interleaved, bool causal, SymInt window_left, "
           "SymInt window_right, float softcap, float scale, SymInt max_q, SymInt max_k, str kernel, "
           "bool batch_invariant, bool check, Tensor(b!) k_cache, Tensor(c!) v_cache, Tensor(d!) out, "
           "Tensor(e!)? lse) -> ()")
Tuple: TypeAlias = tuple[Any, ...]


def append_attention(inputs: Tuple, options: Tuple, written: Tuple, stream: Any) -> None:
    if type(written[0]) is Array or type(written[1]) is Array:  # those of a KVCache
        written = as_tensors(written)
    if not bypasses("append_attention", inputs[:3], _NAMES + _WRITTEN, stream, inputs[3:] + written):
        torch.ops.penstock.append_attention(*inputs, *options, *written)
        return
    for name, each in zip(_WRITTEN, written):
        tell_of_write(name, each)
    if options[1]:  # advance
        tell_of_write("lengths", inputs[3])
    _run(inputs, options, written, stream)


def empty_like(q: Any, shape: Tuple, dtype: str | None) -> Any:
    # Takes less time than torch.empty(), and than with the shape as one argument.
    return q.new_empty(*shape, dtype=q.dtype if dtype is None else torch.float32)


def _run(inputs: Tuple, options: Tuple, written: Tuple, stream: Any = None) -> None:
    q = inputs[0]
    # From torch's allocator, which knows the current stream and CUDA graphs. Otherwise the library
    # allocates.
    allocates = stream is None and q.is_cuda
    if not EXCHANGES:
        stream = current_stream(stream, q)
    if stream is not None or not EXCHANGES:
        inputs = tuple(each if each is None else each.detach() for each in inputs)
    workspace = (q.new_empty(_workspace_bytes(inputs, options, written), dtype=torch.uint8)
                 if allocates else None)
    run(inputs, options, written, workspace, stream)


def _workspace_bytes(inputs: Tuple, options: Tuple, written: Tuple) -> int:
    q, _, _, _, pages, cu_new, cos, *_ = inputs
    k_cache, v_cache, *_ = written
    *_, max_q, max_k, kernel, batch_invariant, _ = options
    return _core.append_attention_workspace_bytes(q, k_cache, v_cache, cu_new, pages, cos, max_q, max_k,
                                                  kernel, batch_invariant)


def _operator(*arguments: Any) -> None:
    count = len(_NAMES)
    _run(arguments[:count], arguments[count:-len(_WRITTEN)], arguments[-len(_WRITTEN):])


define("append_attention", _SCHEMA, _operator, lambda *_: None)
