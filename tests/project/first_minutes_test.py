import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import benchmarks
import first_minutes
import pytest
import results_tables

TOOL = Path(first_minutes.__file__)


LOG = """\
== setup
== setup: 3 s
== project checks, in the background
== build cpu: 537 s
102 passed in 40.60s
== project checks, in the background: 63 s
"""
PHASES = {"setup": 3_000_000, "build cpu": 537_000_000,
          "project checks, in the background": 63_000_000}


def run(path, *arguments):
    return subprocess.run([sys.executable, TOOL, "write", path, *arguments], capture_output=True, text=True)


@pytest.fixture
def log(write):
    return write("log", LOG)


@pytest.fixture
def both(tmp_path, log, write):
    """A file with both targets, and what was printed."""
    path = tmp_path / "first_minutes.json"
    done = run(path, "0.1", "demo", "12.34", "101.5", "0.01", write("empty", ""), "test", "60",
               "1400.04", "0.02", log)
    assert done.returncode == 0, done.stderr
    return path, done.stdout


def test_writes_and_prints_both_times(both):
    path, printed = both
    result = json.loads(path.read_text())
    assert [case["case"] for case in result["cases"]] == ["make demo", "make test"]
    assert [case["ours"]["call_us"] for case in result["cases"]] == [101_500_000, 1_400_040_000]
    assert [case["metrics"] for case in result["cases"]] == [
        {"install_us": 12_340_000, "others_cores": 0.01, "phases_us": {}},
        {"install_us": 60_000_000, "others_cores": 0.02, "phases_us": PHASES}]
    assert result["idle"]
    assert "make demo: 102 s from an empty clone" in printed
    assert "busy" not in printed


def test_pages_can_name_the_times(both):
    path, _ = both
    result = results_tables.read(path)
    lines = results_tables.body(path, result).splitlines()
    assert "To measure again: `scripts/first_minutes.sh`." in lines
    assert "| make test | 1400 s | 60 s |" in lines
    assert "| build cpu | 537 s |" in lines
    assert results_tables.figure(result, "value seconds of ours.call_us in make demo") == "102 s"
    assert results_tables.figure(result, "value minutes of ours.call_us in make test") == "24 minutes"


def test_a_target_that_was_not_measured_keeps_its_time_date_and_commit(both, log):
    path, _ = both
    before = json.loads(path.read_text()) | {"date": "2026-01-31T12:00:00Z", "commit": "abc"}
    for case in before["cases"]:
        del case["metrics"]["phases_us"]  # as files had it before phases were recorded
    path.write_text(json.dumps(before))
    for time in ("1500", "1600"):  # the second run finds what the first one kept
        done = run(path, "0.1", "test", "60", time, "0", log)
        assert done.returncode == 0, done.stderr
        assert "make demo" not in done.stdout
    result = results_tables.read(path)
    demo, test = result["cases"]
    assert (demo["case"], demo["date"], demo["commit"]) == ("make demo", "2026-01-31T12:00:00Z", "abc")
    assert demo["ours"] == before["cases"][0]["ours"] and "machine" not in demo
    assert test["ours"]["call_us"] == 1_600_000_000 and "date" not in test
    assert results_tables.figure(result, "value seconds of ours.call_us in make demo") == "102 s"
    page = results_tables.body(path, result)
    assert "| make demo | 101.5 s | 12.34 s | 2026-01-31T12:00:00Z, abc |" in page
    assert f"| make test | 1600 s | 60 s | {result['date']}, {result['commit']} |" in page


@pytest.mark.parametrize("load, others, reason", [
    ("3.0", "0", "load 3.0 before the start"),
    ("0.1", "0.4", "other programs used 0.40 of 2 cores during make demo"),
])
def test_times_of_a_busy_machine_are_not_recorded(both, log, load, others, reason):
    path, _ = both
    before = path.read_text()
    done = run(path, load, "demo", "0", "400", others, log)
    assert done.returncode == 1 and path.read_text() == before
    assert "make demo: 400 s" in done.stderr and f"({reason}). They are not recorded." in done.stderr


@pytest.fixture
def tree(write, tmp_path):
    """A tree with a script, a build and code; its results are current."""
    write("scripts/test.sh", "# Tests.\nmake all\n")
    write("CMakeLists.txt", "project(a)\n")
    write("src/a.cpp", "int a;\n" * 100)
    builds = first_minutes.BUILDS
    write("results/first_minutes.json", json.dumps({
        "sources": builds.sources_hash(tmp_path), "code_bytes": builds.code_bytes(tmp_path),
        "cases": [{"case": "make demo"}, {"case": "make test"}]}))
    return tmp_path


def state(tree):
    benchmarks.c_files.cache_clear()
    return benchmarks.state(first_minutes.BUILDS, tree / "results", tree)


def test_times_are_current_while_scripts_build_and_amount_of_code_stay(tree, write):
    assert state(tree) == "current"
    write("scripts/test.sh", "# Runs the tests.\n\nmake all\n")
    write("scripts/other.sh", "what neither target runs\n")
    write("src/a.cpp", "int b;\n" * 105)
    assert state(tree) == "current"


@pytest.mark.parametrize("name, text", [("scripts/test.sh", "make all more\n"), ("CMakeLists.txt", "project(b)\n"),
                                        ("src/a.cpp", "int a;\n" * 120), ("cmake/a.cmake", "set(a 1)\n")])
def test_times_are_stale_after_a_change_of_what_they_measure(tree, write, name, text):
    write(name, text)
    assert state(tree) == "stale"


def test_a_case_of_other_sources_makes_the_times_stale(tree):
    path = tree / "results/first_minutes.json"
    document = json.loads(path.read_text())
    document["cases"][0]["sources"] = "other"
    path.write_text(json.dumps(document))
    assert state(tree) == "stale"
    del document["sources"]  # as files had it before
    path.write_text(json.dumps(document))
    assert state(tree) == "stale"


def test_an_incomplete_row_is_refused(tmp_path):
    assert run(tmp_path / "a.json", "0.1", "demo", "1", "2", "0").returncode != 0
    assert not (tmp_path / "a.json").exists()


def timed(tmp_path, *command):
    return subprocess.run([sys.executable, TOOL, "run", tmp_path / "log", *command], capture_output=True,
                          text=True)


def busy(cpu_seconds):
    return [sys.executable, "-c", f"import time\nwhile time.process_time() < {cpu_seconds}: pass"]


def test_a_run_is_timed_and_copied_to_its_log(tmp_path):
    done = timed(tmp_path, "sh", "-c", "echo shown; sleep 0.5")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log").read_text() == "shown\n" == done.stderr
    assert float(done.stdout.split()[0]) >= 0.5


def test_its_own_work_does_not_count_as_that_of_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(first_minutes.os, "sched_setaffinity", lambda process, cores: None)
    monkeypatch.setattr(first_minutes, "busy_seconds", lambda cores, times=iter([10.0, 16.0]): next(times))
    monkeypatch.setattr(first_minutes, "own_seconds", lambda times=iter([1.0, 6.0]): next(times))
    first_minutes.run(tmp_path / "log", "sleep", "0.5")
    seconds, others = map(float, capsys.readouterr().out.split())
    assert others == pytest.approx(1.0 / seconds, rel=0.01)


def test_work_of_descendants_is_its_own():
    before = first_minutes.own_seconds()
    subprocess.run(["sh", "-c", shlex.join(busy(0.5)) + "; true"], check=True)
    assert first_minutes.own_seconds() - before > 0.4


def test_other_programs_are_noticed(tmp_path):
    cores = sorted(os.sched_getaffinity(0))[:first_minutes.CORES]
    other = subprocess.Popen(["taskset", "-c", ",".join(map(str, cores)), *busy(30)])
    try:
        done = timed(tmp_path, "sleep", "2")
    finally:
        other.kill()
        other.wait()
    assert float(done.stdout.split()[1]) > 0.5


def test_time_is_read_from_the_cores_that_are_used(write):
    stat = write("stat", "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 10 20 900 50 1 2 4 100 10\n"
                         "cpu1 200 0 0 0 0 0 0 0 0 0\nintr 5\n")
    tick = os.sysconf("SC_CLK_TCK")
    assert first_minutes.busy_seconds([0], stat) == 137 / tick
    assert first_minutes.busy_seconds([0, 1], stat) == 337 / tick


def test_the_log_has_the_phases_that_make_test_prints(tmp_path):
    """The functions of scripts/test.sh, with short commands instead of its phases."""
    functions, _, _ = (TOOL.parent.parent / "scripts/test.sh").read_text().partition("package() {")
    script = functions.replace('cd "$(dirname "$0")/.."', "") + """
beside "project checks" true
phase "build cpu" true
join
"""
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (tmp_path / "log").write_text(done.stdout)
    assert list(first_minutes.phases(tmp_path / "log")) == ["build cpu", "project checks, in the background"]


def test_a_target_that_fails_is_not_recorded(tmp_path):
    done = timed(tmp_path, "sh", "-c", "echo shown; exit 3")
    assert done.returncode == 3 and "shown" in done.stderr and done.stdout == ""


def test_reads_fields(write):
    assert first_minutes.field(write("a", 'A=1\nNAME="Debian 12"\n'), "NAME") == "Debian 12"
    assert first_minutes.field(write("b", "model name\t: Fast: 3 GHz\n"), "model name") == "Fast: 3 GHz"
    assert first_minutes.field(write("c", ""), "model name") == "unknown"
