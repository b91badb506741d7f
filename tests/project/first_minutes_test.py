import json
import subprocess
import sys
from pathlib import Path

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
    return subprocess.run([sys.executable, TOOL, path, *arguments], capture_output=True, text=True)


@pytest.fixture
def log(write):
    return write("log", LOG)


@pytest.fixture
def both(tmp_path, log, write):
    """A file with both targets, and what was printed."""
    path = tmp_path / "first_minutes.json"
    done = run(path, "0.1", "demo", "12.34", "101.5", write("empty", ""), "test", "60", "1400.04", log)
    assert done.returncode == 0, done.stderr
    return path, done.stdout


def test_writes_and_prints_both_times(both):
    path, printed = both
    result = json.loads(path.read_text())
    assert [case["case"] for case in result["cases"]] == ["make demo", "make test"]
    assert [case["ours"]["call_us"] for case in result["cases"]] == [101_500_000, 1_400_040_000]
    assert [case["metrics"] for case in result["cases"]] == [
        {"install_us": 12_340_000, "phases_us": {}}, {"install_us": 60_000_000, "phases_us": PHASES}]
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
        done = run(path, "0.1", "test", "60", time, log)
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


def test_says_when_the_machine_was_busy(tmp_path, log):
    done = run(tmp_path / "a.json", "3.0", "demo", "0", "400", log)
    assert "The machine was busy (load 3.0" in done.stdout
    assert not json.loads((tmp_path / "a.json").read_text())["idle"]


def test_an_incomplete_row_is_refused(tmp_path):
    assert run(tmp_path / "a.json", "0.1", "demo", "1", "2").returncode != 0
    assert not (tmp_path / "a.json").exists()


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


@pytest.mark.parametrize("command, ends", [("echo shown", 0), ("logged log sh -c 'echo shown; exit 3'", 3)])
def test_a_target_that_fails_is_not_recorded(tmp_path, command, ends):
    script = (TOOL.parent.parent / "scripts/first_minutes.sh").read_text()
    functions = script[script.index("seconds() {"):script.index("two_cores() {")]
    functions += script[script.index("logged() {"):script.index("load=$(")]
    done = subprocess.run(["bash", "-c", f"set -euo pipefail\n{functions}\ntook=$(seconds {command})\n"
                           "echo recorded $took"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == ends and "shown" in done.stderr
    assert done.stdout.startswith("recorded 0") == (ends == 0)


def test_reads_fields(write):
    assert first_minutes.field(write("a", 'A=1\nNAME="Debian 12"\n'), "NAME") == "Debian 12"
    assert first_minutes.field(write("b", "model name\t: Fast: 3 GHz\n"), "model name") == "Fast: 3 GHz"
    assert first_minutes.field(write("c", ""), "model name") == "unknown"
