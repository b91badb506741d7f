#!/usr/bin/env python3
"""Writes docs/results.md from every results file, and tables into pages: results.py [--check]

A page says where: the table of bench/results/NAME.json stands between the lines

    <!-- results of NAME -->
    <!-- end of results -->
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# Results

Written by `tools/results.py` from `bench/results/`, where `make gpu-bench` puts what it measures. A
result that was not checked in its run is not there. The floor is the limit that was measured in the
same run; ours and the peers ran by turns in one process. Times are the GPU's own where it was timed
alone, else those of a call until its work was done. Host: what a call takes of the host where many
follow each other. DRAM: the share of its peak that ncu counted.
"""


PLACE = re.compile(r"(<!-- results of ([\w-]+) -->\n).*?(<!-- end of results -->\n)", re.DOTALL)


class Unreadable(Exception):
    pass


def read(path):
    try:
        document = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Unreadable(f"{path}: expected a results file, {error}") from None
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise Unreadable(f"{path}: expected an object of schema 1")
    if not any(isinstance(document.get(part), list) for part in ("cases", "rungs")):
        raise Unreadable(f"{path}: expected a list of cases or of rungs")
    return document


def shown_us(us):
    if us is None:
        return "–"
    for unit, scale in (("µs", 1), ("ms", 1e3)):
        if us < 1e3 * scale:
            return f"{us / scale:.4g} {unit}"
    return f"{us / 1e6:.4g} s"


def percent(share):
    return "–" if share is None else f"{100 * share:.1f} %"


def times(value, digits=3):
    return "–" if value is None else f"{value:.{digits}f}"


def judged_us(given):
    """The time that a case is judged by: the GPU's own where it is known, else the call's."""
    return None if given is None else given.get("gpu_us", given.get("call_us"))


def table(columns, rows):
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in (columns, *rows)]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    lines.insert(1, "|---|" + "---:|" * (len(columns) - 1))
    return "\n".join(lines)


def host(case):
    return shown_us(case.get("metrics", {}).get("enqueue_us"))


def of_peak(counters, unit):
    share = counters.get(f"{unit}__throughput.avg.pct_of_peak_sustained_elapsed")
    return percent(None if share is None else share / 100)


def dram(case):
    return of_peak(case.get("metrics", {}).get("counters", {}), "dram")


def of_cases(document):
    peers = list(document["peers"])
    columns = ["case", "ours", "floor", "floor / ours"]
    for peer in peers:
        columns += [peer, f"{peer} / ours"]
    # What some benchmarks measure besides times.
    more = {title: get for title, get in (("host", host), ("DRAM", dram))
            if any(get(case) != "–" for case in document["cases"])}
    columns += more
    rows = []
    for case in document["cases"]:
        ours, floor = judged_us(case["ours"]), case.get("floor_us")
        row = [case["case"], shown_us(ours), shown_us(floor),
               percent(floor / ours if floor and ours else None)]
        for peer in peers:
            time = judged_us(case["peer"].get(peer))
            row += [shown_us(time), times(time / ours if time and ours else None)]
        rows.append(row + [get(case) for get in more.values()])
    parts = [table(columns, rows)]
    if peers:
        parts.append("Peers: " + ", ".join(f"{peer} {document['peers'][peer]}" for peer in peers)
                     + ".")
    return parts


def of_profiles(document):
    """What ncu counted, a row a kernel; times are of a call."""
    units = {"DRAM": "dram", "L1": "l1tex", "SMs": "sm"}
    rows = []
    for case in document["cases"]:
        for kernel, counters in case["profiles"].items():
            seconds, read, written = (counters[metric] / document["calls"] for metric in (
                "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"))
            rows.append([f"{case['case']}: {kernel}", shown_us(seconds * 1e6),
                         f"{read * 1e-6:.2f} MB", f"{written * 1e-6:.2f} MB",
                         percent(counters["of_ceiling"]),
                         *(of_peak(counters, unit) for unit in units.values())])
    return [table(["kernel", "time", "DRAM read", "written", "of a device copy's rate", *units],
                  rows),
            "By ncu, of a call. The last columns are shares of the hardware's peaks."]


def of_rungs(document):
    rows = [[f"{rung['name']}: {row['label']}", shown_us(row["seconds"] * 1e6),
             times(row["speedup"], 2), percent(row["hidden"]), percent(row["efficiency"])]
            for rung in document["rungs"] for row in rung["rows"]]
    return [table(["rung", "time", "speed-up", "hidden", "floor / time"], rows),
            "Speed-up is against the first row of the same work; hidden is the share, of the time "
            "that overlap can hide, that it hid."]


def has_library(document):
    return any("library_seconds" in row for rung in document["rungs"] for row in rung["rows"])


def of_works(document):
    """A ladder of several works, whose rungs were timed by turns with the library's own operator."""
    rungs = {rung["name"]: [row for row in rung["rows"] if row["seconds"]]
             for rung in document["rungs"]}
    works = list(dict.fromkeys(row["work"] for rows in rungs.values() for row in rows))
    lines = []
    for work in works:
        here = {name: [row for row in rows if row["work"] == work] for name, rows in rungs.items()}
        cells = [shown_us(min((row["seconds"] * 1e6 for row in rows), default=None))
                 for rows in here.values()]
        beside = [row["seconds"] / row["library_seconds"]
                  for name, rows in here.items() if name != "library" for row in rows]
        limit = [row["seconds"] * row["efficiency"] * 1e6 for row in here["library"]]
        lines.append([work, *cells, shown_us(min(limit, default=None)),
                      times(min(beside, default=None), 2)])
    return [table(["work", *rungs, "cudaMemcpy", "best rung / library"], lines),
            "Times of the best row of each rung. The last column is of times taken by turns: from 1 "
            "on, no rung is faster than the library."]


def stamp(document):
    machine = document["machine"]
    where = machine.get("gpu", machine.get("model"))
    if where in (None, "", "none"):
        where = machine["cpu"]
    driver = f", driver {machine['driver']}" if machine.get("driver") else ""
    line = f"{where}{driver}, CUDA {machine['cuda']}, {document['date']}, commit {document['commit']}."
    rates = [(key.removesuffix("_GBps").replace("_", " "), rate)
             for key, rate in machine.get("ceilings", {}).items() if key.endswith("_GBps")]
    if rates:
        line += " Ceilings: " + ", ".join(f"{name} {rate:.4g} GB/s" for name, rate in rates) + "."
    return line


def body(path, document):
    try:
        if "rungs" in document:
            parts = of_works(document) if has_library(document) else of_rungs(document)
        else:
            parts = of_profiles(document) if "calls" in document else of_cases(document)
        again = f"Again: `scripts/gpu_bench.sh {path.stem}`."
        return "\n\n".join([stamp(document), *parts, again])
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise Unreadable(f"{path}: not as results are: {type(error).__name__} {error}") from None


def render(folder):
    sections = [f"## {path.stem}\n\n{body(path, read(path))}"
                for path in sorted(folder.glob("*.json"))]
    return "\n\n".join([HEAD.rstrip(), *sections]) + "\n"


def filled(text, folder):
    """A page with the tables that it wants."""
    def table_of(place):
        path = folder / f"{place[2]}.json"
        return f"{place[1]}\n{body(path, read(path))}\n\n{place[3]}"

    return PLACE.sub(table_of, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "results.md")
    parser.add_argument("--pages", type=Path, default=ROOT / "docs", help="folder of such pages")
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    args = parser.parse_args()
    try:
        made = {args.output: render(args.results)}
        for page in sorted(args.pages.rglob("*.md")):
            text = page.read_text()
            if PLACE.search(text):
                made[page] = filled(text, args.results)
    except Unreadable as error:
        sys.exit(f"results: {error}")
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        if args.check:
            print(f"results: {path.name} is stale: run tools/results.py and commit it")
        else:
            path.write_text(made[path])
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
