"""The device-code guard, run as the build runs it, over a compiler that prints what it is given."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"

CLEAN = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN2ps4copyIfEEvPT_' for 'sm_90a'
ptxas info    : Function properties for _ZN2ps4copyIfEEvPT_
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 2 barriers, 512 bytes smem, 372 bytes cmem[0]
ptxas info    : Compile time = 9.661 ms
ptxas info    : Compiling entry function '_ZN2ps4copyIfEEvPT_' for 'sm_80'
ptxas info    : Function properties for _ZN2ps4copyIfEEvPT_
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 372 bytes cmem[0]
"""
FAKE_NVCC = """\
import os, sys
open(sys.argv[sys.argv.index("-o") + 1], "w").write("object")
sys.stderr.write(os.environ["FAKE_STDERR"])
sys.stdout.write(os.environ["FAKE_STDOUT"])
sys.exit(int(os.environ["FAKE_STATUS"]))
"""


REFUSED = ["C7507", "C7508", "C7509", "C7510", "C7511", "C7512", "C7514", "C7515", "C7518"]
SERIALISED = "wgmma.mma_async instructions are serialized due to ill formed pipeline stage"


def code_line(code, loss="something is lost"):
    return f"ptxas info    : ({code}) Potential Performance Loss: {loss} in the function 'kernel'\n"


class Guard:
    """A copy of the guard in a tree of its own, so that a test may write its list of reasons."""

    def __init__(self, folder):
        self.tools = folder / "tools"
        self.tools.mkdir()
        for name in ("ptxas_guard", "ptxas_allowed.txt"):
            shutil.copy(TOOLS / name, self.tools)
        self.source = folder / "src" / "copy.cu"
        self.object = folder / "copy.o"
        self.record = folder / "copy.o.ptxas.json"
        self.compiler = folder / "nvcc.py"
        self.compiler.write_text(FAKE_NVCC)

    def allow(self, line):
        with open(self.tools / "ptxas_allowed.txt", "a") as file:
            file.write(line + "\n")

    def run(self, *options, stderr=CLEAN, stdout="", status=0):
        environment = dict(os.environ, FAKE_STDERR=stderr, FAKE_STDOUT=stdout,
                           FAKE_STATUS=str(status))
        return subprocess.run(
            [self.tools / "ptxas_guard", *options, sys.executable, self.compiler, "-c", self.source, "-o",
             self.object], env=environment, capture_output=True, text=True)


@pytest.fixture
def guard(tmp_path):
    return Guard(tmp_path)


def test_clean_compile_passes_and_is_recorded(guard):
    done = guard.run()
    assert done.returncode == 0, done.stderr
    assert guard.object.exists()
    record = json.loads(guard.record.read_text())
    assert record["source"] == "src/copy.cu"
    first, second = record["kernels"]
    assert first["kernel"] == second["kernel"] == "ps::copy<float>"
    assert (first["arch"], first["registers"], first["smem"], first["stack"]) == (
        "sm_90a", 40, 512, 16)
    assert (second["arch"], second["registers"], second["smem"]) == ("sm_80", 32, 0)


def test_passes_on_what_it_does_not_record(guard):
    done = guard.run(stderr=CLEAN + "a.cu(3): warning: odd\n", stdout="copy.cu\n")
    assert done.stderr == "a.cu(3): warning: odd\n"
    assert done.stdout == "copy.cu\n"


@pytest.mark.parametrize("stream", ["stderr", "stdout"])
@pytest.mark.parametrize("code", REFUSED)
def test_lost_performance_fails(guard, code, stream):
    done = guard.run(**{stream: CLEAN + code_line(code)})
    assert done.returncode != 0
    assert code in done.stderr
    assert not guard.object.exists()
    assert not guard.record.exists()


@pytest.mark.parametrize("code", REFUSED)
def test_lost_performance_cannot_be_allowed(guard, code):
    guard.allow(f"{code} src/copy.cu because")
    done = guard.run()
    assert done.returncode != 0
    assert f"ptxas_allowed.txt:2: {code}" in done.stderr


@pytest.mark.parametrize("loss", [SERIALISED, "'setmaxnreg' ignored to allow debugging."])
def test_lost_performance_cannot_be_allowed_under_another_code(guard, loss):
    guard.allow("C7599 src/copy.cu because")
    assert guard.run(stderr=CLEAN + code_line("C7599")).returncode == 0
    assert guard.run(stderr=CLEAN + code_line("C7599", loss)).returncode != 0


@pytest.mark.parametrize("code", ["C7517", "C7519", "C7500", "C7599"])
def test_every_other_code_needs_a_reason(guard, code):
    done = guard.run(stderr=CLEAN + code_line(code))
    assert done.returncode != 0
    assert f"{code}, " in done.stderr and "gives no reason for src/copy.cu" in done.stderr
    guard.allow(f"{code} src/other.cu the wait is outside the loop")
    assert guard.run(stderr=CLEAN + code_line(code)).returncode != 0
    guard.allow(f"{code} src/copy.cu the wait is outside the loop")
    assert guard.run(stderr=CLEAN + code_line(code)).returncode == 0


@pytest.mark.parametrize("line", ["C7519 src/copy.cu", "C7519", "C751 src/copy.cu because",
                                  "src/copy.cu C7519 because"])
def test_a_line_that_is_not_code_path_and_reason_is_an_error(guard, line):
    guard.allow(line)
    done = guard.run()
    assert done.returncode != 0
    assert "ptxas_allowed.txt:2" in done.stderr


@pytest.mark.parametrize("stores,loads", [(4, 0), (0, 8)])
def test_spills_fail(guard, stores, loads):
    spilling = CLEAN.replace("0 bytes spill stores, 0 bytes spill loads",
                             f"{stores} bytes spill stores, {loads} bytes spill loads", 1)
    done = guard.run(stderr=spilling)
    assert done.returncode != 0
    assert "ps::copy<float> spills on sm_90a" in done.stderr
    assert not guard.object.exists()


def test_spills_of_a_called_function_fail(guard):
    done = guard.run(stderr=CLEAN + """\
ptxas info    : Function properties for _Z6helperfi
    0 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads
""")
    assert done.returncode != 0
    assert "helper spills on sm_80" in done.stderr


@pytest.mark.parametrize("status", [1, 2, 255])
def test_the_compilers_exit_status_comes_through(guard, status):
    done = guard.run(stderr="copy.cu(1): error: no\n", status=status)
    assert done.returncode == status
    assert done.stderr == "copy.cu(1): error: no\n"
    assert not guard.record.exists()


def test_with_warn_the_object_stays(guard):
    done = guard.run("--warn", stderr=CLEAN + code_line("C7510"))
    assert done.returncode == 0
    assert "ptxas_guard: warning: src/copy.cu: C7510" in done.stderr
    assert guard.object.exists()
    assert guard.record.exists()
