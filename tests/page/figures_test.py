"""Facts, tables, plots and rooflines, and everything that may be missing or empty."""

import pytest

from samples import MIB, corner_cases, report

GAP = "\u00a0"  # between a number and its unit


def one(section):
    return {"title": "t", "sections": [section]}


def points(screen):
    return screen.texts(".point title")


def test_a_whole_report(screen):
    page = screen.open(report())
    assert page.text("h1") == "Three-way overlap on one GPU"
    assert page.driver.title == "Three-way overlap on one GPU"
    assert page.text("#made") == "version 0.3.0 · commit 6b824e4 · 2025-11-08 14:02"
    assert page.texts("h2") == [section["title"] for section in report()["sections"]]


def test_facts(screen):
    page = screen.open(one({"type": "facts", "rows": [["GPU", "one", "new"], ["CPU", "two", ""]]}))
    assert page.texts(".facts dt") == ["GPU", "CPU"]
    assert page.texts(".facts dd") == ["one", "new", "two"]


def test_a_table_draws_shares_beside_their_limits(screen):
    page = screen.open(one({"type": "table", "columns": [
        {"name": "case"}, {"name": "time", "numeric": True}, {"name": "of the limit", "share": True}],
        "rows": [["a", "1 ms", 0.5], ["b", "2 ms", None], ["c", "3 ms", 1.2], ["d", "4 ms", 1.01]]}))
    assert page.texts("th") == ["case", "time", "of the limit"]
    assert page.texts("td.share") == ["50.0%", "–", "120.0% !", "101.0%"]
    widths = page.js("return [...document.querySelectorAll('.bar')].map((bar) => "
                     "bar.firstChild.getBoundingClientRect().width / bar.getBoundingClientRect().width)")
    assert widths == pytest.approx([0.5, 1, 1], abs=0.01)
    assert page.js("return getComputedStyle(document.querySelector('td.numeric')).textAlign") == "right"


def test_a_plot_of_bytes_and_time(screen):
    page = screen.open(one({"type": "plot", "x": {"label": "chunk", "unit": "bytes", "scale": "log"},
        "y": {"label": "time", "unit": "us", "scale": "linear"},
        "series": [{"name": "measured", "points": [[MIB, 2500], [4 * MIB, 1000]], "line": True},
                   {"name": "predicted", "points": [[MIB, 2400]]}],
        "markers": [{"name": "chosen", "x": 2 * MIB}]}))
    ticks = [tick.replace(GAP, " ") for tick in page.texts(".tick")]
    assert {"1 MiB", "2 MiB", "4 MiB", "0", "1", "2"} <= {tick.removesuffix(".0") for tick in ticks}
    assert page.texts(".axis-title") == ["time (ms)", "chunk"]
    assert points(page)[0].replace(GAP, " ") == "measured: 1 MiB, 2.5 ms"
    assert page.texts(".legend li") == ["measured", "predicted"]
    assert page.texts(".marker text") == ["chosen"]
    assert page.js("return document.querySelectorAll('.series .line').length") == 1


def test_counts_have_whole_ticks(screen):
    page = screen.open(one({"type": "plot", "x": {"label": "depth", "unit": "count"},
                            "y": {"unit": "us"}, "series": [{"points": [[1, 3], [2, 1], [3, 1]]}]}))
    across = page.js("""return [...document.querySelectorAll('.tick')].filter((tick) =>
        tick.getAttribute('text-anchor') === 'middle').map((tick) => tick.textContent)""")
    assert across == ["0", "1", "2", "3"]


def test_points_lie_where_the_axes_say(screen):
    page = screen.open(one({"type": "plot", "x": {"scale": "log"}, "y": {"scale": "log"},
        "series": [{"name": "s", "points": [[1, 1], [10, 100], [100, 10_000]]}]}))
    at = page.js("""return [...document.querySelectorAll('.point')].map((point) => {
        const {e, f} = point.transform.baseVal[0].matrix; return [e, f]; })""")
    assert at[1][0] - at[0][0] == pytest.approx(at[2][0] - at[1][0], abs=0.2)
    assert at[1][1] - at[0][1] == pytest.approx(at[2][1] - at[1][1], abs=0.2)
    assert at[2][0] > at[0][0] and at[2][1] < at[0][1]


def test_a_roofline(screen):
    page = screen.open(one({"type": "roofline", "ceilings": [
        {"name": "memory", "bytes_per_second": 4e12}, {"name": "link", "bytes_per_second": 50e9},
        {"name": "tensor cores", "flops": 800e12}],
        "points": [{"name": "copy", "intensity": 1, "flops": 2e12},
                   {"name": "gemm", "intensity": 1000, "flops": 600e12}]}))
    assert [title.replace(GAP, " ") for title in page.texts(".ridge title")] == [
        "ridge of memory and tensor cores: 200 FLOP/byte",
        "ridge of link and tensor cores: 16,000 FLOP/byte"]
    assert points(page)[0].endswith("50.0% of the ceiling")
    assert points(page)[1].endswith("75.0% of the ceiling")
    assert page.texts(".label") == ["copy", "gemm"]
    # Slopes end on the flat ceiling, at the ridge.
    lines = page.js("return [...document.querySelectorAll('.ceiling line')].map((line) => "
                    "[line.x2, line.y2, line.y1].map((at) => at.baseVal.value))")
    ridges = page.js("return [...document.querySelectorAll('.ridge circle')].map((ridge) => "
                     "[ridge.cx, ridge.cy].map((at) => at.baseVal.value))")
    assert [line[:2] for line in lines[:2]] == [pytest.approx(ridge) for ridge in ridges]
    assert lines[2][1] == pytest.approx(ridges[0][1])


def test_whatever_is_missing(screen):
    page = screen.open(corner_cases())
    for width in (390, 1280):
        page.resize(width)
        broken = page.js("return [...document.querySelectorAll('svg *')].filter((node) => "
                         "[...node.attributes].some(({value}) => /NaN|Infinity/.test(value))).length")
        assert broken == 0
    assert page.js("return document.querySelectorAll('section').length") == \
        len(corner_cases()["sections"]) - 3
    assert "NaN" not in page.text("main") and "undefined" not in page.text("main")


@pytest.mark.parametrize("data", [{}, {"sections": None}, {"sections": []}, {"made": None}])
def test_an_empty_report(screen, data):
    assert screen.open(data).text("h1") == ""
