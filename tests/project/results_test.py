import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[2] / "tools" / "results.py"

CASES = {
    "schema": 1, "name": "resample", "date": "2026-01-31T12:00:00Z", "commit": "abc",
    "machine": {"gpu": "GPU", "driver": "580.1", "cuda": "13.0",
                "cpu": "CPU", "ceilings": {"device_copy_GBps": 4240.22}},
    "peers": {"torch": "2.11", "other": "absent (not installed)"},
    "cases": [
        {"case": "a|b", "floor_us": 80.0, "ours": {"gpu_us": 100.0, "call_us": 500.0},
         "peer": {"torch": {"gpu_us": 1500.0}}, "metrics": {}},
        {"case": "c", "ours": {"call_us": 2e6}, "peer": {}, "metrics": {}},
    ],
}
RUNGS = {
    "schema": 1, "name": "ladder", "date": "d", "commit": "c",
    "machine": {"model": "GPU", "driver": "580.1", "cuda": "13.0", "cpu": "CPU"},
    "rungs": [{"name": "depth", "rows": [
        {"label": "one", "seconds": 0.5, "speedup": 1.0, "hidden": None, "efficiency": 0.25},
        {"label": "two", "seconds": 0.25, "speedup": 2.0, "hidden": -0.5, "efficiency": None}]}],
}


@pytest.fixture
def run(tmp_path):
    (tmp_path / "in").mkdir()

    def run_results(files, *arguments):
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / "in" / name).write_text(text)
        return subprocess.run([sys.executable, RESULTS, "--results", tmp_path / "in", "--output",
                               tmp_path / "out.md", "--pages", tmp_path / "pages", *arguments],
                              capture_output=True, text=True)

    return run_results


@pytest.fixture
def lines_of(run, tmp_path):
    """Of the page that is made of files."""
    def lines(files):
        done = run(files)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "out.md").read_text().splitlines()

    return lines


def test_tables_of_cases_and_of_rungs(lines_of):
    lines = lines_of({"resample.json": CASES, "ladder.json": RUNGS})
    assert lines.index("## ladder") < lines.index("## resample")
    for line in [
        "GPU, driver 580.1, CUDA 13.0, 2026-01-31T12:00:00Z, commit abc. Ceilings: device copy "
        "4240 GB/s.",
        "| case | ours | floor | floor / ours | torch | torch / ours | other | other / ours |",
        "| a\\|b | 100 µs | 80 µs | 80.0 % | 1.5 ms | 15.000 | – | – |",
        "| c | 2 s | – | – | – | – | – | – |",
        "Peers: torch 2.11, other absent (not installed).",
        "Again: `scripts/gpu_bench.sh resample`.",
        "| depth: one | 500 ms | 1.00 | – | 25.0 % |",
        "| depth: two | 250 ms | 2.00 | -50.0 % | – |",
    ]:
        assert line in lines


def test_the_host_and_what_ncu_counted_are_shown_where_they_are_known(lines_of):
    def case(name, metrics):
        return {"case": name, "ours": {"gpu_us": 2.0}, "peer": {}, "floor_us": 1.0} | metrics

    share = {"dram__throughput.avg.pct_of_peak_sustained_elapsed": 84.72}
    cases = [case("a", {"metrics": {"enqueue_us": 9.5, "counters": share}}),
             case("b", {"metrics": {"enqueue_us": 12.0}}), case("c", {})]
    lines = lines_of({"resample.json": CASES | {"peers": {}, "cases": cases}})
    for line in [
        "| case | ours | floor | floor / ours | host | DRAM |",
        "| a | 2 µs | 1 µs | 50.0 % | 9.5 µs | 84.7 % |",
        "| b | 2 µs | 1 µs | 50.0 % | 12 µs | – |",
        "| c | 2 µs | 1 µs | 50.0 % | – | – |",
    ]:
        assert line in lines


def test_a_ladder_beside_the_library_is_a_table_of_works(lines_of):
    def row(label, work, seconds, library):
        return {"label": label, "work": work, "seconds": seconds, "library_seconds": library,
                "speedup": 1.0, "hidden": None, "efficiency": 0.5}

    bulk = [row("2", "a", 3e-6, 2e-6), row("4", "a", 4e-6, 2e-6), row("2", "b", 2e-6, 4e-6),
            {"label": "4", "work": "b", "seconds": None, "note": "not here"}]
    library = [row("all", "a", 2e-6, 2e-6), row("all", "b", 4e-6, 4e-6)]
    rungs = [{"name": "bulk", "rows": bulk}, {"name": "library", "rows": library}]
    lines = lines_of({"ladder.json": RUNGS | {"rungs": rungs}})
    for line in [
        "| work | bulk | library | cudaMemcpy | best rung / library |",
        "| a | 3 µs | 2 µs | 1 µs | 1.50 |",
        "| b | 2 µs | 4 µs | 2 µs | 0.50 |",
    ]:
        assert line in lines


def test_profiles_are_a_table_of_kernels(lines_of):
    peak = "throughput.avg.pct_of_peak_sustained_elapsed"
    best = {"gpu__time_duration.sum": 6e-6, "dram__bytes_read.sum": 3e6,
            "dram__bytes_write.sum": 1.5e6, "of_ceiling": 0.5, f"dram__{peak}": 40.0,
            f"l1tex__{peak}": 30.0, f"sm__{peak}": 20.0}
    slow = {name: value for name, value in best.items() if "l1tex" not in name}
    case = {"case": "a", "reports": {}, "profiles": {"baseline": slow, "best": best}}
    lines = lines_of({"profiles.json": CASES | {"calls": 3, "cases": [case]}})
    for line in [
        "| kernel | time | DRAM read | written | of a device copy's rate | DRAM | L1 | SMs |",
        "| a: baseline | 2 µs | 1.00 MB | 0.50 MB | 50.0 % | 40.0 % | – | 20.0 % |",
        "| a: best | 2 µs | 1.00 MB | 0.50 MB | 50.0 % | 40.0 % | 30.0 % | 20.0 % |",
    ]:
        assert line in lines


def test_it_is_the_same_every_time_and_stale_when_a_figure_changes(run, tmp_path):
    run({"resample.json": CASES, "ladder.json": RUNGS})
    first = (tmp_path / "out.md").read_text()
    assert run({}, "--check").returncode == 0
    assert run({}).returncode == 0 and (tmp_path / "out.md").read_text() == first
    changed = copy.deepcopy(CASES)
    changed["cases"][0]["ours"]["gpu_us"] = 101.0
    done = run({"resample.json": changed}, "--check")
    assert done.returncode == 1 and "out.md is stale" in done.stdout
    assert (tmp_path / "out.md").read_text() == first


def test_a_page_gets_the_table_it_wants(run, tmp_path):
    page = tmp_path / "pages" / "ops" / "resample.md"
    page.parent.mkdir(parents=True)
    before = "# Resample\n\n<!-- results of resample -->\n"
    after = "<!-- end of results -->\n\nMore.\n"
    page.write_text(f"{before}an old table\n{after}")
    other = page.with_name("other.md")
    other.write_text("# Other\n")
    assert run({"resample.json": CASES}).returncode == 0
    text = page.read_text()
    assert text.startswith(before) and text.endswith(after) and "an old table" not in text
    assert "| a\\|b | 100 µs | 80 µs | 80.0 % | 1.5 ms | 15.000 | – | – |" in text.splitlines()
    assert run({}, "--check").returncode == 0
    page.write_text(text.replace("80 µs", "70 µs"))
    done = run({}, "--check")
    assert done.returncode == 1 and "resample.md is stale" in done.stdout
    assert run({}).returncode == 0 and page.read_text() == text
    assert other.read_text() == "# Other\n"


def test_a_page_cannot_want_the_table_of_no_file(run, tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "a.md").write_text("<!-- results of none -->\n<!-- end of results -->\n")
    done = run({"resample.json": CASES})
    assert done.returncode == 1 and "none.json" in done.stderr


def test_check_without_a_page_is_stale(run):
    assert run({"resample.json": CASES}, "--check").returncode == 1


@pytest.mark.parametrize("content", [
    "", '{"schema": 1, "cases": [', "[]", '{"schema": 2, "cases": []}', '{"schema": 1}',
    json.dumps(CASES | {"cases": [{"case": "a"}]}),
    json.dumps(CASES | {"cases": [3]}),
    json.dumps(CASES | {"machine": None}),
    json.dumps(RUNGS | {"rungs": [{"name": "a", "rows": [{"seconds": "soon"}]}]}),
])
def test_a_broken_file_is_named(run, tmp_path, content):
    done = run({"good.json": CASES, "bad.json": content})
    assert done.returncode == 1 and "bad.json" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "out.md").exists()


def test_the_page_in_the_docs_is_what_the_files_say():
    done = subprocess.run([sys.executable, RESULTS, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
