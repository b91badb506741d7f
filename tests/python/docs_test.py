"""Every example of every docstring, and of the pages about operators and the runtime, is run."""

import doctest
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import penstock


def documented():
    """(name, docstring) of the package, its public objects and their public members."""
    yield "penstock", penstock.__doc__
    for name in penstock.__all__:
        thing = getattr(penstock, name)
        yield name, inspect.getdoc(thing)
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_"):
                    yield f"{name}.{member}", inspect.getdoc(value)


DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [*sorted((DOCS / "ops").glob("*.md")), DOCS / "runtime.md"]
EXAMPLES = {name: text for name, text in documented() if text and ">>>" in text}


def run(examples, name):
    test = doctest.DocTestParser().get_doctest(examples, {}, name, None, 0)
    assert test.examples
    runner = doctest.DocTestRunner()
    failures = []
    runner.run(test, out=failures.append)
    assert runner.failures == 0, "".join(failures)


def needs_torch(name):
    return "import torch" in EXAMPLES[name]


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.torch, id=f"torch-{name}") if needs_torch(name) else name
    for name in EXAMPLES])
def test_example(name):
    if needs_torch(name):
        pytest.importorskip("torch", reason="torch is not installed here")
    run(EXAMPLES[name], name)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
@pytest.mark.parametrize("needs", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_page(page, needs):
    """A page is one session; its blocks with torch, and what comes before them, need torch."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    if needs == "numpy":
        blocks = [each for each in blocks if "torch" not in each]
    elif not importlib.util.find_spec("torch"):
        pytest.skip("torch is not installed here")
    run("\n".join(blocks), page.name)


@pytest.mark.parametrize("name", [n for n in penstock.__all__ if n != "__version__"])
def test_everything_public_says_what_it_is(name):
    assert inspect.getdoc(getattr(penstock, name))


def test_what_does_something_has_an_example():
    functions = [n for n in penstock.__all__ if inspect.isroutine(getattr(penstock, n))]
    assert [n for n in functions if n not in EXAMPLES] == []
