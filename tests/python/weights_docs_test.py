"""The examples of penstock.weights and of docs/weights.md."""

import doctest
import inspect
import re
from pathlib import Path

from penstock import weights

PAGE = Path(__file__).resolve().parents[2] / "docs/weights.md"


def run_examples(text, name):
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert test.examples
    runner = doctest.DocTestRunner()
    failures = []
    runner.run(test, out=failures.append)
    assert runner.failures == 0, "".join(failures)


def test_module():
    run_examples(weights.__doc__, "penstock.weights")


def test_page():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    run_examples("".join(blocks), PAGE.name)


def test_everything_public_says_what_it_is():
    things = [getattr(weights, name) for name in weights.__all__]
    members = [value for name, value in vars(weights.Checkpoint).items() if not name.startswith("_")]
    assert all(inspect.getdoc(thing) for thing in [*things, *members])
