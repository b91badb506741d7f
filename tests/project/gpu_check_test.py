"""Every test that scripts/gpu_check.sh names is there: GoogleTest passes a filter that matches none."""

import fnmatch
import re
import subprocess
from pathlib import Path

import gpu_evidence

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


def test_the_parts_that_are_recorded_are_those_that_run():
    script = (ROOT / "scripts/gpu_check.sh").read_text()
    assert re.search(r"\(\(\$#\)\) \|\| parts=\((.*)\)", script)[1].split() == list(gpu_evidence.PARTS)


def test_every_part_is_recorded_with_its_outcome(tmp_path):
    """The script's loop over the parts, with a stand-in for their runs and for the tool that records."""
    script = (ROOT / "scripts/gpu_check.sh").read_text()
    loop = script[script.index("summary=()"):].replace(
        'scripts/gpu_check.sh --part "$part"', 'sh -c "exit $part"')
    begin = 'set -euo pipefail\nparts=(0 86 3)\nevidence=(echo recorded)\nsources=(hash)\n'
    done = subprocess.run(["bash", "-c", begin + loop], capture_output=True, text=True)
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if line.startswith("recorded")] == [
        "recorded checked 0 clean hash", "recorded checked 86 failed hash", "recorded checked 3 failed hash"]
