#!/usr/bin/env python3
"""Gathers what ptxas_guard recorded beside the library's device objects into docs/ledger.txt.

ledger.py OBJECTS TOOLKIT [--output FILE] [--check]
OBJECTS is a file that lists the objects, one a line; TOOLKIT is the CUDA toolkit's version.
"""

import argparse
import difflib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("registers", "smem", "stack", "spill_stores", "spill_loads", "barriers")


def toolkit_line(toolkit):
    return f"# As ptxas {toolkit} reports them; sizes in bytes, shared memory is the static part."


def needs(kernel):
    return tuple(kernel[column] for column in COLUMNS)


def read_records(objects):
    for name in objects.read_text().split():
        record = Path(f"{name}.ptxas.json")
        if not record.is_file():
            sys.exit(f"ledger: {record} is missing: build the library with CUDA first")
        yield json.loads(record.read_text())


def render(records, toolkit):
    lines = [
        "# What every kernel of the library needs.",
        "# Written by: cmake --build --preset gpu --target ledger",
        toolkit_line(toolkit),
    ]
    for record in sorted(records, key=lambda r: r["source"]):
        if not record["kernels"]:
            continue
        lines += ["", record["source"]]
        lines.append(f"  {'arch':<8}" + "".join(f"{c:>14}" for c in COLUMNS) + "  kernel")
        for k in sorted(record["kernels"], key=lambda k: (k["kernel"], k["arch"], needs(k))):
            numbers = "".join(f"{value:>14}" for value in needs(k))
            lines.append(f"  {k['arch']:<8}{numbers}  {k['kernel']}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("objects", type=Path)
    parser.add_argument("toolkit")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "ledger.txt")
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    args = parser.parse_args()

    made = render(read_records(args.objects), args.toolkit)
    if not args.check:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(made)
        return 0

    kept = args.output.read_text() if args.output.is_file() else ""
    if kept and toolkit_line(args.toolkit) not in kept.splitlines():
        print(f"ledger: not compared: {args.output.name} was not made with ptxas {args.toolkit}")
        return 0
    difference = list(difflib.unified_diff(
        kept.splitlines(keepends=True), made.splitlines(keepends=True), "committed", "built"))
    if difference:
        sys.stdout.writelines(difference)
        print("ledger: the kernels' needs changed; if that is intended, run the target 'ledger', "
              "commit docs/ledger.txt and say why")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
