"""Pages that the program itself wrote: of real runs, as they stand in docs/, and of one made here."""

import itertools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "pages"
# With this set, the screenshots in docs/ are made anew.
KEEP = os.environ.get("PENSTOCK_KEEP_SCREENSHOTS")
NAMES = sorted(report.stem for report in PAGES.glob("*.json"))


def penstock(*arguments, folder):
    program = os.environ.get("PENSTOCK") or shutil.which("penstock")
    if not program:
        pytest.fail("no penstock: name the built program in PENSTOCK", pytrace=False)
    subprocess.run([program, *map(str, arguments)], check=True, cwd=folder,
                   stdout=subprocess.DEVNULL)


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1])


def bars_in(report):
    document = json.loads(report.read_text())
    timelines = document["timelines"]
    bars = {name: len(rows) for name, rows in timelines.items() if name != "columns"}
    for kernel in document.get("kernels", []):
        bars[kernel["run"]] += len(kernel["spans"])
    return bars


def check(screen, page, report):
    """Opens a page and compares what it shows with the report that it was made from."""
    screen.open_file(page)
    runs = next(s for s in data_of(page)["sections"] if s["type"] == "timelines")["runs"]
    shown = {run["name"]: screen.js("return penstockPage.bars(arguments[0])", index)
             for index, run in enumerate(runs)}
    assert shown == bars_in(report)
    assert screen.js("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("name", NAMES)
def test_page_in_docs(screen, name):
    page = PAGES / f"{name}.html"
    assert page.stat().st_size < 3_000_000
    check(screen, page, PAGES / f"{name}.json")
    if KEEP:
        (PAGES / f"{name}.png").write_bytes(screen.whole_page())
    assert (PAGES / f"{name}.png").stat().st_size < 1_000_000


def test_timeline_of_a_page_in_docs_is_in_the_readme(screen):
    screen.open_file(PAGES / "gpu.html")
    picture = screen.element(".timeline .stage")
    if KEEP:
        (PAGES / "timeline.png").write_bytes(picture)
    assert (PAGES / "timeline.png").stat().st_size < 200_000


def test_overlapping_reads_are_stacked(screen, tmp_path):
    penstock("report", PAGES / "cpu.json", "--output", "page.html", folder=tmp_path)
    screen.open_file(tmp_path / "page.html")
    runs = next(s for s in data_of(tmp_path / "page.html")["sections"]
                if s["type"] == "timelines")["runs"]
    stacked = 0
    for r, run in enumerate(runs):
        for number, lane in enumerate(run["lanes"]):
            bars = screen.js("return arguments[2].map((_, i) => penstockPage.bar(arguments[0], "
                             "arguments[1], i))", r, number, lane["items"])
            bars.sort(key=lambda bar: (bar["top"], bar["left"]))
            for one, other in itertools.pairwise(bars):
                assert one["top"] != other["top"] or one["right"] <= other["left"] + 0.01
            stacked += len({bar["top"] for bar in bars}) > 1
    assert stacked > 0


@pytest.mark.parametrize("name", NAMES)
def test_page_in_docs_is_what_the_program_writes_now(tmp_path, name):
    penstock("report", PAGES / f"{name}.json", "--output", "page.html",
             "--title", data_of(PAGES / f"{name}.html")["title"], folder=tmp_path)
    kept, now = data_of(PAGES / f"{name}.html"), data_of(tmp_path / "page.html")
    assert kept["sections"] == now["sections"], "scripts/pages.sh writes the pages in docs/ anew"


def test_page_of_a_run_made_here(screen, tmp_path):
    penstock("overlap", "--device", "cpu", "--items", "2", "--item-bytes", "2MiB", "--chunk",
             "256KiB", "--repeats", "1", "--rounds", "20", "--sweep", "--output", "out",
             folder=tmp_path)
    check(screen, tmp_path / "out" / "report.html", tmp_path / "out" / "report.json")
    assert {"Time over chunk size", "Time over slots per ring"} <= set(screen.texts("h2"))


def test_page_of_streamed_experts_made_here(screen, tmp_path):
    penstock("moe", "--device", "cpu", "--layers", "2", "--experts", "8", "--hidden", "32", "--ffn",
             "16", "--top-k", "2", "--seq", "10", "--repeats", "1", "--steps", "40", "--kernels",
             PAGES / "moe.json", "--output", "out", folder=tmp_path)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    check(screen, tmp_path / "out" / "report.html", tmp_path / "out" / "report.json")
    titles = screen.texts("h2")
    trace = report["kernel_trace"]["name"]
    assert {"Decode steps with a cache", "Cache hits over tokens", "Timeline of a few tokens",
            trace} <= set(titles)
    plot = screen.js("""const plot = document.querySelector('svg[aria-label="Cache hits over tokens"]');
        return [...plot.querySelectorAll('.series .line')].map((line) => {
            const {left, right, top, bottom} = line.getBoundingClientRect();
            return [left, right, top, bottom]; })""")
    hits, needed, best = plot
    assert hits[0] == pytest.approx(needed[0], abs=1) and hits[1] == pytest.approx(needed[1], abs=1)
    assert needed[2] == needed[3]  # as many in every step
    assert hits[3] > needed[3]  # the first step has no hits, and more is higher
    assert best[0] == pytest.approx((hits[0] + hits[1]) / 2, abs=hits[1] / 50)
    assert needed[2] <= best[2] == best[3]
    facts = dict(zip(screen.texts(".facts dt"), screen.texts(".facts dt + dd")))
    assert facts["hit rate"] == f"{report['decode']['hit_rate']:.1%}"
    # The runs share one time axis, and the kernels are in the trace that was given.
    rows = screen.js("""return [...document.querySelectorAll('.timeline')].map((one) =>
        one.querySelectorAll('.kernels .button').length)""")
    assert rows == [0, 0, len(report["kernel_trace"]["kernels"])]


def test_page_of_a_trace_with_a_kernel_inside(screen, tmp_path):
    spans = [[block, 5, role, tile, 2_100_000 + tile * 50_000 + role * 40_000,
              2_130_000 + tile * 50_000 + role * 45_000]
             for block in (5, 137) for role in range(2) for tile in range(10)]
    (tmp_path / "trace.json").write_text(json.dumps({
        "schema": 1, "kind": "trace", "version": "0", "commit": "c", "date": "d", "name": "two levels",
        "device": {"name": "cuda:0", "model": "G"},
        "timelines": {"columns": ["engine", "stage", "item", "begin_ns", "end_ns"], "streams": [
            ["upload", "upload", 0, 0, 2_000_000], ["compute", "gemm", 0, 2_000_000, 2_800_000],
            ["download", "download", 0, 2_800_000, 4_000_000]]},
        "kernels": [{"run": "streams", "name": "gemm", "stage": "gemm", "item": 0,
                     "roles": ["loader", "compute"], "begin_ns": 2_050_000, "end_ns": 2_750_000,
                     "error": {"max_ns": 38.5, "median_ns": 9, "place_ns": 50_000}, "lost": 0,
                     "columns": ["block", "sm", "role", "tile", "begin_ns", "end_ns"],
                     "spans": spans}]}))
    penstock("report", "trace.json", "--output", "page.html", folder=tmp_path)
    screen.open_file(tmp_path / "page.html")
    assert screen.js("return penstockPage.bars(0)") == 3 + len(spans)
    assert "clocks aligned to within 38.5" in screen.text(".kernels")
    screen.js("document.querySelector('.kernels .button').click()")
    screen.frames()
    begin, end = screen.view()
    assert begin == pytest.approx(2_000_000, abs=20_000) and end == pytest.approx(2_800_000, abs=20_000)


def test_page_of_every_results_file(screen, tmp_path):
    files = sorted((ROOT / "bench" / "results").glob("*.json"))
    penstock("report", *files, "--output", "page.html", folder=tmp_path)
    screen.open_file(tmp_path / "page.html")
    tables = screen.js("return document.querySelectorAll('table').length")
    assert tables >= len(files)


def test_the_load_of_experts_is_drawn(screen, tmp_path):
    document = json.loads((ROOT / "bench/results/moe.json").read_text())
    case = document["cases"][0] | {"case": "a", "metrics": {"load": [3, 0, 9, 4]}}
    (tmp_path / "moe.json").write_text(json.dumps(document | {"cases": [case]}))
    penstock("report", "moe.json", "--output", "page.html", folder=tmp_path)
    screen.open_file(tmp_path / "page.html")
    assert "a: tokens per expert" in screen.texts("h2")
    assert screen.texts(".legend li") == ["tokens", "mean"]
    assert screen.texts(".point title")[:2] == ["tokens: 1, 9", "tokens: 2, 4"]
    assert screen.js("return document.querySelectorAll('.series .line').length") == 2
