"""resample in plain torch operations."""

from typing import Any

import torch


def dense(values: Any, times: Any, at: Any, last: Any, out: Any) -> None:
    """`last` is the index of the last sample but one: a number, or one per episode."""
    index = torch.searchsorted(times, at, right=True) - 1
    index = index.clamp(max=last).clamp(min=0)
    a, b = times.gather(1, index), times.gather(1, index + 1)
    weight = ((at - a) / (b - a)).clamp(0, 1)[..., None]
    columns = index[..., None].expand(-1, -1, values.shape[-1])
    x, y = values.gather(1, columns).float(), values.gather(1, columns + 1).float()
    out.copy_(x + weight * (y - x))


def ragged(values: Any, times: Any, at: Any, offsets: Any, longest: int, out: Any) -> None:
    """Pads the episodes to one length, then resamples them as a dense batch."""
    counts = offsets[1:] - offsets[:-1]
    rows = torch.arange(longest, device=at.device)
    inside = rows < counts[:, None]
    where = torch.where(inside, offsets[:-1, None] + rows, 0)
    times = torch.where(inside, times[where], torch.inf)
    dense(values[where], times, at, (counts - 2)[:, None], out)
