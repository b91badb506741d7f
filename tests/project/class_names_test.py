"""Classes that the tests' headers define: a program must not have two of one name."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
HIDDEN = re.compile(r"^namespace \{\n.*?^\}  // namespace\n", re.MULTILINE | re.DOTALL)
DEFINITION = re.compile(r"^(?:class|struct) (\w+)(?: final)?(?: :[^;{]*)?\s*\{", re.MULTILINE)


def defined(folder):
    """Pairs of a name and its header."""
    return [(name, path.name) for path in sorted((TESTS / folder).glob("*.h"))
            for name in DEFINITION.findall(HIDDEN.sub("", path.read_text()))]


@pytest.mark.parametrize("folder", sorted(path.name for path in TESTS.iterdir()
                                          if any(path.glob("*.h"))))
def test_no_two_headers_of_a_program_define_one_class(folder):
    headers = {}
    for name, header in {*defined(folder), *defined("support")}:
        headers.setdefault(name, []).append(header)
    assert {name: found for name, found in headers.items() if len(found) > 1} == {}


def test_definitions_are_found():
    assert ("Strided", "strided.h") in defined("support")
    assert HIDDEN.sub("", "namespace {\nclass A {\n}  // namespace\nclass B {\n") == "class B {\n"
    assert DEFINITION.findall("class A;\nstruct B : C {\n  class D {\n") == ["B"]
