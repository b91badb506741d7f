import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HEADERS = Path(__file__).resolve().parents[2] / "tools" / "headers.py"


def run(root, *arguments):
    return subprocess.run([sys.executable, HEADERS, "--include", root, *arguments],
                          capture_output=True, text=True)


def test_a_header_that_stands_alone_passes(write, tmp_path):
    write("penstock/base/a.h", "#pragma once\n#include <vector>\nstruct A { std::vector<int> a; };\n")
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 of 1" in done.stdout


@pytest.mark.parametrize("text", [
    "#pragma once\nstruct A { std::vector<int> a; };\n",  # needs an include
    "struct A {};\n",  # cannot be included twice
    "#pragma once\n#include <cuda_runtime_api.h>\n",  # needs CUDA
    "#pragma once\ninline int f(int unused) { return 0; }\n",  # warns
])
def test_a_header_that_does_not_fails(write, tmp_path, text):
    write("penstock/base/good.h", "#pragma once\n")
    write("penstock/base/a.h", text)
    done = run(tmp_path)
    assert done.returncode == 1
    assert "penstock/base/a.h does not compile alone" in done.stdout
    assert "1 of 2" in done.stdout


def test_libcxx_finds_an_include_that_another_header_brought(write, tmp_path):
    clang = shutil.which("clang++-19")
    if not clang:
        pytest.skip("no clang++-19")
    # libstdc++'s <string> brings <cstdlib>.
    write("penstock/base/a.h", "#pragma once\n#include <string>\ninline void f() { std::abort(); }\n")
    assert run(tmp_path, "--cxx", clang).returncode == 0
    done = run(tmp_path, "--cxx", clang, "--libcxx")
    assert done.returncode == 1
    assert "no member named 'abort'" in done.stdout


def test_cuda_is_out_of_reach_even_where_the_compiler_finds_it(write, tmp_path, monkeypatch):
    write("toolkit/cuda_runtime_api.h")
    write("penstock/base/a.h", "#pragma once\n#include <cuda_runtime_api.h>\n")
    monkeypatch.setenv("CPATH", str(tmp_path / "toolkit"))
    done = run(tmp_path)
    assert done.returncode == 1
    assert "may not need CUDA" in done.stdout


def test_the_one_header_for_cuda_waits_for_cuda(write, tmp_path):
    write("toolkit/cuda_runtime_api.h")
    write("penstock/host/cuda.h", "#pragma once\n#include <cuda_runtime_api.h>\n")
    write("penstock/kit/ring.cuh", "#pragma once\n")
    assert "0 of 0" in run(tmp_path).stdout
    done = run(tmp_path, "--nvcc", "false", "--cuda-include", tmp_path / "toolkit")
    assert done.returncode == 1
    assert "1 of 2" in done.stdout
