"""Puts a page together from its parts, as the library does for `penstock report`."""

import html
import json
import re
from pathlib import Path

PARTS = Path(__file__).resolve().parents[2] / "src" / "trace" / "page"
SCRIPTS = (PARTS / "scripts.txt").read_text().split()


def assemble(data: dict) -> str:
    """The page that shows `data`."""
    filled = {
        "title": html.escape(str(data.get("title", ""))),
        "css": (PARTS / "page.css").read_text(),
        "js": "".join((PARTS / name).read_text() for name in SCRIPTS),
        "data": json.dumps(data).replace("<", "\\u003c"),
    }
    # One pass: what is filled in is not searched for placeholders again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: filled[match[1]],
                  (PARTS / "page.html").read_text())
