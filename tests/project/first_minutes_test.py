import json
import subprocess
import sys
from pathlib import Path

import first_minutes
import results_tables

TOOL = Path(first_minutes.__file__)


def run(path, *arguments):
    return subprocess.run([sys.executable, TOOL, path, *arguments], capture_output=True, text=True)


def test_writes_and_prints_both_times(tmp_path):
    path = tmp_path / "first_minutes.json"
    done = run(path, "0.1", "demo", "12.34", "101.5", "test", "60", "1400.04")
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    assert [case["case"] for case in result["cases"]] == ["make demo", "make test"]
    assert [case["ours"]["call_us"] for case in result["cases"]] == [101_500_000, 1_400_040_000]
    assert [case["metrics"]["install_us"] for case in result["cases"]] == [12_340_000, 60_000_000]
    assert result["idle"]
    assert "make demo: 102 s from an empty clone" in done.stdout
    assert "busy" not in done.stdout


def test_pages_can_name_the_times(tmp_path):
    path = tmp_path / "first_minutes.json"
    run(path, "0.1", "demo", "12.34", "101.5", "test", "60", "1400.04")
    result = results_tables.read(path)
    assert "To measure again: `scripts/first_minutes.sh`." in results_tables.body(path, result)
    assert results_tables.figure(result, "value seconds of ours.call_us in make demo") == "102 s"
    assert results_tables.figure(result, "value minutes of ours.call_us in make test") == "24 minutes"


def test_says_when_the_machine_was_busy(tmp_path):
    done = run(tmp_path / "a.json", "3.0", "demo", "0", "400")
    assert "The machine was busy (load 3.0" in done.stdout
    assert not json.loads((tmp_path / "a.json").read_text())["idle"]


def test_an_incomplete_row_is_refused(tmp_path):
    assert run(tmp_path / "a.json", "0.1", "demo", "1").returncode != 0
    assert not (tmp_path / "a.json").exists()


def test_reads_fields(write):
    assert first_minutes.field(write("a", 'A=1\nNAME="Debian 12"\n'), "NAME") == "Debian 12"
    assert first_minutes.field(write("b", "model name\t: Fast: 3 GHz\n"), "model name") == "Fast: 3 GHz"
    assert first_minutes.field(write("c", ""), "model name") == "unknown"
