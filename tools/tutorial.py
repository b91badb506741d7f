#!/usr/bin/env python3
"""Fills the tutorial's chapters: tutorial.py [--check] [FOLDER]

A chapter, in the folder or below it, holds places that are written from elsewhere, so that they
cannot drift:

    <!-- code examples/copy/05_cp_async.cu: load, copy -->     definitions of a source file, by name
    <!-- code FILE: copy > for (; i -->                        of one, the statement at that text
    <!-- code FILE: copy > // Setup. ... wait<0> -->           from there to the one at that text
    <!-- rows bench/results/ladder_copy.json: cp.async -->     rungs' measured rows
    <!-- best bench/results/ladder_copy.json: ring, bulk -->   of each rung the fastest rows
    <!-- verdicts bench/results/ladder_attention.json -->      what the ladder promises, and if it holds
    <!-- picture docs/tutorial/traces/copy_ring.json -->       of a kernel's trace, with a caption
    <!-- end -->                                               where any of them stops

A picture is written to the folder `pictures` beside that of its trace. --check writes nothing and
fails where a chapter or a picture is not what would be written.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

import picture

ROOT = Path(__file__).resolve().parent.parent
PLACE = re.compile(r"<!-- ((code|rows|best) (\S+): (.+?)|(picture|verdicts) (\S+)) -->\n.*?<!-- end -->",
                   re.DOTALL)
LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".h": "cpp", ".cpp": "cpp", ".py": "python"}


class Wrong(Exception):
    pass


def bare(line):
    """A line of code without strings and comments, in which braces would not count."""
    return re.sub(r'"(\\.|[^"\\])*"|//.*', "", line)


def opened(code):
    return code.count("{") - code.count("}") + code.count("(") - code.count(")")


def definitions(text):
    """The top-level definitions of a source file, each with the comment above it."""
    chunk, depth = [], 0
    for line in text.splitlines():
        code = bare(line)
        if depth == 0 and re.match(r"(namespace\b.*\{|\}.*|#.*|\s*)$", code) and not (
                line.startswith("//")):
            # The end of a namespace, a directive or a blank line belongs to no definition.
            chunk = []
            continue
        chunk.append(line)
        depth += opened(code)
        if depth == 0 and re.search(r"[;}]\s*$", code):
            yield "\n".join(chunk)
            chunk = []


def defines(definition, name):
    code = "\n".join(line for line in definition.splitlines() if not line.startswith("//"))
    head = code.split("{", 1)[0] if not re.match(r"(constexpr|const|using)\b", code) else code
    name = re.escape(name)
    return re.search(rf"(?<![\w.:]){name}(?!\w)\s*(\(|=|:(?!:)|;|\[|$)", head.strip()) or (
        re.search(rf"\b(struct|class)\s+{name}\b", head))


def part(definition, text):
    """Of a definition, the statement that begins at the line with the text, and the comment above.
    `first ... last`: all from the one to the end of the other, and of what is open by then."""
    lines = definition.splitlines()
    first, _, last = text.partition(" ... ")

    def line_with(wanted, start):
        for fits in (str.startswith, str.__contains__):
            for number in range(start, len(lines)):
                if fits(lines[number].lstrip(), wanted):
                    return number
        raise Wrong(f"has no line with '{wanted}'")

    begin = line_with(first, 0)
    least = line_with(last, begin) if last else begin
    margin = len(lines[begin]) - len(lines[begin].lstrip())
    taken = [lines[begin].replace("} else", "else", 1)]
    depth = opened(bare(taken[0]))
    for number in range(begin + 1, len(lines)):
        if number > least and depth <= 0 and re.search(r"[;}]\s*$", bare(taken[-1])):
            break
        line = lines[number]
        if depth == 1 and number > least and line.lstrip().startswith("} else"):
            taken.append(line[:line.index("}") + 1])
            break
        taken.append(line)
        depth += opened(bare(line))
    while begin > 0 and lines[begin - 1].lstrip().startswith(("//", "#pragma")):
        begin -= 1
        taken.insert(0, lines[begin])
    # Directives stand at the left edge, whatever is around them.
    return "\n".join(line if line[:margin].strip() else line[margin:] for line in taken).rstrip()


def code(path, names):
    text = (ROOT / path).read_text()
    found = list(definitions(text))
    parts = []
    for name in names:
        name, _, inside = (word.strip() for word in name.partition(" > "))
        matching = [one for one in found if defines(one, name)]
        if not matching:
            raise Wrong(f"{path} defines no {name}")
        if inside:
            try:
                matching = [part(matching[0], inside)]
            except Wrong as error:
                raise Wrong(f"{path}: {name} {error}") from None
        parts += [one for one in matching if one not in parts]
    return f"```{LANGUAGES[Path(path).suffix]}\n" + "\n\n".join(parts) + "\n```\n"


def microseconds(seconds):
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def measured(row):
    """Time and share of the yardstick, or why there is none."""
    if not row["seconds"]:
        return f"dropped: {row['dropped']}" if row.get("dropped") else row["note"] or "–"
    share = row.get("efficiency")
    return microseconds(row["seconds"]) + (f", {100 * share:.1f} %" if share else "")


def used(row):
    use = row.get("kernel") or {}
    return [str(use.get("registers", "–")),
            f"{use['shared_bytes'] / 1024:.1f} KiB" if "shared_bytes" in use else "–",
            f"{100 * use['occupancy']:.0f} %" if "occupancy" in use else "–"]


def counted(row):
    """What ncu counted of a row."""
    counters = row.get("counters")
    if not counters:
        return ["–"] * len(COUNTED)
    moved = counters["dram_read_bytes"] + counters["dram_written_bytes"]
    return [f"{100 * counters['dram_share']:.1f} %", f"{moved / 1e6:.1f} MB",
            f"{100 * counters['l2_hit_rate']:.1f} %"]


COUNTED = ["DRAM bandwidth", "DRAM bytes", "L2 hits"]


def table(head, lines):
    def line(cells):
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "|---" + "|---:" * (len(head) - 1) + "|"
    return "\n".join([line(head), rule, *map(line, lines)]) + "\n"


def rungs_of(path, names):
    """The results of the named rungs; None where nothing was measured."""
    file = ROOT / path
    if not file.exists():
        return None
    rungs = {rung["name"]: rung for rung in json.loads(file.read_text())["rungs"]}
    for name in names:
        if name not in rungs:
            raise Wrong(f"{path} has no rung {name}")
    return [rungs[name] for name in names]


NOT_MEASURED = "*Not measured yet.*\n"


def rows(path, names):
    rungs = rungs_of(path, names)
    if rungs is None:
        return NOT_MEASURED
    labelled = {}  # rows of one kernel, which differ in their work
    for rung in rungs:
        for row in rung["rows"]:
            label = row["label"] if len(rungs) == 1 else f"{rung['name']}: {row['label']}"
            labelled.setdefault(label, []).append(row)
    everything = [row for group in labelled.values() for row in group]
    works = list(dict.fromkeys(row.get("work", "") for row in everything))
    by_work = len(everything) > len(labelled)
    counters = any(row.get("counters") for row in everything) and not by_work
    notes = any(row["seconds"] and row["note"] for row in everything) and not by_work
    lines = []
    for label, group in labelled.items():
        cells = [measured(group[0])]
        if by_work:
            at = {row.get("work", ""): row for row in group}
            cells = [measured(at[work]) if work in at else "" for work in works]
        note = group[0]["note"] if group[0]["seconds"] else ""
        lines.append([label, *cells, *used(group[0]), *(counted(group[0]) if counters else []),
                      *([note] if notes else [])])
    return table(["", *(works if by_work else ["time, share of the yardstick"]), "registers",
                  "shared memory", "occupancy", *(COUNTED if counters else []),
                  *(["note"] if notes else [])], lines)


def best(path, names):
    rungs = rungs_of(path, names)
    if rungs is None:
        return NOT_MEASURED

    def kind(row):
        """The intensity, where the formula stands before it."""
        return row.get("work", "").rsplit(", ", 1)[-1]

    everything = [row for rung in rungs for row in rung["rows"]]
    works = list(dict.fromkeys(kind(row) for row in everything if row["seconds"]))
    lines = []
    for rung in rungs:
        cells = []
        for work in works:
            here = [row for row in rung["rows"] if row["seconds"] and kind(row) == work]
            row = min(here, key=lambda one: one["seconds"], default=None)
            cells.append("" if row is None else measured(row) + (
                f" ({row['label']})" if len(here) > 1 else ""))
        lines.append([rung["name"], *cells])
    return table(["", *works], lines)


def verdicts(path):
    """A line for each of them."""
    file = ROOT / path
    if not file.exists():
        return NOT_MEASURED
    answers = {True: "met", False: "not met", None: "not measured"}
    found = json.loads(file.read_text()).get("verdicts", [])
    if not found:
        raise Wrong(f"{path} has no verdicts")
    return table(["", "", "measured"],
                 [[verdict["criterion"], answers[verdict["met"]], verdict["measured"]]
                  for verdict in found])


NOT_TRACED = "*Not traced yet.*\n"


def link_to_picture(path, folder, pictures):
    """The picture of a trace, for a chapter in the folder; what to draw goes into `pictures`."""
    trace = ROOT / path
    if not trace.exists():
        return NOT_TRACED
    target = trace.parent.parent / "pictures" / f"{trace.stem}.svg"
    pictures[target] = picture.svg(trace)
    return (f"![What the kernel did when]({Path(os.path.relpath(target, folder)).as_posix()})\n\n"
            f"*{picture.caption(trace)}*\n")


def filled(text, folder=ROOT / "docs/tutorial", pictures=None):
    """A chapter as it should be, and in `pictures` what its pictures are, by their paths."""
    def replace(match):
        place, kind, path, names, other, file = match.groups()
        if other == "picture":
            body = link_to_picture(file, folder, {} if pictures is None else pictures)
        elif other == "verdicts":
            body = verdicts(file)
        else:
            make = {"code": code, "rows": rows, "best": best}[kind]
            body = make(path, [name.strip() for name in names.split(",")])
        return f"<!-- {place} -->\n{body}<!-- end -->"

    return PLACE.sub(replace, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs/tutorial")
    args = parser.parse_args()
    stale, pictures = [], {}
    for chapter in sorted(args.folder.rglob("*.md")):
        before = chapter.read_text()
        name = str(chapter.relative_to(args.folder))
        try:
            after = filled(before, chapter.parent, pictures)
        except (Wrong, OSError, KeyError, TypeError, ValueError) as error:
            sys.exit(f"{name}: {error}")
        if after != before:
            stale.append(name)
            if not args.check:
                chapter.write_text(after)
    for path, drawn in sorted(pictures.items()):
        if not path.exists() or path.read_text() != drawn:
            stale.append(path.name)
            if not args.check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(drawn)
    if args.check and stale:
        sys.exit(f"not what tools/tutorial.py writes: {', '.join(stale)}")


if __name__ == "__main__":
    main()
