"""resample() for torch tensors: operators that torch traces, compiles and differentiates.

This module is imported at the first call with a tensor.
"""

from typing import Any

import torch
from torch import Tensor, is_grad_enabled

from . import _core
from ._errors import InvalidArgument, Unsupported
from ._operators import (EXCHANGES, PLAIN, current_stream, define, have_tangents, is_forward,
                         is_traced, refuse, refuse_others, tell_of_write)
from ._resample import out_shape, valid_shape

_LINEAR = 0
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
        tell_of_write("out", out)
    if valid is True:
        valid = _mask(sensors, at, numbered, tensors[0].device)
    elif valid is not None:
        tell_of_write("valid", valid)
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
    if is_traced() or is_forward() or tensors[0].is_meta:
        return False
    for each in tensors:
        if type(each) is not Tensor or each.requires_grad:
            return False
    return True


def _needs_operator(values: list[Any], times: list[Any], at: Any, out: Any, valid: Any,
                    stream: Any) -> bool:
    """Whether torch must see a call that is not plain."""
    if have_tangents(values):
        raise Unsupported("resample: forward-mode differentiation is unsupported; use backward()")
    watched = is_traced() or values[0].is_meta
    _refuse_mixture(values, times, at)
    learns = is_grad_enabled() and any(each.requires_grad for each in values)
    if learns:
        refuse("out", out, "as values requires a gradient")
        refuse("valid", None if valid is True else valid, "as values requires a gradient")
    strange = any(type(each) not in PLAIN for each in (*values, *times, at))
    if not (watched or learns or strange):
        return False
    refuse("stream", stream, "as torch traces or differentiates the call on its current stream")
    return True


def _refuse_mixture(values: list[Any], times: list[Any], at: Any) -> None:
    for name, tensors in (("values", values), ("times", times), ("at", [at])):
        for each in tensors:
            refuse_others(name, each, "values")
            if name != "values" and each.requires_grad and is_grad_enabled():
                raise InvalidArgument(name, "a tensor that does not require a gradient; only values "
                                      "has one", "one that does")


def _launch(sensors: Any, at: Any, out: Any, valid: Any, stream: Any, outside: str, fill: float,
            check: bool, kernel: str, numbered: bool) -> None:
    values, times, lengths, offsets, layout = sensors
    if not EXCHANGES:
        stream = current_stream(stream, values[0] if numbered else values)
    if not EXCHANGES or stream is not None:
        values = [each.detach() for each in values] if numbered else values.detach()
    _core.resample(values, times, lengths, offsets, layout, at, out, valid, outside, fill, check,
                   kernel, stream, numbered)


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
    stream = None if EXCHANGES else current_stream(None, gradient)
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


define("resample", f"({_SENSORS}, bool valid, {_OPTIONS}) -> (Tensor, Tensor)", _resample, _fake)
define("resample_out", f"({_SENSORS}, Tensor(a!) out, Tensor(b!)? valid, {_OPTIONS}) -> ()",
        _resample_out, lambda *_: None)
define("resample_gradient", "(Tensor gradient, Tensor times, Tensor? lengths, Tensor? offsets, "
        "Tensor at, str outside, SymInt[] shape) -> Tensor", _gradient, _gradient_fake)
torch.library.register_autograd("penstock::resample", _backward, setup_context=_keep)
torch.library.register_autograd("penstock::resample_gradient", _no_second)
