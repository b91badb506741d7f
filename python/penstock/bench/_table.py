"""Results as tables of text."""

from collections.abc import Iterable
from typing import Any

from ._counters import DRAM


def aligned(rows: Iterable[Iterable[str]]) -> str:
    """The first column is aligned to the left, the others to the right."""
    lines = [list(row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines)]
    return "\n".join(
        "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                  for i, (cell, width) in enumerate(zip(line, widths))).rstrip()
        for line in lines)


def shown_us(us: float | None) -> str:
    if us is None:
        return "-"
    for unit, scale in (("us", 1.0), ("ms", 1e3)):
        if us < 1e3 * scale:
            return f"{us / scale:.4g} {unit}"
    return f"{us / 1e6:.4g} s"


def judged_us(times: dict[str, Any] | None) -> float | None:
    """The time that counts: the GPU's own if it is known, else that of the call."""
    if times is None:
        return None
    us = times.get("gpu_us", times.get("call_us"))
    return None if us is None else float(us)


def of_results(results: dict[str, Any]) -> str:
    """One row per case: our time, floor and roof, our other kernels, each peer and its ratio to ours.

    Dropped cases follow with their reasons.
    """
    cases = results["cases"]
    variants = list(dict.fromkeys(name for case in cases
                                  for name in case["metrics"].get("kernels", {})))
    others = variants + list(results["peers"])
    counted = any("counters" in case["metrics"] for case in cases)
    floors = any("floor_us" in case for case in cases)
    rows = [["case", "ours", *(["floor", "ours/floor"] if floors else []), "roof", "% of roof",
             "sustained", *(["DRAM"] if counted else [])]]
    for name in others:
        rows[0] += [name, f"{name}/ours"]
    for case in cases:
        ours, metrics = judged_us(case["ours"]), case["metrics"]
        row = [case["case"], shown_us(ours)]
        if floors:
            over = metrics.get("over_floor")
            row += [shown_us(case.get("floor_us")), "-" if over is None else f"{over:.3f}"]
        row += [shown_us(case["yardstick_us"]), f"{100 * metrics['of_roof']:.1f}",
                shown_us(metrics["sustained_us"])]
        if counted:
            share = metrics.get("counters", {}).get(DRAM)
            row.append("-" if share is None else f"{share:.1f} %")
        for name in others:
            other = judged_us(metrics.get("kernels", {}).get(name) or case["peer"].get(name))
            row += [shown_us(other), "-" if other is None or ours is None else f"{other / ours:.3f}"]
        rows.append(row)
    dropped = [f"{case['case']}: dropped: {case['reason']}" for case in results.get("dropped", [])]
    return "\n".join([*([aligned(rows)] if cases else []), *dropped])
