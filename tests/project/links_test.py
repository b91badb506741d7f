"""Every link of every Markdown page of the project leads to a file, and to a heading in it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def without_code(page):
    """Nor comments, which hide sections that have no results yet."""
    return re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(), flags=re.DOTALL)


def links(page):
    return re.findall(r"\]\(([^)\s]+)\)", without_code(page))


def anchors(page):
    """The anchors that GitHub makes of headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", without_code(page), flags=re.MULTILINE)}


def broken_links(page):
    for link in links(page):
        if link.startswith(("http:", "https:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("link, right", [
    ("other.md", True), ("other.md#a-heading", True), ("#here", True), ("https://example.org", True),
    ("gone.md", False), ("other.md#gone", False), ("#gone", False), ("other.md#hidden", False),
])
def test_broken_links_are_found(write, link, right):
    write("other.md", "# A heading\n\n<!-- not shown\n# Hidden\n-->\n")
    page = write("page.md", f"# Here\n\n[a link]({link})\n\n```\n[no link](code.md)\n```\n")
    assert list(broken_links(page)) == ([] if right else [link])
