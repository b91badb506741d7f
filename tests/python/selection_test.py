"""Which tests a GPU machine runs (scripts/gpu_test.sh), and that it does not skip them in silence."""

import subprocess
import sys
from pathlib import Path

import pytest

import penstock

HERE = Path(__file__).parent


def run_pytest(*options):
    return subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
                          cwd=HERE, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(not penstock.Device.why_no_gpu(), reason="there is a GPU")
def test_a_missing_gpu_fails_where_one_is_required():
    done = run_pytest("--require-gpu", "array_test.py")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--require-gpu: expected a GPU: " in done.stderr


def test_tests_with_torch_are_selected_by_their_fixture():
    done = run_pytest("-m", "gpu or torch", "--collect-only", "transform_test.py", "docs_test.py")
    names = [line for line in done.stdout.splitlines() if "::" in line]
    assert names and all("torch" in name for name in names)
    assert any(name.startswith("transform_test.py::test_tensors_of_torch") for name in names)
    assert any(name.startswith("docs_test.py::test_page[torch") for name in names)
