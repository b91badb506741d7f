"""resample() for torch tensors: operators that torch traces, compiles and differentiates.

This module is imported at the first call with a tensor. A call that torch need not see bypasses the
operators, since their dispatch costs more than the launch.
"""

from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from . import _core
from ._errors import InvalidArgument, Unsupported
from ._resample import out_shape, valid_shape

_LINEAR = 0
_PLAIN = (Tensor, torch.nn.Parameter)
# Without torch's C functions for DLPack a tensor goes through __dlpack__, which needs a stream and
# refuses tensors that require a gradient.
_EXCHANGES = hasattr(Tensor, "__dlpack_c_exchange_api__")
# The C function behind increment_version(), which takes half the time. Older torches have only that.
_increment_versions = (torch._C._increment_version if _EXCHANGES else
                       lambda tensors: increment_version(tensors[0]))
# Modes and transforms that must see every operation: tracers, counters, torch.func.
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_transform = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)

_SENSORS = ("Tensor[] values, Tensor[] times, Tensor?[] lengths, Tensor?[] offsets, "
            "int[] layout, Tensor at")
_OPTIONS = "str outside, float fill, bool check, str kernel, bool numbered"


def run(sensors: Any, at: Any, out: Any, valid: Any, stream: Any, outside: str, fill: float,
        check: bool, kernel: str, numbered: bool) -> Any:
    values, times, lengths, offsets, layout = sensors
    tensors = [*values, *times, at] if numbered else (values, times, at)
    if not _are_plain(tensors):
        lists = sensors if numbered else ([values], [times], [lengths], [offsets], layout)
        if _needs_operator(lists[0], lists[1], at, out, valid, stream):
            return _by_operator(lists, at, out, valid, outside, fill, check, kernel, numbered)
    if out is None:
        # Passing the shape as one argument takes twice the time.
        out = torch.empty(*out_shape(sensors, at, numbered), dtype=tensors[0].dtype,
                          device=tensors[0].device)
    else:
        _tell_of_write("out", out)
    if valid is True:
        valid = _mask(sensors, at, numbered, tensors[0].device)
    elif valid is not None:
        _tell_of_write("valid", valid)
    _launch(sensors, at, out, valid, stream, outside, fill, check, kernel, numbered)
    return out if valid is None else (out, valid)


def _by_operator(lists: Any, at: Any, out: Any, valid: Any, *options: Any) -> Any:
    if out is None and (valid is None or valid is True):
        out, mask = torch.ops.penstock.resample(*lists, at, valid is True, *options)
        valid = mask if valid else None
    else:
        sensors, numbered, first = _sensors(lists, options[-1]), options[-1], lists[0][0]
        if out is None:
            out = first.new_empty(out_shape(sensors, at, numbered))
        if valid is True:
            valid = _mask(sensors, at, numbered, first.device)
        torch.ops.penstock.resample_out(*lists, at, out, valid, *options)
    return out if valid is None else (out, valid)


def _sensors(lists: Any, numbered: bool) -> Any:
    """The operators' lists, in the form that resample() uses."""
    values, times, lengths, offsets, layout = lists
    return lists if numbered else (values[0], times[0], lengths[0], offsets[0], layout)


def _are_plain(tensors: Any) -> bool:
    """Whether torch need not see a call with these tensors, `values` first. True for most calls."""
    if (is_compiling() or _modes() > 0 or _transform() is not None or tensors[0].is_meta or
            forward_ad._current_level >= 0):
        return False
    for each in tensors:
        if type(each) is not Tensor or each.requires_grad:
            return False
    return True


def _needs_operator(values: list[Any], times: list[Any], at: Any, out: Any, valid: Any,
                    stream: Any) -> bool:
    """Whether torch must see a call that is not plain."""
    watched = is_compiling() or _is_watched(values) or values[0].is_meta
    _refuse_mixture(values, times, at)
    learns = is_grad_enabled() and any(each.requires_grad for each in values)
    if learns:
        _refuse("out", out, "as values requires a gradient")
        _refuse("valid", None if valid is True else valid, "as values requires a gradient")
    strange = any(type(each) not in _PLAIN for each in (*values, *times, at))
    if not (watched or learns or strange):
        return False
    _refuse("stream", stream, "as torch traces or differentiates the call on its current stream")
    return True


def _is_watched(values: list[Any]) -> bool:
    if forward_ad._current_level >= 0:  # torch would treat the operators as constants
        if any(forward_ad.unpack_dual(each).tangent is not None for each in values):
            raise Unsupported("resample: forward-mode differentiation is unsupported; use backward()")
    return _modes() > 0 or _transform() is not None


def _refuse_mixture(values: list[Any], times: list[Any], at: Any) -> None:
    for name, tensors in (("values", values), ("times", times), ("at", [at])):
        for each in tensors:
            if not isinstance(each, Tensor):
                raise InvalidArgument(name, "a torch tensor, as values is one", type(each).__name__)
            if name != "values" and each.requires_grad and is_grad_enabled():
                raise InvalidArgument(name, "a tensor that does not require a gradient; only values "
                                      "has one", "one that does")


def _refuse(name: str, given: Any, why: str) -> None:
    if given is not None:
        raise InvalidArgument(name, f"None, {why}", type(given).__name__)


def _tell_of_write(name: str, tensor: Any) -> None:
    """Tells autograd that a tensor, which it may have saved, is about to change."""
    if is_grad_enabled() and isinstance(tensor, Tensor):
        if tensor.requires_grad:
            raise InvalidArgument(name, "a tensor that does not require a gradient", "one that does")
        _increment_versions((tensor,))


def _launch(sensors: Any, at: Any, out: Any, valid: Any, stream: Any, outside: str, fill: float,
            check: bool, kernel: str, numbered: bool) -> None:
    values, times, lengths, offsets, layout = sensors
    if not _EXCHANGES:
        stream = _current(stream, values[0] if numbered else values)
    if not _EXCHANGES or stream is not None:
        values = [each.detach() for each in values] if numbered else values.detach()
    _core.resample(values, times, lengths, offsets, layout, at, out, valid, outside, fill, check,
                   kernel, stream, numbered)


def _current(stream: Any, tensor: Any) -> Any:
    if stream is None and tensor.is_cuda:
        return torch.cuda.current_stream(tensor.device)
    return stream


def _mask(sensors: Any, at: Any, numbered: bool, device: Any) -> Any:
    return torch.empty(*valid_shape(sensors, at, numbered), dtype=torch.bool, device=device)


def _fake(values: Any, times: Any, lengths: Any, offsets: Any, layout: Any, at: Any, valid: bool,
          outside: str, fill: float, check: bool, kernel: str, numbered: bool) -> Any:
    """Uninitialised results of the operator; the mask is empty if it was not asked for."""
    sensors, first = _sensors((values, times, lengths, offsets, layout), numbered), values[0]
    out = first.new_empty(out_shape(sensors, at, numbered))
    if valid:
        return out, _mask(sensors, at, numbered, first.device)
    return out, torch.empty(0, dtype=torch.bool, device=first.device)


def _resample(values: Any, times: Any, lengths: Any, offsets: Any, layout: Any, at: Any,
              valid: bool, *options: Any) -> Any:
    lists = values, times, lengths, offsets, layout
    out, mask = _fake(*lists, at, valid, *options)
    _launch(_sensors(lists, options[-1]), at, out, mask if valid else None, None, *options)
    return out, mask


def _resample_out(values: Any, times: Any, lengths: Any, offsets: Any, layout: Any, at: Any,
                  out: Any, valid: Any, *options: Any) -> None:
    sensors = _sensors((values, times, lengths, offsets, layout), options[-1])
    _launch(sensors, at, out, valid, None, *options)


def _gradient_fake(gradient: Any, times: Any, lengths: Any, offsets: Any, at: Any, outside: str,
                   shape: Any) -> Any:
    return gradient.new_empty(shape)


def _gradient(gradient: Any, times: Any, lengths: Any, offsets: Any, at: Any, outside: str,
              shape: Any) -> Any:
    out = gradient.new_empty(shape)
    if gradient.stride(-1) != 1:
        gradient = gradient.contiguous()  # such as the expanded scalar that sum() passes
    stream = None if _EXCHANGES else _current(None, gradient)
    _core.resample_gradient(gradient, times, lengths, offsets, at, out, outside, stream)
    return out


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    values, times, lengths, offsets, layout, at, _, outside, *_ = inputs
    ctx.save_for_backward(at, *times, *lengths, *offsets)
    ctx.shapes = [each.shape for each in values]
    ctx.layout, ctx.outside = layout, outside


def _backward(ctx: Any, gradient: Any, _: Any) -> Any:
    count = len(ctx.shapes)
    at, *saved = ctx.saved_tensors
    grads: list[Any] = []
    column = 0
    for i, (shape, linear) in enumerate(zip(ctx.shapes, _linear(ctx.layout))):
        part = gradient[..., column:column + shape[-1]]
        column += shape[-1]
        if not ctx.needs_input_grad[0][i]:
            grads.append(None)
            continue
        if not linear:
            raise Unsupported("resample: only linear mode has a gradient; pass values.detach()")
        times, lengths, offsets = saved[i::count]
        grads.append(torch.ops.penstock.resample_gradient(part, times, lengths, offsets, at,
                                                          ctx.outside, shape))
    others = ctx.needs_input_grad[1:]  # lists of tensors have a list for each
    return grads, *([None] * len(each) if isinstance(each, list) else None for each in others)


def _linear(layout: list[int]) -> list[bool]:
    """For each sensor, whether all its columns are linear."""
    found = []
    while layout:
        end = 3 + 4 * layout[2]
        found.append(layout[0] == _LINEAR and all(mode == _LINEAR for mode in layout[5:end:4]))
        layout = layout[end:]
    return found


def _no_second(ctx: Any, *_: Any) -> Any:
    raise Unsupported("resample: second derivatives are not supported")


def _define(name: str, schema: str, kernel: Any, fake: Any) -> None:
    torch.library.define(f"penstock::{name}", schema)
    torch.library.impl(f"penstock::{name}", ("cpu", "cuda"), kernel)
    torch.library.register_fake(f"penstock::{name}", fake)


_define("resample", f"({_SENSORS}, bool valid, {_OPTIONS}) -> (Tensor, Tensor)", _resample, _fake)
_define("resample_out", f"({_SENSORS}, Tensor(a!) out, Tensor(b!)? valid, {_OPTIONS}) -> ()",
        _resample_out, lambda *_: None)
_define("resample_gradient", "(Tensor gradient, Tensor times, Tensor? lengths, Tensor? offsets, "
        "Tensor at, str outside, SymInt[] shape) -> Tensor", _gradient, _gradient_fake)
torch.library.register_autograd("penstock::resample", _backward, setup_context=_keep)
torch.library.register_autograd("penstock::resample_gradient", _no_second)
