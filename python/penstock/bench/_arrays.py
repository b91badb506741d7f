"""Arrays of inputs and outputs, NumPy's or torch's."""

import sys
from collections.abc import Iterator
from typing import Any

from .._errors import InvalidArgument


def arrays_in(value: Any) -> Iterator[Any]:
    """Every array in a list, tuple or dict, or the array itself; plain numbers are skipped."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from arrays_in(part)
    elif hasattr(value, "nbytes"):
        yield value


def total_bytes(*values: Any) -> int:
    """The bytes of all arrays; a shared one, such as weights, counts once."""
    return sum({id(array): int(array.nbytes) for array in arrays_in(values)}.values())


def poison(outputs: Any, byte: int) -> None:
    """Fills every byte, so that elements that are never written can be found."""
    for array in arrays_in(outputs):
        torch = torch_of(array)
        if not (array.is_contiguous() if torch else array.flags.c_contiguous):
            raise InvalidArgument("outputs", "contiguous arrays", f"strides of shape {array.shape}")
        if torch:
            array.reshape(-1).view(torch.uint8).fill_(byte)
        else:
            array.reshape(-1).view("u1").fill(byte)


def to_numpy(array: Any) -> Any:
    """A copy on the host. bf16 becomes f32, since NumPy has no bf16."""
    import numpy

    torch = torch_of(array)
    if torch is None:
        return numpy.array(array)
    host = array.detach().to("cpu", copy=True)
    return (host.float() if host.dtype == torch.bfloat16 else host).numpy()


def torch_of(array: Any) -> Any:
    """The module torch if the array is a tensor, else None. Never imports torch."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None
