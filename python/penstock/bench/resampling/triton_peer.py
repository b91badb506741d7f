"""The same in Triton: as a first attempt is written, and tuned.

Both take the inputs and the output of a BatchCase, whose arrays have no gaps.
"""

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _earlier(times, wanted, count, STEPS: tl.constexpr):
    """The last sample that is not after each target time; at most the last but one."""
    low = tl.zeros_like(wanted).to(tl.int32) + 1
    high = low + (count - 2)
    for _ in range(STEPS):
        middle = (low + high) // 2
        above = (tl.load(times + middle) > wanted) | (low >= high)
        high = tl.where(above, middle, high)
        low = tl.where(above, low, middle + 1)
    return low - 1


@triton.jit
def _weight(times, wanted, index):
    a, b = tl.load(times + index), tl.load(times + index + 1)
    return tl.minimum(tl.maximum((wanted - a) / tl.where(b > a, b - a, 1.0), 0.0), 1.0)


@triton.jit
def _episode(episode, offsets, samples, RAGGED: tl.constexpr):
    """The first sample of an episode and its number of samples."""
    if RAGGED:
        first = tl.load(offsets + episode)
        count = (tl.load(offsets + episode + 1) - first).to(tl.int32)
    else:
        first = episode.to(tl.int64) * samples
        count = samples
    return first, count


@triton.jit
def _baseline(values, times, at, out, offsets, samples, targets, COLUMNS: tl.constexpr,
              RAGGED: tl.constexpr, STEPS: tl.constexpr, WIDTH: tl.constexpr):
    target = tl.program_id(0).to(tl.int64)
    first, count = _episode(target // targets, offsets, samples, RAGGED)
    wanted = tl.load(at + target)
    index = _earlier(times + first, wanted, count, STEPS)
    weight = _weight(times + first, wanted, index)
    column = tl.arange(0, WIDTH)
    source = values + (first + index) * COLUMNS + column
    x = tl.load(source, mask=column < COLUMNS).to(tl.float32)
    y = tl.load(source + COLUMNS, mask=column < COLUMNS).to(tl.float32)
    tl.store(out + target * COLUMNS + column, (x + weight * (y - x)).to(out.dtype.element_ty),
             mask=column < COLUMNS)


def _candidates() -> list[Any]:
    return [triton.Config({"TARGETS": targets, "WIDTH": width}, num_warps=warps, num_stages=stages)
            for targets in (1, 2, 4, 8, 16, 32, 64, 128, 256) for width in (16, 32, 64, 128, 256, 512)
            for warps in (2, 4, 8) for stages in (1, 3)]


def _sensible(configs: list[Any], arguments: dict[str, Any], **more: Any) -> list[Any]:
    """Tiles with 8 to 32 numbers per thread, of whole rows or, if these are long, half rows."""
    whole = min(triton.next_power_of_2((arguments | more)["COLUMNS"]), 512)
    kept = []
    for config in configs:
        width, tile = config.kwargs["WIDTH"], config.kwargs["TARGETS"] * config.kwargs["WIDTH"]
        each = tile // (32 * config.num_warps)
        if width == whole and config.num_stages == 1 and each in (8, 16, 32):
            kept.append(config)
        if width == whole // 2 >= 64 and each == 16:  # num_stages applies to the loop over columns
            kept.append(config)
    return kept


@triton.autotune(_candidates(), key=["episodes", "samples", "targets", "COLUMNS", "RAGGED"],
                 prune_configs_by={"early_config_prune": _sensible})
@triton.jit
def _tuned(values, times, at, out, offsets, episodes, samples, targets, COLUMNS: tl.constexpr,
           RAGGED: tl.constexpr, STEPS: tl.constexpr, TARGETS: tl.constexpr, WIDTH: tl.constexpr):
    episode = tl.program_id(1)
    first, count = _episode(episode, offsets, samples, RAGGED)
    times += first
    values += first * COLUMNS
    at += episode * targets
    out += episode.to(tl.int64) * targets * COLUMNS

    target = tl.program_id(0) * TARGETS + tl.arange(0, TARGETS)
    inside = target < targets
    wanted = tl.load(at + target, mask=inside, other=0.0)
    index = _earlier(times, wanted, count, STEPS)
    weight = _weight(times, wanted, index)[:, None]
    source = values + index[:, None] * COLUMNS
    result = out + target[:, None] * COLUMNS
    for begin in range(0, COLUMNS, WIDTH):
        column = (begin + tl.arange(0, WIDTH))[None, :]
        there = inside[:, None] & (column < COLUMNS)
        x = tl.load(source + column, mask=there).to(tl.float32)
        y = tl.load(source + COLUMNS + column, mask=there).to(tl.float32)
        tl.store(result + column, (x + weight * (y - x)).to(out.dtype.element_ty), mask=there)


def _shared(longest: int, inputs: Any, out: Any) -> dict[str, Any]:
    """The arguments of both kernels."""
    values, times, at, *rest = inputs
    return {"values": values, "times": times, "at": at, "out": out,
            "offsets": rest[0] if rest else times,  # not read
            "samples": longest, "targets": out.shape[1], "COLUMNS": out.shape[2],
            "RAGGED": bool(rest), "STEPS": longest.bit_length()}


def baseline(longest: int, inputs: Any, out: Any) -> None:
    """One program per target time, with its own search; episodes have at most `longest` samples."""
    _baseline[(out.shape[0] * out.shape[1],)](**_shared(longest, inputs, out),
                                              WIDTH=triton.next_power_of_2(out.shape[2]))


def tuned(longest: int, inputs: Any, out: Any) -> None:
    """One program per block of target times, which are searched for in parallel."""
    episodes, targets, _ = out.shape
    _tuned[lambda chosen: (triton.cdiv(targets, chosen["TARGETS"]), episodes)](
        **_shared(longest, inputs, out), episodes=episodes)
