"""Every example of every docstring is run."""

import doctest
import inspect

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


EXAMPLES = {name: text for name, text in documented() if text and ">>>" in text}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, 0)
    runner = doctest.DocTestRunner()
    failures = []
    runner.run(test, out=failures.append)
    assert runner.failures == 0, "".join(failures)


@pytest.mark.parametrize("name", [n for n in penstock.__all__ if n != "__version__"])
def test_everything_public_says_what_it_is(name):
    assert inspect.getdoc(getattr(penstock, name))


def test_what_does_something_has_an_example():
    functions = [n for n in penstock.__all__ if inspect.isroutine(getattr(penstock, n))]
    assert [n for n in functions if n not in EXAMPLES] == []
