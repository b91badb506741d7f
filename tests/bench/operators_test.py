"""The operators that come along: found, right, and described in full."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.bench import operators

PROGRAM = Path(penstock.__file__).with_name("penstock")


@pytest.mark.parametrize("name", operators.names())
def test_every_operator_says_who_it_is(context, name):
    operator = operators.find(name)
    cases = operator.cases(context)
    assert operator.name == name and operator.summary
    assert cases and len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert case.bytes > 0 and case.flop >= 0 and case.tolerance >= 0 and case.kernels()
        json.dumps(dict(case.params))


def test_iterate_is_right(bench):
    code, out, err = bench("iterate", "--mode", "correctness", "--device", "cpu", "--quick")
    assert code == 0, err
    assert out.count("right") == 6


def test_iterate_counts_its_bytes_and_operations(context):
    case = operators.find("iterate").cases(context)[2]
    elements, rounds = case.params["elements"], case.params["rounds"]
    assert case.bytes == 8 * elements and case.flop == 2 * rounds * elements
    assert case.roof_us({"host_copy": 8e9}) == pytest.approx(elements * 1e-3)


def test_the_program_runs_it_and_draws_its_results(tmp_path):
    environment = {"PENSTOCK_PYTHON": sys.executable, "PENSTOCK_CACHE": str(tmp_path),
                   "PYTHONPATH": str(Path(penstock.__file__).parents[1]), "PATH": "/usr/bin:/bin"}

    def run(*words):
        return subprocess.run([PROGRAM, *words], capture_output=True, text=True, cwd=tmp_path,
                              env=environment)

    done = run("bench", "iterate", "--device", "cpu", "--quick", "--case", "stream", "--output",
               "r.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("stream")
    done = run("report", "r.json")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "Roofline" in page and "numpy" in page
