"""Every test that scripts/gpu_check.sh names is there: GoogleTest passes a filter that matches none."""

import fnmatch
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"^(TYPED_)?TEST(_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)


def gpu_tests():
    for path in (ROOT / "tests/gpu").glob("*_test.c*"):
        for typed, kind, suite, name in NAME.findall(path.read_text()):
            if typed:
                yield f"{suite}/0.{name}"
            elif kind == "_P":
                yield f"Instance/{suite}.{name}/0"
            else:
                yield f"{suite}.{name}"


def filters():
    """The patterns of all variables that make up filters."""
    script = (ROOT / "scripts/gpu_check.sh").read_text()
    for text in re.findall(r"^\s*(?:local )?[a-z_]+\+?='([^']*Gpu[^']*|[^']*Ladder[^']*)'", script,
                           re.MULTILINE):
        yield from filter(None, text.split(":"))


def matched(pattern, names):
    """The names of parameters are not looked up: any will do."""
    return fnmatch.filter(names, re.sub(r"/\w+$", "/*", pattern))


def test_every_pattern_matches_a_test():
    names, patterns = list(gpu_tests()), list(filters())
    assert len(patterns) > 30
    assert [each for each in patterns if not matched(each, names)] == []
