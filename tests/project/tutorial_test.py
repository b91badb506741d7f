"""The tutorial shows the code and the figures that are in the tree."""

import json
import re
import subprocess
import sys
from pathlib import Path

import picture_test
import pytest
import tutorial
from links_test import links

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs/tutorial"
LADDERS = ("copy", "gemm", "attention", "decode")
CHAPTERS = [chapter for ladder in LADDERS for chapter in sorted((TUTORIAL / ladder).glob("*.md"))]
PAGES = sorted(TUTORIAL.rglob("*.md"))

SOURCE = """\
// A file.
#include <cstdio>

namespace {

constexpr int depth = 4, width = 2;

// Adds.
template <class T>
__device__ T sum(T a, T b) {
  if (a > b) { return a + b; }
  return b + a;  // not depth(
}

struct Pair {
  int sum() const { return a + b; }
  int a, b;
};

void roles(int role) {
  const auto load = [&](int at) {
    call("}");
  };

  // One of them.
  if (role == 0) {
    load(role);
  } else if (role == 1) {
    for (int i = 0; i < role; ++i) {
#pragma unroll
      for (int k = 0; k < i; ++k) load(k);
    }
  }
  done();
}

constexpr int size = Pair::count;

}  // namespace
"""


def run(*arguments):
    return subprocess.run([sys.executable, ROOT / "tools/tutorial.py", *arguments],
                          capture_output=True, text=True)


@pytest.fixture
def source(write, monkeypatch):
    """Makes a source file of the test's own the one that places are filled from."""
    path = write("kernel.cu", SOURCE)
    monkeypatch.setattr(tutorial, "ROOT", path.parent)
    return path


@pytest.fixture
def results(write, monkeypatch):
    """The same for a results file of these rungs, each a list of rows."""

    def write_results(**rungs):
        path = write("ladder.json", json.dumps(
            {"rungs": [{"name": name, "rows": rows} for name, rows in rungs.items()]}))
        monkeypatch.setattr(tutorial, "ROOT", path.parent)

    return write_results


def row(label, work="", seconds=2e-6, note="", **more):
    return {"label": label, "work": work, "seconds": seconds, "efficiency": 0.5, "note": note,
            "kernel": {"registers": 32, "shared_bytes": 2048, "occupancy": 0.75}, **more}


def place(text):
    return tutorial.filled(f"<!-- {text} -->\n<!-- end -->").splitlines()[1:-1]


def test_the_chapters_are_current():
    done = run("--check")
    assert done.returncode == 0, done.stderr


def test_chapters_below_the_folder_are_filled_too(write, tmp_path):
    chapter = write("part/one.md", "<!-- code tools/tutorial.py: none -->\n<!-- end -->\n")
    assert "part/one.md: tools/tutorial.py defines no none" in run(tmp_path).stderr
    chapter.write_text("<!-- rows bench/results/none.json: a -->\n<!-- end -->\n")
    assert "part/one.md" in run("--check", tmp_path).stderr
    assert run(tmp_path).returncode == 0 and run("--check", tmp_path).returncode == 0
    assert "Not measured yet" in chapter.read_text()


def test_a_definition_comes_with_its_comment_and_nothing_else():
    found = list(tutorial.definitions(SOURCE))
    assert [one.splitlines()[0] for one in found] == [
        "constexpr int depth = 4, width = 2;", "// Adds.", "struct Pair {",
        "void roles(int role) {", "constexpr int size = Pair::count;"]
    assert found[1].endswith("return b + a;  // not depth(\n}")


@pytest.mark.parametrize("name, index", [("depth", 0), ("sum", 1), ("Pair", 2), ("roles", 3)])
def test_definitions_are_found_by_name(name, index):
    found = list(tutorial.definitions(SOURCE))
    assert [bool(tutorial.defines(one, name)) for one in found] == [i == index for i in range(5)]


def test_a_chapter_is_filled_and_then_current(source):
    text = "Before\n<!-- code kernel.cu: Pair, depth -->\nold\n<!-- end -->\nafter\n"
    filled = tutorial.filled(text)
    assert "old" not in filled and "struct Pair {" in filled and "depth = 4" in filled
    assert filled.startswith("Before\n") and filled.endswith("<!-- end -->\nafter\n")
    assert tutorial.filled(filled) == filled


@pytest.mark.parametrize("part, expected", [
    ("const auto load", 'const auto load = [&](int at) {|  call("}");|};'),
    ("if (role == 0)", "// One of them.|if (role == 0) {|  load(role);|}"),
    ("// One of them.", "// One of them.|if (role == 0) {|  load(role);|}"),
    ("} else if (role == 1)", "else if (role == 1) {|  for (int i = 0; i < role; ++i) {|"
                              "#pragma unroll|    for (int k = 0; k < i; ++k) load(k);|  }|}"),
    ("for (int k", "#pragma unroll|for (int k = 0; k < i; ++k) load(k);"),
    ("for (int i = 0 ... load(k)", "for (int i = 0; i < role; ++i) {|#pragma unroll|"
                                   "  for (int k = 0; k < i; ++k) load(k);|}"),
    ("done()", "done();"),
])
def test_a_part_of_a_definition_is_whole(source, part, expected):
    assert place(f"code kernel.cu: roles > {part}") == ["```cuda", *expected.split("|"), "```"]


@pytest.mark.parametrize("names, message", [
    ("missing", "defines no missing"),
    ("roles > missing", "roles has no line with 'missing'"),
    ("roles > done() ... load(k)", r"roles has no line with 'load\(k\)'"),
])
def test_what_is_gone_is_an_error(source, names, message):
    with pytest.raises(tutorial.Wrong, match=message):
        place(f"code kernel.cu: {names}")


def test_rows_come_from_the_results_file(results):
    results(plain=[row("4096", "gemm 4096", note="7 TFLOP/s"),
                   row("8192", "gemm 8192", seconds=2e-3)])
    assert place("rows ladder.json: plain") == [
        "|  | time, share of the yardstick | registers | shared memory | occupancy | note |",
        "|---|---:|---:|---:|---:|---:|",
        "| 4096 | 2.0 µs, 50.0 % | 32 | 2.0 KiB | 75 % | 7 TFLOP/s |",
        "| 8192 | 2.000 ms, 50.0 % | 32 | 2.0 KiB | 75 % |  |"]


def test_a_kernel_at_several_intensities_is_one_line(results):
    results(plain=[row("deep", "copy-bound"), row("flat", "copy-bound"),
                   row("deep", "balanced", seconds=None, note="needs more")])
    assert place("rows ladder.json: plain") == [
        "|  | copy-bound | balanced | registers | shared memory | occupancy |",
        "|---|---:|---:|---:|---:|---:|",
        "| deep | 2.0 µs, 50.0 % | needs more | 32 | 2.0 KiB | 75 % |",
        "| flat | 2.0 µs, 50.0 % |  | 32 | 2.0 KiB | 75 % |"]


def test_counters_are_columns_where_there_are_some(results):
    counters = {"launches": 1, "seconds": 1e-6, "dram_read_bytes": 1.2e6,
                "dram_written_bytes": 3e5, "dram_share": 0.456, "l2_hit_rate": 0.789}
    results(plain=[row("a", counters=counters), row("b")])
    assert place("rows ladder.json: plain") == [
        "|  | time, share of the yardstick | registers | shared memory | occupancy "
        "| DRAM bandwidth | DRAM bytes | L2 hits |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        "| a | 2.0 µs, 50.0 % | 32 | 2.0 KiB | 75 % | 45.6 % | 1.5 MB | 78.9 % |",
        "| b | 2.0 µs, 50.0 % | 32 | 2.0 KiB | 75 % | – | – | – |"]


def test_verdicts_are_a_table(write, monkeypatch):
    path = write("ladder.json", json.dumps({"rungs": [], "verdicts": [
        {"criterion": "at most 420 ms", "met": True, "measured": "20 ms"},
        {"criterion": "50 % of the DRAM", "met": False, "measured": "2 %"},
        {"criterion": "hits", "met": None, "measured": "needs --counters"}]}))
    monkeypatch.setattr(tutorial, "ROOT", path.parent)
    assert place("verdicts ladder.json")[2:] == [
        "| at most 420 ms | met | 20 ms |",
        "| 50 % of the DRAM | not met | 2 % |",
        "| hits | not measured | needs --counters |"]
    assert place("verdicts none.json") == ["*Not measured yet.*"]


def test_verdicts_that_are_gone_are_an_error(results):
    results(plain=[row("a")])
    with pytest.raises(tutorial.Wrong, match="has no verdicts"):
        place("verdicts ladder.json")


def test_a_dropped_row_says_why(results):
    results(plain=[row("a", seconds=None, dropped="faster than its floor")])
    assert "dropped: faster than its floor" in place("rows ladder.json: plain")[2]


def test_rows_of_several_rungs_say_whose_they_are(results):
    results(one=[row("a")], two=[row("a")])
    assert [line.split(" | ")[0] for line in place("rows ladder.json: one, two")[2:]] == [
        "| one: a", "| two: a"]


def test_the_best_of_a_rung(results):
    results(one=[row("deep", "copy-bound", seconds=3e-6), row("flat", "copy-bound"),
                 row("deep", "balanced"), row("none", "balanced", seconds=None, note="not here")],
            two=[row("only", "stencil, balanced")])
    assert place("best ladder.json: one, two") == [
        "|  | copy-bound | balanced |", "|---|---:|---:|",
        "| one | 2.0 µs, 50.0 % (flat) | 2.0 µs, 50.0 % |",
        "| two |  | 2.0 µs, 50.0 % |"]


def test_a_rung_that_is_gone_is_an_error(results):
    results(one=[row("a")])
    for kind in ("rows", "best"):
        with pytest.raises(tutorial.Wrong, match="has no rung two"):
            place(f"{kind} ladder.json: two")


@pytest.fixture
def trace(write, monkeypatch):
    """A trace where the tutorial looks for it; returns the folder that everything is in."""
    path = write("docs/traces/copy_ring.json", json.dumps(picture_test.document()))
    root = path.parents[2]
    monkeypatch.setattr(tutorial, "ROOT", root)
    return root


def test_a_picture_is_linked_and_says_what_the_trace_says(trace):
    pictures = {}
    text = tutorial.filled("<!-- picture docs/traces/copy_ring.json -->\nold\n<!-- end -->\n",
                           trace / "docs/copy", pictures)
    lines = text.splitlines()
    assert lines[1] == "![What the kernel did when](../pictures/copy_ring.svg)"
    assert "Busy: loader " in lines[3] and lines[4] == "<!-- end -->"
    path, drawn = pictures.popitem()
    assert path == trace / "docs/pictures/copy_ring.svg" and drawn.startswith("<svg")
    assert tutorial.filled(text, trace / "docs/copy") == text


def test_pictures_are_written_and_checked(trace, monkeypatch, capsys):
    chapter = trace / "docs/copy/one.md"
    chapter.parent.mkdir()
    chapter.write_text("<!-- picture docs/traces/copy_ring.json -->\n<!-- end -->\n")

    def run_here(*arguments):
        monkeypatch.setattr(sys, "argv", ["tutorial.py", *arguments, str(trace / "docs")])
        tutorial.main()

    run_here()
    run_here("--check")
    drawn = trace / "docs/pictures/copy_ring.svg"
    drawn.write_text("by hand")
    with pytest.raises(SystemExit, match="copy_ring.svg"):
        run_here("--check")
    assert drawn.read_text() == "by hand"
    run_here()
    assert drawn.read_text().startswith("<svg")


def test_a_trace_that_is_none_is_an_error(trace):
    (trace / "docs/traces/copy_ring.json").write_text('{"kind": "ladder"}')
    with pytest.raises(ValueError, match="not a kernel's trace"):
        place("picture docs/traces/copy_ring.json")


def test_what_was_not_traced_says_so(write, monkeypatch):
    monkeypatch.setattr(tutorial, "ROOT", write("x").parent)
    assert place("picture docs/traces/none.json") == ["*Not traced yet.*"]


def test_what_was_not_measured_says_so(write, monkeypatch):
    monkeypatch.setattr(tutorial, "ROOT", write("x").parent)
    assert place("rows none.json: a") == place("best none.json: a") == ["*Not measured yet.*"]


def rung_name(source):
    return re.search(r'PENSTOCK_\w*RUNG\(\s*"([^"]+)"', source.read_text()).group(1)


@pytest.mark.parametrize("ladder", LADDERS)
def test_every_rung_has_its_chapter_and_every_chapter_its_rung(ladder):
    rungs = {path.stem for path in (ROOT / "examples" / ladder).glob("*.cu")}
    assert rungs and {path.stem for path in (TUTORIAL / ladder).glob("*.md")} == rungs


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_chapter_has_its_parts(chapter):
    text = chapter.read_text()
    ladder, rung = chapter.parent.name, chapter.stem
    name = rung_name(ROOT / f"examples/{ladder}/{rung}.cu")
    assert f"<!-- rows bench/results/ladder_{ladder}.json: {name} -->" in text
    assert f"<!-- code examples/{ladder}/" in text or "<!-- code include/penstock/kit/" in text
    assert "**The idea.**" in text and "*A drawing" in text and "<details><summary>Answer" in text
    assert f"{ladder}/{rung}.cu" in text or "gemm/$rung.cu" in text  # what to disassemble
    assert text.count("<details>") == text.count("</details>")


def traces_of(source):
    """The names of the traces that a rung writes."""
    return set(re.findall(r'\.name = "(\w+)"|trace_of<[^>]*>\("(\w+)"\)', source.read_text()))


def test_every_traced_kernel_has_its_picture_and_every_picture_its_kernel():
    for chapter in CHAPTERS:
        ladder = chapter.parent.name
        named = {a or b for a, b in traces_of(ROOT / f"examples/{ladder}/{chapter.stem}.cu")}
        places = re.findall(r"<!-- picture docs/tutorial/traces/(\S+)\.json -->",
                            chapter.read_text())
        named = {f"{ladder}_{name.removeprefix(ladder + '_')}" for name in named}
        assert set(places) == named, chapter.name


def test_pictures_and_traces_are_small_and_none_is_left_over():
    traces = {path.stem: path for path in (TUTORIAL / "traces").glob("*")}
    pictures = {path.stem: path for path in (TUTORIAL / "pictures").glob("*")}
    assert traces.keys() == pictures.keys()
    for path in [*traces.values(), *pictures.values()]:
        assert path.stat().st_size < 30 * 1024, path.name


@pytest.mark.parametrize("ladder", LADDERS)
def test_places_name_rungs_that_are_there(ladder):
    rungs = {rung_name(path) for path in (ROOT / "examples" / ladder).glob("*.cu")}
    places = re.compile(rf"<!-- (?:rows|best) bench/results/ladder_{ladder}\.json: (.+?) -->")
    named = {name for page in PAGES for names in places.findall(page.read_text())
             for name in names.split(", ")}
    assert named == rungs


def test_the_index_links_every_page():
    linked = {(TUTORIAL / link.split("#")[0]).resolve() for link in links(TUTORIAL / "README.md")}
    assert {page for page in PAGES if page.name != "README.md"} <= linked
