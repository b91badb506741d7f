import json
import subprocess
import sys
from pathlib import Path

import pytest

LEDGER = Path(__file__).resolve().parents[2] / "tools" / "ledger.py"


def kernel(name, arch, registers):
    return {"kernel": name, "arch": arch, "registers": registers, "smem": 0, "stack": 0,
            "spill_stores": 0, "spill_loads": 0, "barriers": 1}


@pytest.fixture
def run(tmp_path):
    def run_ledger(records, *arguments, toolkit="13.0.88"):
        names = []
        for number, record in enumerate(records):
            names.append(tmp_path / f"{number}.o")
            Path(f"{names[-1]}.ptxas.json").write_text(json.dumps(record))
        listed = tmp_path / "objects.txt"
        listed.write_text("\n".join(map(str, names)))
        return subprocess.run(
            [sys.executable, LEDGER, listed, toolkit, "--output", tmp_path / "ledger.txt",
             *arguments], capture_output=True, text=True)

    return run_ledger


A = {"source": "src/a.cu", "kernels": [kernel("one", "sm_90", 40), kernel("one", "sm_80", 32)]}
B = {"source": "src/b.cu", "kernels": [kernel("two", "sm_90a", 168)]}


def test_the_order_of_objects_and_kernels_does_not_matter(run, tmp_path):
    assert run([A, B]).returncode == 0
    first = (tmp_path / "ledger.txt").read_text()
    assert run([B, A | {"kernels": A["kernels"][::-1]}]).returncode == 0
    assert (tmp_path / "ledger.txt").read_text() == first


def test_check_passes_on_the_same_and_shows_a_difference(run, tmp_path):
    run([A, B])
    assert run([A, B], "--check").returncode == 0
    kept = (tmp_path / "ledger.txt").read_text()
    done = run([A, B | {"kernels": [kernel("two", "sm_90a", 200)]}], "--check")
    assert done.returncode != 0
    changed = [line for line in done.stdout.splitlines() if line[:3] in ("-  ", "+  ")]
    assert len(changed) == 2 and "168" in changed[0] and "200" in changed[1]
    assert (tmp_path / "ledger.txt").read_text() == kept


def test_check_without_a_ledger_fails(run):
    assert run([A], "--check").returncode != 0


def test_another_toolkit_is_not_compared(run):
    run([A])
    done = run([B], "--check", toolkit="13.1.0")
    assert done.returncode == 0
    assert "not compared" in done.stdout


def test_an_object_without_a_record_is_an_error(run, tmp_path):
    run([A])
    (tmp_path / "0.o.ptxas.json").unlink()
    (tmp_path / "objects.txt").write_text(str(tmp_path / "0.o"))
    done = subprocess.run([sys.executable, LEDGER, tmp_path / "objects.txt", "13.0.88"],
                          capture_output=True, text=True)
    assert done.returncode != 0
    assert "missing" in done.stderr
