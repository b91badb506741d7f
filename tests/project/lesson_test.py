"""The tutorial's mistakes and exercises: every file has its place in the page, and is what the page
says it is."""

import difflib
import re
import subprocess
from pathlib import Path

import pytest
import tutorial

ROOT = Path(__file__).resolve().parents[2]
MISTAKES = sorted((ROOT / "tests/gpu/mistakes").glob("*.cu"))
EXERCISES = sorted((ROOT / "tests/gpu/exercises").glob("[0-9]_*.c*"))
MISTAKES_PAGE = ROOT / "docs/tutorial/what-goes-wrong.md"
EXERCISES_PAGE = ROOT / "docs/tutorial/exercises.md"


def by_name(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def shown(page, path):
    """The names that the page's code places show of a file."""
    places = re.findall(r"<!-- code (\S+): (.+?) -->", page.read_text())
    return [name.strip() for file, names in places if file == path.relative_to(ROOT).as_posix()
            for name in names.split(",")]


def solution_of(path):
    return path.parent / "solutions" / path.name


def check_of(path):
    return path.parent / "checks" / (path.stem.removesuffix("_sm90") + ".cpp")


def test_there_are_some():
    assert len(MISTAKES) >= 10 and len(EXERCISES) == 6


@by_name(MISTAKES)
def test_a_mistake_is_shown_in_both_forms(path):
    defined = {name for name in ("wrong", "right", "Crooked", "Straight")
               if any(tutorial.defines(one, name) for one in tutorial.definitions(path.read_text()))}
    assert len(defined) == 2
    assert defined <= set(shown(MISTAKES_PAGE, path))


@by_name(MISTAKES)
def test_a_mistake_goes_by_the_name_of_its_file(path):
    name = path.stem.removesuffix("_sm90").replace("_", "-")
    assert f'.name = "{name}"' in path.read_text()
    assert f"`{name}`" in MISTAKES_PAGE.read_text()


@by_name(MISTAKES)
def test_a_mistake_that_needs_hopper_says_so(path):
    assert (".capability = 90" in path.read_text()) == path.stem.endswith("_sm90")


def test_a_section_says_all_that_it_should():
    sections = MISTAKES_PAGE.read_text().split("\n## ")[1:]
    about = [section for section in sections if "<!-- code tests/gpu/mistakes/" in section]
    assert len(about) == len(MISTAKES)
    for section in about:
        for part in ("**Why it looks right.**", "**What happens.**", "**How it is caught.**",
                     "**The right form.**"):
            assert part in section, section.splitlines()[0]


def test_tests_that_the_page_names_exist():
    sources = "".join(path.read_text() for ending in ("cpp", "cu")
                      for path in (ROOT / "tests").rglob(f"*_test.{ending}"))
    for suite, name in re.findall(r"`(\w+)\.(\w+)`\s+in\s+`tests/", MISTAKES_PAGE.read_text()):
        assert re.search(rf"TEST(_F|_P)?\({suite}, {name}\)", sources), f"{suite}.{name}"


@by_name(EXERCISES)
def test_an_exercise_has_its_page_its_solution_and_its_checker(path):
    assert shown(EXERCISES_PAGE, path)
    assert f"scripts/exercise.sh {path.stem[0]}" in EXERCISES_PAGE.read_text()
    assert solution_of(path).is_file() and check_of(path).is_file()


@by_name(EXERCISES)
def test_only_the_exercise_has_a_gap(path):
    assert "GAP" in path.read_text()
    assert "GAP" not in solution_of(path).read_text()


@by_name(EXERCISES)
def test_a_solution_differs_from_its_exercise_in_the_gap_alone(path):
    """Every change begins within a few lines of a gap, but for the comment at the top."""
    before = path.read_text().splitlines()
    after = solution_of(path).read_text().splitlines()
    gaps = [number for number, line in enumerate(before) if "GAP" in line]
    top = next(number for number, line in enumerate(before) if not line.startswith("//"))
    for kind, begin, *_ in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        if kind != "equal" and begin >= top:
            assert any(gap <= begin <= gap + 12 for gap in gaps), before[begin]


def test_no_file_is_without_an_exercise():
    for folder, of in (("solutions", solution_of), ("checks", check_of)):
        there = set((ROOT / "tests/gpu/exercises" / folder).iterdir())
        assert there == {of(path) for path in EXERCISES}


@pytest.mark.parametrize("arguments", [[], ["0"], ["7"], ["x"], ["1", "--other"], ["1", "2", "3"]])
def test_the_script_says_how_it_is_used(arguments):
    done = subprocess.run([ROOT / "scripts/exercise.sh", *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: ")
