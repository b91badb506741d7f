"""What the operators for torch tensors share: when torch must see a call, and how to define them.

This module imports torch. A call that torch need not see bypasses the operators, since their
dispatch costs more than the launch.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from ._core import Array
from ._errors import InvalidArgument, Unsupported

PLAIN = (Tensor, torch.nn.Parameter)
# Without torch's C functions for DLPack a tensor goes through __dlpack__, which needs a stream and
# refuses tensors that require a gradient.
EXCHANGES = hasattr(Tensor, "__dlpack_c_exchange_api__")
# The C function behind increment_version(), which takes half the time. Older torches have only that.
_increment_versions = (torch._C._increment_version if EXCHANGES else
                       lambda tensors: increment_version(tensors[0]))
# Modes and transforms that must see every operation: tracers, counters, torch.func.
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_transform = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)


def is_traced() -> bool:
    """Whether torch must see every call, whatever its tensors are."""
    return is_compiling() or _modes() > 0 or _transform() is not None


def have_tangents(tensors: Sequence[Any]) -> bool:
    """Whether forward-mode differentiation follows one of the tensors. torch would treat operators
    without a formula for it as constants."""
    return not is_compiling() and is_forward() and any(
        forward_ad.unpack_dual(each).tangent is not None for each in tensors)


def is_forward() -> bool:
    """Whether the call is inside forward-mode differentiation."""
    level: int = forward_ad._current_level
    return level >= 0


def bypasses(operator: str, tensors: Sequence[Any], names: Sequence[str], stream: Any,
             optional: Sequence[Any] = ()) -> bool:
    """Whether torch need not see a call of an operator that has no backward. True for most calls.
    Raises an error if a gradient is asked for, or if not all of `tensors`, and of `optional` where it
    is not None, are tensors. `names` are those of `tensors` and then of `optional`."""
    if not (is_traced() or is_forward() or tensors[0].is_meta):
        learns = is_grad_enabled()
        for each in tensors:
            if type(each) not in PLAIN or learns and each.requires_grad:
                break
        else:
            for each in optional:
                if each is not None and (type(each) not in PLAIN or learns and each.requires_grad):
                    break
            else:
                return True
    for at, (name, each) in enumerate(zip(names, (*tensors, *optional))):
        if each is None and at >= len(tensors):
            continue
        refuse_others(name, each, names[0])
        if is_grad_enabled() and each.requires_grad or have_tangents([each]):
            raise Unsupported(f"{operator}: {name} requires a gradient, but {operator} has no "
                              f"backward; call it under torch.no_grad(), or pass {name}.detach()")
    refuse("stream", stream, "as torch traces the call on its current stream")
    return False


def refuse(name: str, given: Any, why: str) -> None:
    if given is not None:
        raise InvalidArgument(name, f"None, {why}", type(given).__name__)


def refuse_others(name: str, given: Any, first: str) -> None:
    """Refuses arrays of other libraries beside the tensor `first`."""
    if not isinstance(given, Tensor):
        raise InvalidArgument(name, f"a torch tensor, as {first} is one", type(given).__name__)


def as_tensors(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """With tensors of the same memory in place of Penstock's arrays."""
    return tuple(torch.from_dlpack(each) if isinstance(each, Array) else each for each in arrays)


def tell_of_write(name: str, tensor: Any) -> None:
    """Tells autograd that a tensor, which it may have saved, is about to change."""
    if is_grad_enabled() and isinstance(tensor, Tensor):
        if tensor.requires_grad:
            raise InvalidArgument(name, "a tensor that does not require a gradient", "one that does")
        _increment_versions((tensor,))


def current_stream(stream: Any, tensor: Any) -> Any:
    """`stream`, or torch's current stream on the GPU of `tensor` if it is None."""
    if stream is None and tensor.is_cuda:
        return torch.cuda.current_stream(tensor.device)
    return stream


def define(name: str, schema: str, kernel: Any, fake: Any) -> None:
    torch.library.define(f"penstock::{name}", schema)
    torch.library.impl(f"penstock::{name}", ("cpu", "cuda"), kernel)
    torch.library.register_fake(f"penstock::{name}", fake)


def no_backward(name: str) -> None:
    """For callers of the operator itself; the functions of the package refuse at once."""

    def refuse_backward(ctx: Any, *_: Any) -> Any:
        raise Unsupported(f"{name} has no backward; call it under torch.no_grad()")

    torch.library.register_autograd(f"penstock::{name}", refuse_backward)
