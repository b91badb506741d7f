"""Results as a bar chart, drawn by matplotlib. `penstock report` draws a page without it."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ._errors import BenchError
from ._table import judged_us


def check_possible() -> None:
    if find_spec("matplotlib") is None:
        raise BenchError("--plot needs matplotlib (pip install matplotlib); without it, "
                         "`penstock report RESULTS.json` draws a page")


def of_results(results: dict[str, Any], path: Path) -> None:
    """One group of bars per case: roof, ours and each peer."""
    cases = results["cases"]
    series: dict[str, list[float | None]] = {
        "roof": [case["yardstick_us"] for case in cases],
        "ours": [judged_us(case["ours"]) for case in cases],
    }
    for peer in results["peers"]:
        series[peer] = [judged_us(case["peer"].get(peer)) for case in cases]
    loads = {case["case"]: case["metrics"]["load"] for case in cases if "load" in case["metrics"]}
    bars(path, f"{results['name']}: time", "us", [case["case"] for case in cases], series, loads)


def bars(path: Path, title: str, unit: str, groups: list[str],
         series: dict[str, list[float | None]], loads: dict[str, list[int]] | None = None) -> None:
    """One group of bars per case. `loads`, the tokens of every expert per case, are drawn below."""
    import_module("matplotlib").use("Agg")  # works without a display
    pyplot = import_module("matplotlib.pyplot")
    rows = 2 if loads else 1
    figure, grid = pyplot.subplots(rows, figsize=(max(6, 2 * len(groups)), 4.5 * rows),
                                   layout="constrained", squeeze=False)
    axes = grid[0][0]
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        axes.bar(places, [value or 0 for value in values], width, label=name)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(unit)
    axes.set_title(title)
    axes.legend()
    if loads:
        _draw_loads(grid[1][0], loads)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _draw_loads(axes: Any, loads: dict[str, list[int]]) -> None:
    """The load of every expert relative to the mean, the most loaded first."""
    for name, counts in loads.items():
        mean = max(sum(counts), 1) / len(counts)
        axes.step(range(len(counts)), [count / mean for count in sorted(counts, reverse=True)],
                  where="mid", label=name)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("expert, by load")
    axes.set_ylabel("tokens / mean")
    axes.legend()
