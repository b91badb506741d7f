import json
import subprocess
import sys
from pathlib import Path

import first_minutes

TOOL = Path(first_minutes.__file__)


def run(path, *arguments):
    return subprocess.run([sys.executable, TOOL, path, *arguments], capture_output=True, text=True)


def test_writes_and_prints_both_times(tmp_path):
    path = tmp_path / "first_minutes.json"
    done = run(path, "0.1", "demo", "12.34", "101.5", "test", "60", "1400.04")
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    assert result["rows"] == [
        {"command": "make demo", "install_seconds": 12.3, "seconds": 101.5},
        {"command": "make test", "install_seconds": 60.0, "seconds": 1400.0}]
    assert result["idle"]
    assert "make demo: 102 s from an empty clone" in done.stdout
    assert "busy" not in done.stdout


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
