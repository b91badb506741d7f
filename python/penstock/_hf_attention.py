"""The attention of transformers' models, computed by :func:`penstock.attention`. penstock.hf registers
both functions of this module.

transformers calls :func:`mask` once per forward pass and :func:`attention` in every layer, with what
mask() returned: None if a query attends to all keys up to its own position, or the first and the last
keys of every sequence, i32 (B, 1, 1, 2). It has four dimensions because transformers takes masks of two
for those of padding, also if generate() has made them before the forward pass. Masks of other kinds are
bool or floating-point, and attention() calls torch's function with them.

Which kind a mask is can only be read on the host, which then waits for the GPU. mask() reads those of
prompts, but not those of the tokens that are generated: see _Generation.
"""

import threading
from collections import deque
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import masking_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ._attention import attention as penstock_attention
from ._attention_torch import has_slow_kernel
from ._errors import Unsupported

_DIM_MULTIPLE, _MOST_DIM = 8, 256
_DTYPES = torch.bfloat16, torch.float16, torch.float32


def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *,
              dropout: float = 0.0, scaling: float | None = None, is_causal: bool | None = None,
              sliding_window: int | None = None, softcap: float | None = None, s_aux: Any = None,
              position_bias: Any = None, **others: Any) -> tuple[Any, None]:
    """The function of transformers' attention interface: tensors of shape (B, H, S, D) in, (B, S, H,
    D) out."""
    if dropout:
        raise Unsupported("penstock.hf: attention has no dropout; call model.eval()")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    dim, dim_v = query.shape[-1], value.shape[-1]
    ours = attention_mask is None or _is_limits(attention_mask, len(query))
    takes = value.dtype in _DTYPES and max(dim, dim_v) <= _MOST_DIM
    # torch's function has no softcap and no sinks.
    is_slow = has_slow_kernel(value) and not softcap and s_aux is None
    if position_bias is not None or is_slow or not (ours and takes):
        if softcap or s_aux is not None:
            limit = ("masks of padding, windows and causality alone" if takes else
                     f"f32, bf16 and f16 and head dimensions up to {_MOST_DIM}, not {value.dtype} with "
                     f"dimensions {dim} and {dim_v}")
            raise Unsupported(f"penstock.hf: attention with softcap or sinks takes {limit}; use another "
                              "attn_implementation")
        if ours and (attention_mask is not None or query.shape[2] != key.shape[2]
                     or sliding_window is not None):
            attention_mask = _mask_of(attention_mask, query, key, causal, sliding_window)
        out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout,
                                        scaling=scaling, is_causal=causal,
                                        position_bias=position_bias, **others)
        return out, None
    first, ends = (None, None) if attention_mask is None else (
        each.contiguous() for each in attention_mask[:, 0, 0].unbind(-1))
    scale = dim**-0.5 if scaling is None else scaling
    rows = (_rows(each.to(value.dtype)) for each in (query, key, value))
    window = None if sliding_window is None else (sliding_window - 1, None)
    out = penstock_attention(*rows, causal=causal, window=window, softcap=softcap or 0.0, sinks=s_aux,
                             scale=scale, first_k=first, lengths_k=ends)
    return (out if out.shape[-1] == dim_v else out[..., :dim_v]), None


def _is_limits(mask: Any, batch: int) -> bool:
    """Whether mask() has made this mask of the first and the last keys."""
    return bool(mask.dtype == torch.int32 and mask.shape == (batch, 1, 1, 2))


def _mask_of(limits: Any, query: Any, key: Any, causal: bool, window: int | None) -> Any:
    """The mask (B, 1, Sq, Sk), bool, for torch's function. Queries without keys attend to all, as
    their results mean nothing but must not be NaN."""
    queries, keys = query.shape[2], key.shape[2]
    column = torch.arange(keys, device=query.device)
    first, end = (0, keys) if limits is None else limits[..., None, :].unbind(-1)
    there = (column >= first) & (column < end)
    position = torch.arange(queries, device=query.device)[:, None] + (end - queries)
    if causal:
        there = there & (column <= position)
    if window is not None:
        there = there & (column > position - window)
    there = there | ~there.any(-1, keepdim=True)
    return there.expand(len(query), 1, queries, keys)


def _rows(tensor: Any) -> Any:
    """(B, S, H, D), with a head dimension that is a multiple of 8, rows contiguous."""
    missing = -tensor.shape[-1] % _DIM_MULTIPLE
    if missing:
        tensor = pad(tensor, (0, missing))
    elif tensor.stride(-1) != 1:
        tensor = tensor.contiguous()
    return tensor.transpose(1, 2)


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
         mask_function: Any = masking_utils.causal_mask_function, attention_mask: Any = None,
         device: Any = None, **others: Any) -> Any:
    """The function of transformers' mask interface."""
    others["allow_is_causal_skip"] = others["allow_is_bidirectional_skip"] = False
    call = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length,
            "q_offset": q_offset, "kv_offset": kv_offset, "mask_function": mask_function,
            "attention_mask": attention_mask, "device": device}
    bidirectional = mask_function is masking_utils.bidirectional_mask_function
    sliding = _is_sliding(mask_function)
    known = bidirectional or sliding or mask_function is masking_utils.causal_mask_function
    # Whether a mask is padding only must be read on the host, which is not traced.
    if not known or attention_mask is not None and torch.compiler.is_compiling():
        return masking_utils.sdpa_mask(**call, **others)
    end = kv_length if bidirectional else q_offset + q_length - kv_offset
    if attention_mask is None:
        return _without_padding(batch_size, end, kv_length, device)
    there = attention_mask[:, kv_offset:kv_offset + kv_length]
    decodes = q_length == 1 and not bidirectional
    # On the CPU nothing waits, and every mask is read.
    if decodes and _waits(there) and _generation.goes_on(attention_mask, sliding, others):
        _generation.watch(there)
        return _behind_padding(there, end)
    # Older versions of generate() pass a mask without padding.
    if (there.shape[1] == kv_length or not bidirectional) and _read(there.all()):
        _generation.begin(attention_mask, sliding, others, True)
        return _without_padding(batch_size, end, kv_length, device)
    columns = there.shape[1]
    there = there.int()
    first, behind = there.argmax(-1), columns - there.flip(-1).argmax(-1)
    behind = torch.where(there.any(-1), behind, first)
    is_padding, is_left = _read(torch.stack(((there.sum(-1) == behind - first).all(),
                                             (behind == columns).all())))
    _generation.begin(attention_mask, sliding, others, is_padding and is_left)
    if not is_padding:
        return masking_utils.sdpa_mask(**call, **others)
    # Positions count from the end, so padding on the right of a causal batch stays: only queries in
    # the padding, whose results mean nothing, attend to it.
    ends = behind if bidirectional else torch.zeros_like(first) + end
    return _limits(torch.minimum(first, ends), ends)


def _without_padding(batch_size: int, end: Any, kv_length: int, device: Any) -> Any:
    if isinstance(end, int) and end >= kv_length:
        return None
    limits = torch.zeros((2, batch_size), dtype=torch.int32, device=device)
    limits[1] = end
    return limits.T[:, None, None]


def _behind_padding(there: Any, end: Any) -> Any:
    """The limits of a mask that has padding on the left, or none, found on the device."""
    limits = there.new_empty((2, len(there)), dtype=torch.int32)
    limits[1] = end
    limits[0] = torch.minimum(there.bool().view(torch.uint8).argmax(-1), limits[1])
    return limits.T[:, None, None]


def _hides_rows(there: Any) -> Any:
    """Whether a mask hides rows between others, found on the device."""
    there = there.bool()
    runs = (there[:, 1:] > there[:, :-1]).sum(-1) + there[:, 0]
    return (runs > 1).any()


class _Flag:
    """A bool that is copied from a GPU to the host, without a wait."""

    def __init__(self, flag: Any) -> None:
        self._flag = torch.empty((), dtype=torch.bool, device="cpu", pin_memory=True)
        self._flag.copy_(flag, non_blocking=True)
        self._copied = torch.cuda.Event()
        self._copied.record(torch.cuda.current_stream(flag.device))

    def value(self) -> bool | None:
        """None until it has arrived."""
        return bool(self._flag) if self._copied.query() else None


class _Generation(threading.local):
    """What the host knows of the masks of the generation that runs in a thread.

    If a mask has padding on the left or none, generate() makes the next ones by adding columns of ones.
    So after such a mask was read, the host does not wait for masks with one more column each. Their limits
    are found on the device. They are right for whatever sequences a mask belongs to, as long as it is a
    padding mask. Whether it is one arrives on the host later: then mask() raises Unsupported if it is not.
    """

    like: Any = None  # None: the next mask must be read
    columns = 0
    kinds: frozenset[bool] = frozenset()  # of the masks with this many columns: full, sliding

    def __init__(self) -> None:
        self.hides: deque[_Flag] = deque()  # of masks that were not read: whether they hide rows

    def begin(self, mask: Any, sliding: bool, others: Any, is_left: bool) -> None:
        """After a mask was read."""
        like = self._like(mask, others)
        same = self.like == like and self.columns == mask.shape[1]
        self.kinds = (self.kinds if same else frozenset()) | {sliding}
        self.like, self.columns = like if is_left else None, mask.shape[1]
        self.hides.clear()

    def goes_on(self, mask: Any, sliding: bool, others: Any) -> bool:
        """Whether a mask has one column more than the last one, or is the other kind of mask that the same
        forward pass needs."""
        if self.like is None or self.like != self._like(mask, others):
            return False
        new = mask.shape[1] - self.columns
        if new not in (0, 1) or new == 0 and sliding in self.kinds:
            return False
        self.kinds = (self.kinds if new == 0 else frozenset()) | {sliding}
        self.columns += new
        return True

    def watch(self, there: Any) -> None:
        """Instead of reading a mask. Raises Unsupported if an earlier one was no padding mask."""
        if there.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        while self.hides and (hides := self.hides[0].value()) is not None:
            self.hides.popleft()
            if hides:
                self.like = None
                self.hides.clear()
                raise Unsupported("penstock.hf: attention_mask: expected the padding of the prompt to stay "
                                  "while tokens are generated, found rows that are hidden between others in "
                                  "the mask of an earlier token")
        self.hides.append(_Flag(_hides_rows(there)))

    @staticmethod
    def _like(mask: Any, others: Any) -> Any:
        return mask.device, len(mask), id(others.get("config"))


_generation = _Generation()


def _waits(tensor: Any) -> bool:
    """Whether the host waits when it reads the tensor."""
    return bool(tensor.device.type != "cpu")


def _read(flags: Any) -> Any:
    """Their values, on the host."""
    return flags.tolist()


def _limits(first: Any, ends: Any) -> Any:
    """(B, 1, 1, 2), in the memory of which each of both is contiguous."""
    return torch.stack((first, ends)).int().T[:, None, None]


def _is_sliding(function: Any) -> bool:
    """Whether this is the mask of a causal sliding window and nothing else. The attention layers pass
    the window's size."""
    parts = _parts(function)
    model = _parts(masking_utils.sliding_window_causal_mask_function(1))
    return parts is not None and model is not None and [each.__code__ for each in parts] == [
        each.__code__ for each in model]


def _parts(function: Any) -> tuple[Any, ...] | None:
    """The functions that and_masks() has combined; None for others."""
    if getattr(function, "__code__", None) is not masking_utils.and_masks().__code__:
        return None
    (cell,) = function.__closure__
    parts: tuple[Any, ...] = cell.cell_contents
    return parts
