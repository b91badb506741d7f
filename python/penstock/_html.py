"""HTML for notebooks."""

from collections.abc import Iterable
from html import escape

from . import _core


def table(rows: Iterable[Iterable[object]], head: Iterable[object] = ()) -> str:
    """A table; the text of every cell is escaped."""
    def row(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    top = row(head, "th") if head else ""
    return f"<table>{top}{''.join(row(cells, 'td') for cells in rows)}</table>"


def of_timeline(timeline: _core.Timeline) -> str:
    return in_frame(_core.page([("run", timeline)], "Timeline"))


def in_frame(page: str, height: int = 480) -> str:
    """An HTML page in a sandboxed frame."""
    return (f'<iframe srcdoc="{escape(page, quote=True)}" sandbox="allow-scripts" '
            f'style="width: 100%; height: {height}px; border: 0"></iframe>')
