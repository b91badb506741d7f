#!/usr/bin/env python3
"""Draws what the roles of a kernel did when, from a trace document (`penstock ladder ... --trace`).

picture.py draw TRACE.json PICTURE.svg    one SVG: a lane a role, a bar a tile
picture.py cut TRACE.json... FOLDER       of each document the part that its picture shows, to keep

A picture shows some tiles from the middle of the trace of one multiprocessor: around the rarest of
its roles, or all of a trace that has few tiles. Blocks that run at the same time have lanes of their
own; blocks that follow each other share them.
"""

import argparse
import json
import sys
from pathlib import Path

FEW_TILES = 10      # all of them are shown
TILES = 8           # else so many
MOST_LANES = 6
WIDTH, LEFT, RIGHT, TOP = 880, 96, 12, 8
LANE_GAP, ROW, THIN_ROW = 8, 20, 11
COLOURS = ("#2f74c0", "#b8611a", "#2f8a4e", "#8457c0", "#1c8787", "#a8476f")
GREY = "#7d8590"    # readable on white and on black


class Wrong(ValueError):
    pass


def read(path):
    """The document and its one kernel, whose spans are (block, role, tile, begin, end)."""
    document = json.loads(Path(path).read_text())
    kernels = document.get("kernels") if isinstance(document, dict) else None
    if not kernels:
        raise Wrong(f"{path}: not a kernel's trace")
    columns = kernels[0]["columns"]
    at = [columns.index(name) for name in ("block", "role", "tile", "begin_ns", "end_ns")]
    spans = [tuple(span[i] for i in at) for span in kernels[0]["spans"]]
    if not spans:
        raise Wrong(f"{path}: has no spans")
    if not all(0 <= role < len(kernels[0]["roles"]) for _, role, *_ in spans):
        raise Wrong(f"{path}: has spans of roles without a name")
    return document, kernels[0], sorted(spans, key=lambda span: (span[3], span[4], span))


def rows_of(intervals):
    """Puts intervals (begin, end, ...) into rows in which none overlap: a list of rows."""
    rows = []
    for interval in sorted(intervals):
        for row in rows:
            if row[-1][1] <= interval[0]:
                row.append(interval)
                break
        else:
            rows.append([interval])
    return rows


def extents(spans, key):
    """First begin and last end of what has the same key."""
    found = {}
    for span in spans:
        begin, end = found.get(key(span), (span[3], span[4]))
        found[key(span)] = min(begin, span[3]), max(end, span[4])
    return found


def slots_of(spans):
    """Lists of blocks that ran one after the other, in the same place of the multiprocessor."""
    blocks = extents(spans, lambda span: span[0])
    return [[block for _, _, block in row]
            for row in rows_of((begin, end, block) for block, (begin, end) in blocks.items())]


def takes_turns(spans, slots):
    """Whether a block does one thing at a time."""
    return all(len(rows_of((b, e) for block, _, _, b, e in spans if block in slot)) <= 1
               for slot in slots)


def middle_of(spans):
    """The times between which some tiles of these blocks end, in the middle of the trace."""
    tiles = extents(spans, lambda span: (span[0], span[2]))
    order = sorted(tiles, key=lambda tile: (tiles[tile][1], tile))
    if len(order) <= FEW_TILES:
        return min(span[3] for span in spans), max(span[4] for span in spans)
    counts = {}
    for span in spans:
        counts[span[1]] = counts.get(span[1], 0) + 1
    rarest = min(counts, key=lambda role: (counts[role], role))
    middle = len(order) // 2
    if 2 * counts[rarest] < max(counts.values()):
        having = {(span[0], span[2]) for span in spans if span[1] == rarest}
        middle = min((i for i, tile in enumerate(order) if tile in having),
                     key=lambda i: (abs(i - middle), i))
    first = min(max(middle - TILES // 2, 0), len(order) - 1 - TILES)
    return tiles[order[first]][1], tiles[order[first + TILES]][1]


def window_of(spans, roles):
    """What of the trace is shown: times, blocks, and how."""
    slots = slots_of(spans)
    by_role = len(slots) == 1 or not takes_turns(spans, slots)
    begin, end = middle_of([span for span in spans if span[0] in slots[0]])
    shown = slots[:max(1, MOST_LANES // roles) if by_role else MOST_LANES]
    seen = {block for block, _, _, b, e in spans if b < end and e > begin}
    return {"begin_ns": begin, "end_ns": end, "by_role": by_role, "blocks_at_once": len(slots),
            "slots": [[block for block in slot if block in seen] for slot in shown]}


class Shown:
    """The lanes of a picture: (name, [(begin, end, role, number of the tile)])."""

    def __init__(self, path):
        self.document, self.kernel, spans = read(path)
        self.roles = self.kernel["roles"]
        self.window = self.document.get("window") or window_of(spans, len(self.roles))
        self.begin, self.end = self.window["begin_ns"], self.window["end_ns"]
        self.slots = self.window["slots"]
        self.spans = [(block, role, tile, max(b, self.begin), min(e, self.end))
                      for block, role, tile, b, e in spans if b < self.end and e > self.begin]
        self.lanes = []
        for number, slot in enumerate(self.slots):
            bars = self.bars(slot)
            if not self.window["by_role"]:
                self.lanes.append((f"block {number}", bars))
                continue
            name = "{}" if len(self.slots) == 1 else f"{number}: {{}}"
            self.lanes += [(name.format(role), [bar for bar in bars if bar[2] == i])
                           for i, role in enumerate(self.roles)]

    def bars(self, slot):
        mine = [span for span in self.spans if span[0] in slot]
        tiles = sorted({(slot.index(span[0]), span[2]) for span in mine})
        number = {tile: i for i, tile in enumerate(tiles)}
        return [(b, e, role, number[slot.index(block), tile]) for block, role, tile, b, e in mine]

    def busy(self):
        """The share of the window that each role was busy, of the blocks shown."""
        whole = (self.end - self.begin) * len(self.slots)
        shares = []
        for role in range(len(self.roles)):
            total = 0
            for slot in self.slots:
                last = self.begin
                for block, r, _, begin, end in self.spans:
                    if r == role and block in slot:
                        total += max(0, end - max(begin, last))
                        last = max(last, end)
            shares.append(total / whole if whole else 0)
        return shares


def step_of(length):
    """A round distance for at most ten marks on an axis."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if length <= 10 * step * factor:
                return step * factor
        step *= 10


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def svg(path):
    shown = Shown(path)
    begin, end = shown.begin, shown.end
    scale = (WIDTH - LEFT - RIGHT) / max(1, end - begin)

    def x(ns):
        return LEFT + (ns - begin) * scale

    parts, y = [], TOP
    for name, bars in shown.lanes:
        rows = rows_of(bars) or [[]]
        height = ROW if len(rows) == 1 else THIN_ROW
        middle = y + len(rows) * height / 2 + 4
        parts.append(f'<text x="{LEFT - 8}" y="{number(middle)}" class="n">{escaped(name)}</text>')
        for i, row in enumerate(rows):
            top = y + i * height
            for b, e, role, tile in row:
                width = max(0.8, (e - b) * scale - 0.6)
                parts.append(f'<rect x="{number(x(b))}" y="{number(top)}" width="{number(width)}" '
                             f'height="{height - 2}" class="r{role}"/>')
                text = str(tile)
                if width > 7 * len(text) + 4:
                    parts.append(f'<text x="{number(x(b) + width / 2)}" '
                                 f'y="{number(top + height / 2 + 2.5)}" class="t">{text}</text>')
        y += len(rows) * height + LANE_GAP

    axis = y
    step = step_of(end - begin)
    marks = range(0, end - begin + 1, step)
    digits = 0 if step >= 1000 else 1 if step >= 100 else 2 if step >= 10 else 3
    grid = "".join(f"M{number(x(begin + at))} {TOP}V{axis}" for at in marks)
    for at in marks:
        unit = " µs" if at + step > end - begin else ""
        parts.append(f'<text x="{number(min(x(begin + at), WIDTH - 24))}" y="{axis + 14}" '
                     f'class="a">{at / 1000:.{digits}f}{unit}</text>')
    height = axis + 22
    if not shown.window["by_role"]:
        at = LEFT
        for role, name in enumerate(shown.roles):
            parts.append(f'<rect x="{at}" y="{height}" width="12" height="12" class="r{role}"/>'
                         f'<text x="{at + 18}" y="{height + 10}" class="l">{escaped(name)}</text>')
            at += 40 + 7 * len(name)
        height += 20

    colours = "".join(f".r{i}{{fill:{COLOURS[i % len(COLOURS)]}}}"
                      for i in range(len(shown.roles)))
    style = (f"text{{font:11px sans-serif;fill:{GREY}}}.n{{text-anchor:end;font-size:12px}}"
             f".a{{text-anchor:middle}}.t{{text-anchor:middle;fill:#fff;font-size:9px}}"
             f"rect{{rx:2px}}{colours}")
    title = escaped(f"{shown.kernel['name']}: {', '.join(shown.roles)}")
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img"><title>{title}</title>',
        f"<style>{style}</style>",
        f'<path d="{grid}" stroke="{GREY}" stroke-opacity=".25" fill="none"/>',
        *parts, "</svg>", ""])


def nanoseconds(ns):
    return f"{ns:.0f} ns" if ns < 1000 else f"{ns / 1000:.1f} µs" if ns < 1e6 else (
        f"{ns / 1e6:.2f} ms")


def caption(path):
    """What the trace says of itself, in a few sentences."""
    shown = Shown(path)
    of = shown.kernel["end_ns"] - shown.kernel["begin_ns"]
    there = shown.window["blocks_at_once"]
    blocks = "one block" if there == 1 else (
        f"{len(shown.slots)} of the {there} blocks that run there at once"
        if there > len(shown.slots) else f"the {there} blocks that run there at once")
    busy = ", ".join(f"{name} {100 * share:.0f} %"
                     for name, share in zip(shown.roles, shown.busy()))
    length = nanoseconds(shown.end - shown.begin)
    model = shown.document.get("device", {}).get("model", "")
    lost = shown.kernel["lost"]
    return (f"Traced{' on ' + model if model else ''}: {length} of {nanoseconds(of)}, "
            f"one multiprocessor, {blocks}. Busy: {busy}. Tiles are numbered from the first shown. "
            f"Clocks aligned to within {nanoseconds(shown.kernel['error']['max_ns'])}"
            + (f"; {lost} records did not fit" if lost else "") + ".")


def around(shown):
    """Of the document's timelines the bars just before, beside and after the kernel."""
    timelines = shown.document["timelines"]
    bar = timelines["columns"]
    if not {"begin_ns", "end_ns"} <= set(bar):
        return timelines
    begin_at, end_at = bar.index("begin_ns"), bar.index("end_ns")
    columns = shown.kernel["columns"]
    spans = shown.kernel["spans"]
    begin = min(span[columns.index("begin_ns")] for span in spans)
    end = max(span[columns.index("end_ns")] for span in spans)
    length = end - begin
    return {name: rows if name == "columns" else
            [row for row in rows if row[begin_at] < end + length and row[end_at] > begin - length]
            for name, rows in timelines.items()}


def cut(path):
    """The document with what its picture shows and no more, as text."""
    shown = Shown(path)
    blocks = {block for slot in shown.slots for block in slot}
    at = [shown.kernel["columns"].index(name) for name in ("block", "begin_ns", "end_ns")]
    spans = []
    for span in shown.kernel["spans"]:
        block, begin, end = (span[i] for i in at)
        if block in blocks and begin < shown.end and end > shown.begin:
            spans.append(json.dumps(span, separators=(",", ":")))
    document = dict(shown.document, window=shown.window, timelines=around(shown),
                    kernels=[dict(shown.kernel, spans="SPANS")])
    text = json.dumps(document, indent=1, ensure_ascii=False)
    return text.replace('"SPANS"', "[\n" + ",\n".join(spans) + "\n]") + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    draw_it = commands.add_parser("draw", help="one SVG of a trace document")
    draw_it.add_argument("trace", type=Path)
    draw_it.add_argument("picture", type=Path)
    cut_it = commands.add_parser("cut", help="keep of trace documents what their pictures show")
    cut_it.add_argument("traces", type=Path, nargs="+")
    cut_it.add_argument("folder", type=Path)
    args = parser.parse_args()
    try:
        if args.command == "draw":
            args.picture.write_text(svg(args.trace))
            return
        args.folder.mkdir(parents=True, exist_ok=True)
        for trace in args.traces:
            (args.folder / trace.name).write_text(cut(trace))
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"picture: {error}")


if __name__ == "__main__":
    main()
