"""scripts/gpu_test.sh with stand-ins for the test programs and for pytest: after a failure the other tests
still run, all logs are printed, and nothing goes on running in the background."""

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Prints what it was asked to run, and fails if its name and filter are those in the file `fails`, or skips
# a test if there is a file `skips`.
PROGRAM = """#!/bin/bash
me="$(basename "$0") $1"
echo "[ RUN      ] $me, part $GTEST_SHARD_INDEX"
if grep -qxF -- "$me" fails 2>/dev/null; then
  echo "[  FAILED  ] Suite.Test, where GetParam() = 1 (3 ms)"
  exit 3
fi
if [[ -e skips ]]; then echo "[  SKIPPED ] Suite.Other (0 ms)"; fi
"""
PYTHON = """#!/bin/bash
if [[ $1 == tools/* ]]; then echo "evidence $2"; exit; fi
echo $$ >>started
exec {nothing}<> <(:)
read -t "$(cat seconds 2>/dev/null || echo 0.5)" -u $nothing  # a sleep without a process
echo "python tests ${*: -2}"
if [[ -e python_fails && ${*: -2} == "$(cat python_fails)" ]]; then echo "FAILED a_test.py::test_b - no"; exit 1; fi
"""


@pytest.fixture
def tree(write, tmp_path):
    """A tree whose binaries were built elsewhere."""
    write("scripts/gpu_test.sh")
    shutil.copy(ROOT / "scripts/gpu_test.sh", tmp_path / "scripts/gpu_test.sh")
    for name in ("test_ops", "test_gpu", "test_gpu_ptds"):
        write(f"build/gpu/bin/{name}", PROGRAM).chmod(0o755)
    write("python", PYTHON).chmod(0o755)
    return tmp_path


def start(tree, *arguments, **environment):
    return subprocess.Popen(["bash", "scripts/gpu_test.sh", *arguments], cwd=tree, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env={"PATH": "/usr/bin:/bin", "PENSTOCK_PYTHON": str(tree / "python"), **environment})


def run(tree, *arguments, **environment):
    process = start(tree, *arguments, **environment)
    printed, _ = process.communicate(timeout=60)
    return process.returncode, printed


EVERYTHING = ["test_ops --gtest_filter=*/CpuProduct.*, part 0",
              *(f"{program} --gtest_filter=-DeviceTraceGpu.*, part {part}"
                for program in ("test_gpu", "test_gpu_ptds") for part in range(5)),
              *(f"{program} --gtest_filter=DeviceTraceGpu.*, part 0"
                for program in ("test_gpu", "test_gpu_ptds")),
              *(f"python tests {part}/4 tests/python" for part in range(4)),
              "python tests 0/1 tests/bench"]


def test_runs_everything_and_records_it(tree):
    code, printed = run(tree)
    assert code == 0, printed
    assert [each for each in EVERYTHING if printed.count(each) != 1] == []
    assert "evidence keep" in printed


@pytest.mark.parametrize("fails", ["test_ops --gtest_filter=*/CpuProduct.*",
                                   "test_gpu --gtest_filter=-DeviceTraceGpu.*",
                                   "test_gpu --gtest_filter=DeviceTraceGpu.*"])
def test_after_a_failure_all_other_tests_run_and_are_shown(tree, write, fails):
    write("fails", fails + "\n")
    code, printed = run(tree)
    assert code == 3
    assert [each for each in EVERYTHING if printed.count(each) != 1] == []
    assert "evidence" not in printed
    _, summary = printed.split("gpu_test: failed:\n")
    assert "[  FAILED  ] Suite.Test\n" in summary
    assert f"FAILED {fails.split()[0]}" in summary


@pytest.mark.parametrize("fails, says", [("2/4 tests/python", "python, shard 2"),
                                         ("0/1 tests/bench", "bench, shard 0")])
def test_a_failure_in_python_is_shown(tree, write, fails, says):
    write("python_fails", fails)
    code, printed = run(tree)
    assert code == 1
    assert [each for each in EVERYTHING if printed.count(each) != 1] == []
    _, summary = printed.split("gpu_test: failed:\n")
    assert summary.splitlines() == ["FAILED a_test.py::test_b - no", f"FAILED {says}, with exit code 1"]


def test_a_skipped_product_of_the_cpu_fails(tree, write):
    write("skips")
    code, printed = run(tree)
    assert code == 1
    assert [each for each in EVERYTHING if printed.count(each) != 1] == []
    _, summary = printed.split("gpu_test: failed:\n")
    assert summary.splitlines() == [
        "FAILED test_ops: skipped tests; PENSTOCK_SKIPPED_PRODUCTS=1 accepts them"]
    code, printed = run(tree, PENSTOCK_SKIPPED_PRODUCTS="1")
    assert code == 0 and "evidence keep" in printed


def test_one_part_fails_with_its_code(tree, write):
    write("fails", "test_gpu --gtest_filter=A.*\n")
    code, printed = run(tree, "cpp", "--gtest_filter=A.*")
    assert code == 3
    assert "test_gpu_ptds --gtest_filter=A.*" in printed


def test_a_run_that_is_stopped_leaves_nothing_behind(tree, write):
    write("seconds", "60")
    process = start(tree)
    started = tree / "started"
    until = time.monotonic() + 20
    while not (started.exists() and len(started.read_text().split()) == 4):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=20)
    assert process.returncode != 0 and "gpu_test: stopped." in printed
    until = time.monotonic() + 20
    while programs(tree):
        assert time.monotonic() < until, programs(tree)
        time.sleep(0.05)


def programs(tree):
    """The command lines of the stand-ins that are running."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text().replace("\0", " ")
        except OSError:
            continue
        if str(tree) in line:
            found.append(line)
    return found
