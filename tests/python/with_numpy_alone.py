"""The installed package, used in an environment that holds NumPy and nothing else."""

import doctest
import importlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy
import penstock


def check_that_nothing_else_is_installed():
    installed = {entry.metadata["Name"].lower() for entry in metadata.distributions()}
    assert installed == {"numpy", "penstock"}, installed


def check_that_every_module_can_be_imported():
    folder = Path(penstock.__file__).parent
    modules = [*folder.glob("[a-z]*.py"), *(path.parent for path in folder.glob("*/__init__.py"))]
    assert len(modules) > 2
    for path in modules:
        importlib.import_module(f"penstock.{path.stem}")


def check_docstrings():
    finder, runner = doctest.DocTestFinder(exclude_empty=True), doctest.DocTestRunner()
    for name in penstock.__all__:
        for test in finder.find(getattr(penstock, name), name, module=False):
            if "import torch" not in test.docstring:
                runner.run(test)
    assert runner.tries > 10 and runner.failures == 0


def check_an_operator():
    data = numpy.arange(64, dtype=numpy.float32).reshape(16, 4)
    result = penstock.resample(data, numpy.arange(16.0), numpy.array([0.5, 7.25]))
    assert numpy.array_equal(result, [data[0] + 2, data[7] + 1])


def check_the_program():
    program = Path(sys.executable).with_name("penstock")
    for command in ("--version", "doctor"):
        done = subprocess.run([program, command], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout, done.stderr


def check_the_examples():
    for name in ("resampling", "overlap"):
        example = Path(__file__).resolve().parents[2] / "examples/python" / f"{name}.py"
        subprocess.run([sys.executable, "-I", example], check=True, stdout=subprocess.DEVNULL)


check_that_nothing_else_is_installed()
check_that_every_module_can_be_imported()
check_docstrings()
check_an_operator()
check_the_program()
check_the_examples()
print("with NumPy alone: every check passed")
