"""Measured figures in the README, the docs and the tutorial are generated from bench/results."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The notes record experiments; the results pages are generated as a whole.
PAGES = [ROOT / "README.md", *sorted(
    page for page in (ROOT / "docs").rglob("*.md")
    if not {"notes", "results"} & set(page.relative_to(ROOT / "docs").parts)
    and page != ROOT / "docs/results.md")]

# A time, a rate, a share, or a ratio with two decimals or more.
FIGURE = re.compile(r"(?<![\w.])\d[\d.,]*\s?(?:µs|us|ms|ns|[MGT]B/s|[GT]FLOP/s|%)(?![\w/])"
                    r"|(?<![\w.])\d+\.\d\d+(?![\w.])")
GENERATED = [re.compile(pattern, re.DOTALL) for pattern in (
    r"```.*?```", r"<!-- (?:rows|best|picture|code|verdicts) [^\n]*-->.*?<!-- end -->",
    r"<!-- results of .*?<!-- end of results -->", r"<!-- table .*?<!-- end of table -->",
    r"<!-- figure .*?<!-- /figure -->")]
# What looks like a figure and was not measured.
VERSION = re.compile(r"(?:Python|CUDA|CMake|GCC|clang|Ubuntu|Debian|NumPy|torch|toolkit|transformers)"
                     r"(?: toolkit)? \d+\.\d+")
# A page names its own: <!-- not measured: 10 %, 100 ms -->, for a setting, a limit or an example.
NOT_MEASURED = re.compile(r"<!-- not measured: (.+?) -->", re.DOTALL)


def hand_written(text):
    for pattern in GENERATED:
        text = pattern.sub("", text)
    named = {" ".join(figure.split()) for given in NOT_MEASURED.findall(text)
             for figure in given.split(",")}
    text = VERSION.sub("", NOT_MEASURED.sub("", text))
    text = FIGURE.sub(lambda found: "" if " ".join(found[0].split()) in named else found[0], text)
    return [line for line in text.splitlines() if FIGURE.search(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_figure_is_written_by_hand(page):
    assert hand_written(page.read_text()) == []


@pytest.mark.parametrize("line, found", [
    ("It takes 21 µs.", True), ("It is 1.013 × as fast.", True), ("| a | 38.82 ms |", True),
    ("14 % longer", True), ("4.2 TB/s", True), ("Python 3.11 or newer", False), ("8 items", False),
    ("256 MiB", False), ("transformers 5.17 or newer", False),
    ("It is <!-- figure a: b -->1.013<!-- /figure -->.", False),
    ("times with 10 % jitter\n<!-- not measured: 5 ms, 10 % -->", False),
    ("times with 20 % jitter\n<!-- not measured: 5 ms, 10 % -->", True),
])
def test_what_counts_as_a_figure(line, found):
    assert bool(hand_written(line)) == found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_figure_does_not_begin_a_line(page):
    """There, Markdown would take the comment for a block of HTML."""
    assert not re.search(r"^\s*<!-- figure", page.read_text(), re.MULTILINE)
