"""The examples of the documentation of penstock.robot."""

import doctest
import inspect
import re

import numpy as np
import pytest

import penstock
from penstock import robot
from robot_support import ROOT

pytestmark = pytest.mark.usefixtures("no_thread_stays")


@pytest.fixture
def documented(make):
    """What the examples of the documentation call `path`."""
    dataset, _ = make(lengths=[120] * 8, jitter=0)
    return {"robot": robot, "penstock": penstock, "numpy": np, "path": str(dataset.path)}


def run_examples(text, names, name):
    test = doctest.DocTestParser().get_doctest(text, dict(names), name, None, 0)
    assert test.examples
    runner = doctest.DocTestRunner()
    failures = []
    runner.run(test, out=failures.append)
    assert runner.failures == 0, "".join(failures)


DOCUMENTED = {name: inspect.getdoc(thing) for name, thing in [
    ("robot", robot), *((name, getattr(robot, name)) for name in robot.__all__),
    *((f"Dataset.{name}", getattr(robot.Dataset, name)) for name in ("read", "video", "frames"))]}


@pytest.mark.parametrize("name", [name for name, text in DOCUMENTED.items() if ">>>" in text])
def test_example(documented, name):
    run_examples(DOCUMENTED[name], documented, name)


def test_everything_public_says_what_it_is():
    assert all(DOCUMENTED.values())


def test_the_documentation(documented):
    text = (ROOT / "docs/robot.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    run_examples("\n".join(blocks), documented, "docs/robot.md")
