import copy
import json
import re
import subprocess
import sys
from pathlib import Path

import benchmarks
import pytest
import results
import results_tables

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tools/results.py"

CASES = {
    "schema": 1, "name": "resample", "date": "2026-01-31T12:00:00Z", "commit": "abc", "sources": "f00",
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
    (tmp_path / "bench/results").mkdir(parents=True)

    def run_results(files, *arguments):
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / "bench/results" / name).write_text(text)
        return subprocess.run([sys.executable, RESULTS, "--root", tmp_path, *arguments],
                              capture_output=True, text=True)

    return run_results


@pytest.fixture
def lines_of(run, tmp_path):
    """The lines of all pages that are made of files."""
    def lines(files):
        done = run(files)
        assert done.returncode == 0, done.stderr
        return [line for page in sorted((tmp_path / "docs").rglob("*.md"))
                for line in page.read_text().splitlines()]

    return lines


def test_tables_of_cases_and_of_rungs(lines_of):
    lines = lines_of({"resample.json": CASES, "ladder.json": RUNGS})
    for line in [
        "GPU, driver 580.1, CUDA 13.0, 2026-01-31T12:00:00Z, commit abc. Measured ceilings: device "
        "copy 4240 GB/s.",
        "| case | ours | floor | ours / floor | torch | torch / ours | other | other / ours |",
        "| a\\|b | 100 µs | 80 µs | 1.250 | 1.5 ms | 15.000 | – | – |",
        "| c | 2 s | – | – | – | – | – | – |",
        "To measure again: `scripts/gpu_bench.sh resample --again`.",
        "| depth: one | 500 ms | 1.00 | – | 25.0 % |",
        "| depth: two | 250 ms | 2.00 | -50.0 % | – |",
    ]:
        assert line in lines


def test_the_summary_has_one_line_per_benchmark(run, tmp_path):
    assert run({"resample.json": CASES, "ladder.json": RUNGS}).returncode == 0
    text = (tmp_path / "docs/results.md").read_text()
    assert ("| [resample](results/resample.md) | resample on the GPU | 1.250 × the floor; 15 × as "
            "fast as torch | abc |") in text.splitlines()
    assert "| [ladder](results/ladder.md) |  | 1 rungs, best 25.0 % of its floor or yardstick | c |" in text
    assert len(text.partition("\nNot measured yet")[0].splitlines()) < 28


def test_the_page_of_a_benchmark_that_is_gone_goes(run, tmp_path):
    assert run({"resample.json": CASES, "ladder.json": RUNGS}).returncode == 0
    (tmp_path / "bench/results/ladder.json").unlink()
    done = run({}, "--check")
    assert done.returncode == 1 and "docs/results/ladder.md is stale" in done.stdout
    assert run({}).returncode == 0
    assert [page.name for page in (tmp_path / "docs/results").iterdir()] == ["resample.md"]


def test_a_dropped_case_is_shown_with_its_reason(lines_of):
    reason = "took 90 us, 0.900 x its floor of 100 us"
    rows = [{"label": "fast", "seconds": None, "speedup": None, "hidden": None, "efficiency": None,
             "note": "", "dropped": "beat its floor"}]
    lines = lines_of({"resample.json": CASES | {"dropped": [{"case": "d", "reason": reason}]},
                      "ladder.json": RUNGS | {"rungs": [{"name": "depth", "rows": rows}]}})
    assert f"Dropped: d: {reason}." in lines
    assert "| depth: fast | dropped: beat its floor | – | – | – |" in lines
    assert any("1 dropped" in line for line in lines)


def test_a_yardstick_has_its_own_column(lines_of):
    case = CASES["cases"][0] | {"yardstick": "cudaMemcpy", "yardstick_us": 110.0}
    del case["floor_us"]
    kernels = [rung | {"machine": {}} for rung in RUNGS["rungs"]]
    lines = lines_of({"resample.json": CASES | {"peers": {}, "cases": [case]},
                      "ladder.json": RUNGS | {"rungs": kernels}})
    assert "| case | ours | yardstick | yardstick / ours |" in lines
    assert "| a\\|b | 100 µs | 110 µs | 1.100 |" in lines
    assert "*yardstick*: cudaMemcpy. It may be beaten." in lines
    assert "| rung | time | speed-up | hidden | yardstick / time |" in lines


def test_floors_older_than_their_rule_are_yardsticks(run, tmp_path):
    old = {key: value for key, value in CASES.items() if key != "sources"}
    beaten = CASES["cases"][0] | {"case": "b", "ours": {"gpu_us": 64.0}}
    assert run({"resample.json": old | {"peers": {}, "cases": [CASES["cases"][0], beaten]}}).returncode == 0
    lines = (tmp_path / "docs/results/resample.md").read_text().splitlines()
    assert "| case | ours | yardstick | yardstick / ours |" in lines
    assert "| b | 64 µs | 80 µs | 1.250 |" in lines
    assert any("older than the rule for floors" in line for line in lines)
    assert "the floor" not in (tmp_path / "docs/results.md").read_text().split("| benchmark |")[1]


def test_peers_that_were_left_out_are_named_with_the_reason(lines_of):
    left = {"metrics": {"left_out": {"torch": "raised BenchError: no backend"}}}
    cases = [CASES["cases"][1] | {"case": name} | left for name in ("c", "d")]
    lines = lines_of({"resample.json": CASES | {"cases": [CASES["cases"][0], *cases]}})
    assert "torch is left out in c; d: raised BenchError: no backend." in lines


def test_engines_alone_have_columns(lines_of):
    case = CASES["cases"][0] | {"metrics": {"engines_us": {"decode": 80.0, "link": 9.0}}}
    lines = lines_of({"resample.json": CASES | {"peers": {}, "cases": [case]}})
    assert "| case | ours | floor | ours / floor | decode alone | link alone |" in lines
    assert "| a\\|b | 100 µs | 80 µs | 1.250 | 80 µs | 9 µs |" in lines


def test_rows_of_one_kernel_name_their_work(lines_of):
    rows = [row | {"label": "one", "work": work}
            for row, work in zip(RUNGS["rungs"][0]["rows"], ("small", "large"))]
    lines = lines_of({"ladder.json": RUNGS | {"rungs": [{"name": "depth", "rows": rows}]}})
    assert "| rung | work | time | speed-up | hidden | floor / time |" in lines
    assert "| depth: one | large | 250 ms | 2.00 | -50.0 % | – |" in lines


def test_call_and_host_times_say_which_is_which(lines_of):
    case = {"case": "a", "peer": {}, "ours": {"gpu_us": 8.0, "call_us": 98.0, "host_us": 78.0},
            "metrics": {"enqueue_us": 12.5, "sustained_us": 13.0}}
    lines = lines_of({"resample.json": CASES | {"peers": {}, "cases": [case]}})
    for line in [
        "| case | GPU time | call time after a pause | host time after a pause | host time, back to "
        "back | time per call, back to back |",
        "| a | 8 µs | 98 µs | 78 µs | 12.5 µs | 13 µs |",
    ]:
        assert line in lines


def test_counters_are_shown_where_they_are_known(lines_of):
    def case(name, metrics):
        return {"case": name, "ours": {"gpu_us": 2.0}, "peer": {}, "floor_us": 1.0} | metrics

    share = {"dram__throughput.avg.pct_of_peak_sustained_elapsed": 84.72}
    cases = [case("a", {"metrics": {"counters": share}}), case("b", {})]
    lines = lines_of({"resample.json": CASES | {"peers": {}, "cases": cases}})
    for line in [
        "| case | ours | floor | ours / floor | DRAM |",
        "| a | 2 µs | 1 µs | 2.000 | 84.7 % |",
        "| b | 2 µs | 1 µs | 2.000 | – |",
    ]:
        assert line in lines


def test_counters_and_verdicts_of_a_ladder(lines_of):
    rows = [RUNGS["rungs"][0]["rows"][0] | {"work": "full", "counters": {
        "launches": 1, "seconds": 1e-3, "dram_read_bytes": 12.34e6, "dram_written_bytes": 5e6,
        "dram_share": 0.125, "l2_hit_rate": 0.5}}, RUNGS["rungs"][0]["rows"][1]]
    verdicts = [{"criterion": "at most 420 ms", "met": True, "measured": "20 ms"},
                {"criterion": "half of it", "met": False, "measured": "2 %"},
                {"criterion": "hits", "met": None, "measured": "needs --counters"}]
    lines = lines_of({"ladder.json": RUNGS | {"rungs": [{"name": "depth", "rows": rows}],
                                              "verdicts": verdicts}})
    for line in ["| depth: one | full | 12.5 % | 12.3 MB | 5.0 MB | 50.0 % |",
                 "| at most 420 ms | met | 20 ms |", "| half of it | not met | 2 % |",
                 "| hits | not measured | needs --counters |"]:
        assert line in lines
    assert not any(line.startswith("| depth: two | ") and " MB" in line for line in lines)


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


def test_a_page_has_our_times_in_other_ways(lines_of):
    cases = [{"case": "a", "ours": {"gpu_us": 2.0}, "peer": {}, "metrics": {"kernels": {
                 "captured": {"gpu_us": 3.0}, "portable": {"gpu_us": 4.0}}}},
             {"case": "b", "ours": {"gpu_us": 5.0}, "peer": {}, "metrics": {"kernels": {
                 "portable": {"gpu_us": 6.0}}}},
             {"case": "c", "ours": {"gpu_us": 7.0}, "peer": {}, "metrics": {}}]
    lines = lines_of({"gemm.json": CASES | {"peers": {}, "cases": cases}})
    begin = lines.index("| case | ours | captured | portable |")
    assert lines[begin + 2:begin + 5] == ["| a | 2 µs | 3 µs | 4 µs |", "| b | 5 µs | – | 6 µs |", ""]
    assert "## Other kernels, layouts and options" in lines
    assert "## Other kernels, layouts and options" not in lines_of({"gemm.json": CASES})


def test_profiles_are_a_table_of_kernels(lines_of):
    peak = "throughput.avg.pct_of_peak_sustained_elapsed"
    best = {"gpu__time_duration.sum": 6e-6, "dram__bytes_read.sum": 3e6,
            "dram__bytes_write.sum": 1.5e6, "of_ceiling": 0.5, f"dram__{peak}": 40.0,
            f"l1tex__{peak}": 30.0, f"sm__{peak}": 20.0}
    slow = {name: value for name, value in best.items() if "l1tex" not in name}
    case = {"case": "a", "reports": {}, "profiles": {"baseline": slow, "best": best}}
    lines = lines_of({"profiles.json": CASES | {"calls": 3, "cases": [case]}})
    for line in [
        "| kernel | time | DRAM read | DRAM written | share of the copy rate | DRAM | L1 | SMs |",
        "| a: baseline | 2 µs | 1.00 MB | 0.50 MB | 50.0 % | 40.0 % | – | 20.0 % |",
        "| a: best | 2 µs | 1.00 MB | 0.50 MB | 50.0 % | 40.0 % | 30.0 % | 20.0 % |",
    ]:
        assert line in lines


def test_it_is_the_same_every_time_and_stale_when_a_figure_changes(run, tmp_path):
    run({"resample.json": CASES, "ladder.json": RUNGS})
    page = tmp_path / "docs/results/resample.md"
    first = page.read_text()
    assert run({}, "--check").returncode == 0
    assert run({}).returncode == 0 and page.read_text() == first
    changed = copy.deepcopy(CASES)
    changed["cases"][0]["ours"]["gpu_us"] = 101.0
    done = run({"resample.json": changed}, "--check")
    assert done.returncode == 1 and "docs/results/resample.md is stale" in done.stdout
    assert page.read_text() == first


def test_a_page_gets_the_table_it_asks_for(run, write):
    before = "# Resample\n\n<!-- results of resample -->\n"
    after = "<!-- end of results -->\n\nMore.\n"
    page = write("docs/ops/resample.md", f"{before}an old table\n{after}")
    other = write("docs/ops/other.md", "# Other\n")
    assert run({"resample.json": CASES}).returncode == 0
    text = page.read_text()
    assert text.startswith(before) and text.endswith(after) and "an old table" not in text
    assert "| a\\|b | 100 µs | 80 µs | 1.250 | 1.5 ms | 15.000 | – | – |" in text.splitlines()
    assert run({}, "--check").returncode == 0
    page.write_text(text.replace("80 µs", "70 µs"))
    done = run({}, "--check")
    assert done.returncode == 1 and "docs/ops/resample.md is stale" in done.stdout
    assert run({}).returncode == 0 and page.read_text() == text
    assert other.read_text() == "# Other\n"


@pytest.mark.parametrize("name", ["moe_decode", "moe-calls"])
def test_a_table_of_a_benchmark_without_results_is_empty(run, write, name):
    place = f"<!-- table {name} -->\n{{}}<!-- end of table -->\n"
    page = write("docs/ops/moe.md", place.format("old\n"))
    assert run({"resample.json": CASES}).returncode == 0
    assert page.read_text() == place.format("")


SECTION = """\
# Resample

<!-- section moe_cpu -->
## On the CPU

It takes <!-- figure moe_cpu: value us of ours.call_us in c -->{figure}<!-- /figure --> there.

<!-- table moe_cpu -->
{table}<!-- end of table -->

<!-- end of section -->
## More
"""


def test_a_section_without_results_is_one_comment(run, write):
    page = write("docs/ops/moe.md", SECTION.format(figure="1 s", table="old\n"))
    assert run({"resample.json": CASES}).returncode == 0
    hidden = page.read_text()
    assert hidden.startswith("# Resample\n\n<!-- section moe_cpu, not measured yet\n## On the CPU\n")
    shown = re.sub("<!--.*?-->", "", hidden, flags=re.DOTALL)
    assert shown == "# Resample\n\n\n## More\n"
    assert run({}, "--check").returncode == 0
    case = CASES["cases"][1] | {"params": dict.fromkeys(
        ("tokens", "hidden", "width", "experts", "choices", "threads"), 1)}
    assert run({"moe_cpu.json": CASES | {"cases": [case]}}).returncode == 0
    text = page.read_text()
    assert "<!-- section moe_cpu -->\n## On the CPU\n" in text and "-->2 s<!--" in text and "| c | (1, 1" in text
    (page.parents[2] / "bench/results/moe_cpu.json").unlink()
    assert run({}).returncode == 0 and page.read_text() == hidden


def test_the_summary_names_what_was_not_measured(run, tmp_path):
    assert run({"resample.json": CASES}).returncode == 0
    text = (tmp_path / "docs/results.md").read_text()
    about = "| `moe_cpu` | mixture-of-experts layers on the CPU |"
    assert about in text and "`scripts/gpu_bench.sh NAME` measures them" in text
    assert "| `resample` |" not in text


def test_the_table_of_a_page_shows_what_was_dropped(run, write):
    reason = "took 90 us, 0.900 x its floor of 100 us"
    files = {"expert_streaming.json": CASES | {"dropped": [{"case": "d", "reason": reason}]}}
    tables = [f"<!-- table {name} -->\n<!-- end of table -->\n"
              for name in ("expert_streaming", "expert_streaming-cache")]
    page = write("docs/a.md", "\n".join(tables))
    assert run(files).returncode == 0
    first, second = page.read_text().split("<!-- end of table -->\n\n")
    assert f"Dropped: d: {reason}." in first and "Dropped" not in second


@pytest.fixture
def measured(tmp_path, write):
    """A tree whose benchmark overlap-kernel has a results file of its present sources."""
    (tmp_path / "bench/results").mkdir(parents=True, exist_ok=True)
    source = write("bench/overlap-kernel_cuda.cpp", "int a = 1;\n")
    sources = benchmarks.every(tmp_path)["overlap-kernel"].sources_hash(tmp_path)
    return source, CASES | {"sources": sources, "name": "overlap-kernel"}


def test_results_of_older_sources_are_marked(run, measured, tmp_path):
    source, document = measured
    summary, page = tmp_path / "docs/results.md", tmp_path / "docs/results/overlap-kernel.md"
    assert run({"overlap-kernel.json": document}).returncode == 0
    assert summary.read_text().count("older sources") == 1  # the legend
    assert "has changed since" not in page.read_text()
    source.write_text("int a = 2;\n")
    done = run({}, "--check")
    assert done.returncode == 1 and "docs/results/overlap-kernel.md is stale" in done.stdout
    assert run({}).returncode == 0
    assert "| abc, older sources |" in summary.read_text()
    assert "commit abc. The code that was measured has changed since. Measured ceilings" in page.read_text()


def test_results_of_a_dirty_tree_are_marked(run, tmp_path, write):
    page = write("README.md", "<!-- table expert_streaming -->\n<!-- end of table -->\n")
    assert run({"expert_streaming.json": CASES | {"commit": "abc-dirty"}}).returncode == 0
    assert "| abc-dirty |" in (tmp_path / "docs/results.md").read_text()
    assert "commit abc-dirty. The tree had changes that were not committed." in (
        tmp_path / "docs/results/expert_streaming.md").read_text()
    assert page.read_text().endswith("\n\nMeasured on 2026-01-31 at commit abc-dirty. The tree had changes that were "
                                     "not committed.\n<!-- end of table -->\n")


def test_a_table_of_several_benchmarks_names_those_of_older_sources():
    new, old = ({"date": "2026-01-31T12:00:00Z", "commit": commit} for commit in ("new", "old"))
    documents = {"copy": new, "gemm": old | {"stale": True}, "transform": old | {"stale": True},
                 "attention": new | {"stale": True}}
    assert results_tables.provenance(documents) == [
        "Measured on 2026-01-31 at commit old (gemm, transform), on 2026-01-31 at commit new (attention). The "
        "code that was measured has changed since."]
    assert results_tables.provenance({"copy": new}) == []
    assert results.benchmarks_of("gpu") == ("copy", "gemm", "attention", "transform")
    assert results.benchmarks_of("moe-calls") == ("moe",)


def test_few_times_are_named_in_the_summary(run, tmp_path):
    cases = [CASES["cases"][1] | {"case": name} for name in ("make demo", "make test")]
    assert run({"first_minutes.json": CASES | {"peers": {}, "cases": cases}}).returncode == 0
    assert "| make demo: 2 s; make test: 2 s |" in (tmp_path / "docs/results.md").read_text()


NUMBERS = CASES | {"cases": [
    {"case": "big, best", "ours": {"gpu_us": 100.0}, "peer": {"torch": {"gpu_us": 110.0}},
     "floor_us": 98.0, "metrics": {"share": 0.5}},
    {"case": "small", "ours": {"gpu_us": 10.0}, "peer": {"torch": {"gpu_us": 40.0}}, "metrics": {}}]}


@pytest.mark.parametrize("expression, shown", [
    ("value us of ours.gpu_us in small", "10 µs"),
    ("value ratio of torch/ours in big*", "1.100"),
    ("value ratio of over_floor in big, best", "1.020"),
    ("value percent of metrics.share in *", "50.0 %"),
    ("mean ratio2 of torch/ours in *", "2.10"),
    ("spread ratio2 of torch/ours in *", "1.10 to 4.00"),
    ("most more of torch/ours in big*", "10 %"),
    ("least whole of ours.gpu_us in *", "10"),
])
def test_a_figure_in_a_sentence(run, write, expression, shown):
    place = f"<!-- figure resample: {expression} -->"
    page = write("README.md", f"It is {place}old<!-- /figure --> here.\n")
    assert run({"resample.json": NUMBERS}).returncode == 0
    assert page.read_text() == f"It is {place}{shown}<!-- /figure --> here.\n"
    page.write_text(page.read_text().replace(shown, "7"))
    done = run({}, "--check")
    assert done.returncode == 1 and "README.md is stale" in done.stdout


def test_a_figure_of_a_dropped_case_says_so(run, write):
    place = "<!-- figure resample: value us of ours.gpu_us in gone -->"
    page = write("README.md", f"It takes {place}<!-- /figure -->.\n")
    dropped = [{"case": "gone", "reason": "faster than its floor"}]
    assert run({"resample.json": NUMBERS | {"dropped": dropped}}).returncode == 0
    assert page.read_text() == f"It takes {place}(dropped)<!-- /figure -->.\n"


def test_a_figure_of_a_ladder(run, write):
    place = "<!-- figure ladder: value multiply_adds of rate in facts -->"
    page = write("README.md", f"It is {place}<!-- /figure -->.\n")
    assert run({"ladder.json": RUNGS | {"facts": {"rate": 33e12}}}).returncode == 0
    assert page.read_text() == f"It is {place}66 TFLOP/s<!-- /figure -->.\n"


@pytest.mark.parametrize("expression, message", [
    ("value us of ours.gpu_us in none", "no case"), ("value us of ours.gpu_us in *", "one case"),
    ("value us of nothing in *", "no case"), ("guess us of ours.gpu_us in *", "expected value"),
    ("value us", "expected 'value|mean"), ("value miles of ours.gpu_us in small", "with a unit of us"),
])
def test_a_figure_that_is_not_there_is_an_error(run, write, expression, message):
    write("README.md", f"<!-- figure resample: {expression} --><!-- /figure -->\n")
    done = run({"resample.json": NUMBERS})
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("place, message", [
    ("<!-- results of none -->\n<!-- end of results -->\n", "none.json"),
    ("<!-- figure none: value us of a in b --><!-- /figure -->\n", "none.json"),
    ("<!-- table none -->\n<!-- end of table -->\n", "table none"),
    ("<!-- table gpu -->\n<!-- end of table -->\n", "table gpu: needs 'copy'"),
])
def test_a_page_cannot_ask_for_what_is_not_there(run, write, place, message):
    write("docs/a.md", place)
    done = run({"resample.json": CASES})
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr


def test_check_without_pages_is_stale(run):
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
    assert "Traceback" not in done.stderr and not (tmp_path / "docs").exists()


def test_the_pages_in_the_tree_are_what_the_files_say():
    done = subprocess.run([sys.executable, RESULTS, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_benchmark_has_a_sentence_in_the_summary():
    assert set(results.ABOUT) == set(benchmarks.every() | benchmarks.MEASURED_ELSEWHERE)


def one_sensor(name, **params):
    return {"case": name, "ours": {"gpu_us": 8.0, "host_us": 70.0}, "metrics": {"enqueue_us": 12.0},
            "peer": {"cudaMemcpy, whole pages": {"gpu_us": 6.0}, "triton": {"gpu_us": 9.0}},
            "params": {"episodes": 4, "samples": 500, "targets": 25, "columns": 7, "dtype": "f32",
                       "ragged": False, **params}}


def test_the_table_of_resample_shows_shapes_and_host_times():
    sensors = one_sensor("sensors")
    sensors["params"] = {"episodes": 2, "dtype": "f32", "hz": {"arm": 100, "camera": 30}}
    document = {"cases": [one_sensor("small"), one_sensor("ragged", ragged=True), sensors]}
    rows = results.TABLES["resample"]({"resample": (None, document)}).splitlines()[2:]
    times = "8 µs | 6 µs | – | – | 9 µs | 12 µs | 70 µs |"
    assert rows == [f"| small | (4, 500 → 25, 7) f32 | {times}",
                    f"| ragged | (4, 50–500 → 25, 7) f32 | {times}",
                    f"| sensors | 2 episodes, 2 sensors, f32 | {times}"]


def test_the_table_of_resample_on_the_cpu_has_one_row_per_shape():
    def case(name, us):
        return {"case": name, "floor_us": us / 2, "ours": {"call_us": us},
                "peer": {"memcpy": {"call_us": us + 1}}}

    document = {"cases": [case("(4, 9 to 5, 7) f32, all cores", 10),
                          case("(4, 9 to 5, 7) f32, one thread", 20), case("other, one thread", 30)]}
    rows = results.TABLES["resample-cpu"]({"resample_cpu": (None, document)}).splitlines()[2:]
    assert rows == ["| (4, 9 → 5, 7) f32 | 10 µs | 5 µs | 11 µs | 20 µs | 10 µs | 21 µs |",
                    "| other | – | – | – | 30 µs | 15 µs | 31 µs |"]


def timed(name, us, kernels=None, **peers):
    return {"case": name, "ours": {"gpu_us": us}, "metrics": {"kernels": {
        kernel: {"gpu_us": time} for kernel, time in (kernels or {}).items()}},
        "peer": {peer.replace("_", " "): {"gpu_us": time} for peer, time in peers.items()}}


def gpu_rows(**cases):
    documents = {name: (None, {"cases": given}) for name, given in cases.items()}
    return results.TABLES["gpu"](documents).splitlines()[2:]


def test_the_table_of_kernels_reads_the_operators_files():
    whole = {"cudaMemcpy, whole pages": 12.0}
    rows = gpu_rows(
        copy=[timed("device, 1 GiB", 10.0, {"transform": 8.0}, torch=10.0, CUB=16.0),
              timed("upload, 1 GiB", 99.0, torch=1.0)],
        gemm=[timed("8x8x8", 10.0, **{"cuBLASLt": 20.0, "cuBLASLt-best16": 5.0}),
              timed("4x4x4", 10.0, cuBLASLt=5.0), timed("odd, 3x3x3", 10.0, cuBLASLt=1.0)],
        transform=[timed("scale", 10.0, torch=20.0, CUB=11.0, **whole)])
    assert rows == ["| copy kernel, 1 and 4 GiB | cudaMemcpy | 1.250 (1.250) |",
                    "|  | CUB's DeviceTransform | 2.000 (2.000) |",
                    "| matrix products, bf16, 2 sizes | cuBLASLt, first algorithm | 1.000 (0.500 to 2.000) |",
                    "|  | cuBLASLt, best of 16 algorithms | 0.500 (0.500) |",
                    "| elementwise functions | torch | 2.000 (2.000) |",
                    "|  | CUB's DeviceTransform | 1.100 (1.100) |",
                    "|  | cudaMemcpy of the same size | 1.200 (1.200) |"]


def test_the_table_of_kernels_has_attention_once_it_was_measured():
    rows = gpu_rows(copy=[], gemm=[], transform=[], attention=[
        timed("d64, 512, full", 10.0, cuDNN=11.0, FlashAttention=20.0),
        timed("d64, 512, causal", 10.0, cuDNN=11.0), timed("packed", 10.0, FlashAttention=5.0)])
    assert rows == ["| attention, bf16, 2 shapes | cuDNN | 1.100 (1.100) |",
                    "|  | FlashAttention | 2.000 (2.000) |"]


def test_the_table_of_kernels_reads_older_files():
    rows = gpu_rows(copy=[timed("1 GiB, best", 10.0, cudaMemcpy=11.0), timed("1 GiB, slow", 99.0)],
                    gemm=[], transform=[timed("scale", 10.0, cudaMemcpy=9.0), timed("cpu cast", 5.0)])
    assert rows == ["| copy kernel, 1 and 4 GiB | cudaMemcpy | 1.100 (1.100) |",
                    "| elementwise functions | cudaMemcpy of the same size | 0.900 (0.900) |"]


def test_peers_of_older_files_have_their_names_of_today(run, write):
    case = {"case": "a", "ours": {"gpu_us": 2.0}, "peer": {"cublasLt": {"gpu_us": 3.0}}, "metrics": {}}
    page = write("docs/a.md", "It is <!-- figure gemm: value ratio of cuBLASLt/ours in a --><!-- /figure -->\n")
    done = run({"gemm.json": CASES | {"peers": {"cublasLt": "13"}, "cases": [case]}})
    assert done.returncode == 0 and "-->1.500<!--" in page.read_text(), done.stderr


def test_a_page_may_ask_for_a_benchmark_that_was_not_measured_yet(run, write):
    text = "<!-- results of transform_host -->\n<!-- end of results -->\n"
    page = write("docs/a.md", text)
    assert run({"resample.json": CASES}).returncode == 0
    assert page.read_text() == text


def test_no_page_has_an_empty_table():
    """A table without results is in a section that is hidden with it."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert not re.search(r"^<!-- (?:results|table|plot) .*-->\n<!-- end", page.read_text(), re.MULTILINE), page
