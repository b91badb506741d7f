"""append_kv() and KVCache.append() for torch tensors. append_kv() is an operator that torch traces
and compiles. They have no backward. This module is imported at the first call with a tensor."""

from typing import Any, TypeAlias

import torch

from . import _core
from ._append_kv import rotated
from ._core import Array
from ._errors import Unsupported
from ._operators import (EXCHANGES, as_tensors, bypasses, current_stream, define, is_traced,
                         tell_of_write)

_NAMES = ("k", "v", "lengths", "pages", "cu_new", "cos", "sin", "positions", "q")
_WRITTEN = ("k_cache", "v_cache", "q_out")
_SCHEMA = ("(Tensor k, Tensor v, Tensor(a!)? lengths, Tensor? pages, Tensor? cu_new, Tensor? cos, "
           "Tensor? sin, Tensor? positions, Tensor? q, SymInt length, bool advance, bool interleaved, "
           "bool check, Tensor(b!) k_cache, Tensor(c!) v_cache, Tensor(d!)? q_out) -> ()")
Tuple: TypeAlias = tuple[Any, ...]


def append_kv(inputs: Tuple, options: Tuple, written: Tuple, stream: Any) -> Any:
    k_cache, v_cache, q_out = written
    if type(k_cache) is Array or type(v_cache) is Array:  # those of a KVCache
        k_cache, v_cache = as_tensors((k_cache, v_cache))
    q_out = rotated(inputs[-1], q_out, _empty)
    written = k_cache, v_cache, q_out
    if not _bypasses("append_kv", inputs, written, stream):
        torch.ops.penstock.append_kv(*inputs, *options, *written)
    else:
        for name, each in zip(_WRITTEN, written):
            tell_of_write(name, each)
        if options[1]:  # advance
            tell_of_write("lengths", inputs[2])
        _run(inputs, options, written, stream)
    return q_out


def append_to(cache: Any, layer: int, inputs: Tuple, q_out: Any, interleaved: bool,
              stream: Any) -> Any:
    """KVCache.append()."""
    if is_traced():
        raise Unsupported("KVCache.append cannot be traced by torch, as the number of rows is kept on "
                          "the host; use append_kv on KVCache.whole_k and whole_v")
    q_out = rotated(inputs[-1], q_out, _empty)
    _bypasses("KVCache.append", inputs, (), stream)
    tell_of_write("q_out", q_out)
    stream, inputs = _prepared(inputs, stream)
    k, v, _, _, _, cos, sin, positions, q = inputs
    cache._append(layer, k, v, cos, sin, positions, q, q_out, interleaved, stream)
    return q_out


def _bypasses(operator: str, inputs: Tuple, written: Tuple, stream: Any) -> bool:
    return bypasses(operator, inputs[:2], _NAMES + _WRITTEN, stream, inputs[2:] + written)


def _empty(q: Any, shape: Tuple) -> Any:
    return q.new_empty(*shape)


def _prepared(inputs: Tuple, stream: Any) -> tuple[Any, Tuple]:
    if not EXCHANGES:
        stream = current_stream(stream, inputs[0])
    if stream is not None or not EXCHANGES:
        inputs = tuple(each if each is None else each.detach() for each in inputs)
    return stream, inputs


def _run(inputs: Tuple, options: Tuple, written: Tuple, stream: Any = None) -> None:
    stream, inputs = _prepared(inputs, stream)
    k, v, lengths, pages, cu_new, cos, sin, positions, q = inputs
    k_cache, v_cache, q_out = written
    length, advance, interleaved, check = options
    _core.append_kv(k, v, k_cache, v_cache, lengths, pages, cu_new, cos, sin, positions, q, q_out,
                    length, advance, interleaved, check, stream)


def _operator(*arguments: Any) -> None:
    count = len(_NAMES)
    _run(arguments[:count], arguments[count:-3], arguments[-3:])


define("append_kv", _SCHEMA, _operator, lambda *_: None)
