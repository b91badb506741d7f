"""A plain CUDA build on a machine without ccache: a file compiles, and warnings are no errors."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
TARGET = "src/CMakeFiles/penstock_device_portable.dir/ops/iterate/portable.cu.o"
SYSTEM = ["/bin", "/usr/bin", "/usr/local/bin"]

pytestmark = pytest.mark.skipif(not NVCC, reason="no nvcc")


def folders_with(program):
    folders = dict.fromkeys(os.environ["PATH"].split(os.pathsep) + SYSTEM)
    return [folder for folder in folders if (Path(folder) / program).exists()]


def configure(folder, *options):
    subprocess.run(
        ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DPENSTOCK_CUDA=ON",
         # Programs in the ignored folders are named instead of searched for.
         f"-DCMAKE_IGNORE_PATH={';'.join(folders_with('ccache'))}",
         f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}", f"-DCMAKE_CUDA_COMPILER={NVCC}",
         f"-DCMAKE_CXX_COMPILER={shutil.which(os.environ.get('CXX', 'c++'))}", *options], check=True)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """A configured build in which no ccache can be found."""
    folder = tmp_path_factory.mktemp("cuda")
    configure(folder, f"-DPython3_EXECUTABLE={sys.executable}")
    return folder


def test_a_file_compiles_without_ccache(build):
    assert "PENSTOCK_CCACHE-NOTFOUND" in (build / "CMakeCache.txt").read_text()
    subprocess.run(["ninja", "-C", build, TARGET], check=True)
    assert (build / TARGET).exists()


def test_the_library_needs_no_python(tmp_path):
    configure(tmp_path, "-DCMAKE_DISABLE_FIND_PACKAGE_Python3=ON", "-DPENSTOCK_TESTS=OFF")
    said = subprocess.run(["ninja", "-C", tmp_path, "-t", "commands", TARGET], capture_output=True,
                          text=True, check=True).stdout
    assert NVCC in said and "ptxas_guard" not in said


def test_warnings_are_no_errors(build):
    commands = json.loads((build / "compile_commands.json").read_text())
    assert any(entry["file"].endswith(".cu") for entry in commands)
    assert [entry["file"] for entry in commands if "-Werror" in entry["command"]] == []


def test_what_ptxas_reports_is_no_error(build):
    said = subprocess.run(["ninja", "-C", build, "-t", "commands", TARGET], capture_output=True,
                          text=True, check=True).stdout
    assert "ptxas_guard --warn " in said
