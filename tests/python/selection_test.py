"""Which tests a GPU machine runs (scripts/gpu_test.sh), and that it does not skip them in silence."""

import subprocess
import sys
from pathlib import Path

import pytest

import penstock

HERE = Path(__file__).parent
SUPPORT = HERE.parent / "support"
ON_A_GPU = """
import sys, types
import gpu_run
gpu_run.penstock = types.SimpleNamespace(Device=types.SimpleNamespace(why_no_gpu=lambda: ""))
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: True))
pytest_plugins = ["gpu_run"]
"""
OUTCOMES = """
import gpu_run, pytest

def test_passes(): pass
def test_is_skipped(): pytest.skip("no reason that counts")
def test_needs_a_package(): pytest.importorskip("a_package_that_is_missing")
@pytest.mark.skipif(True, reason="no reason that counts")
def test_is_marked(): pass
@pytest.mark.parametrize("reason", gpu_run.ACCEPTED)
def test_is_accepted(reason): pytest.skip(reason)
@pytest.mark.xfail
def test_is_expected_to_fail(): assert False
"""
SKIPPED_WHOLE = "import pytest\npytest.importorskip('a_package_that_is_missing')\n"


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


@pytest.fixture
def run_required(tmp_path):
    """Runs files with --require-gpu, as if there were a GPU."""
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npython_files = *_test.py\npythonpath = {SUPPORT}\n")
    (tmp_path / "conftest.py").write_text(ON_A_GPU)

    def run(**files):
        for name, text in files.items():
            (tmp_path / f"{name}_test.py").write_text(text)
        return run_pytest("--require-gpu", "-rA", str(tmp_path))

    return run


def test_skips_fail_where_a_gpu_is_required(run_required):
    said = run_required(outcomes=OUTCOMES).stdout
    assert "2 failed, 1 passed, 2 skipped, 1 xfailed" in said and "1 error in" in said
    assert "--require-gpu: skipped: no reason that counts" in said
    assert "--require-gpu: skipped: could not import 'a_package_that_is_missing'" in said


def test_files_that_are_skipped_fail_where_a_gpu_is_required(run_required):
    done = run_required(outcomes=OUTCOMES, whole=SKIPPED_WHOLE)
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "ERROR" in done.stdout and "could not import 'a_package_that_is_missing'" in done.stdout


def test_a_run_without_a_test_that_passed_fails(run_required):
    done = run_required(outcomes="import gpu_run, pytest\n\n"
                                 "def test_it(): pytest.skip(gpu_run.ACCEPTED[0])\n")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "expected at least one test to pass, got none" in done.stdout


def test_benchmarks_with_torch_are_selected_too():
    done = run_pytest("-m", "gpu or torch", "--collect-only", str(HERE.parent / "bench"))
    files = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert "mixture_test.py" in files and "cli_test.py" not in files, done.stdout
