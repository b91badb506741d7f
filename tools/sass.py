#!/usr/bin/env python3
"""Checks that the machine code of every rung holds the instructions that it teaches, and none that
it is there to do without.

sass.py --penstock PROGRAM --objects FILE [--if-possible] LADDER...
The program says what each rung of a ladder holds; FILE has a line 'LADDER/FILE.cu OBJECT' for every
rung. The code for the newest GPU in an object counts. Exits with 77, "skipped", where there is no
cuobjdump, or with 0 if --if-possible is given; `scripts/setup.sh` installs one.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = 77
ARCHITECTURE = re.compile(r"\.sm_(\d+)([a-z]?)\.cubin")
LINE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P[T\d]+\s+)?([A-Z][A-Za-z0-9_.]*)")


def find_cuobjdump(root):
    """The one on the path, else the one of the checks' Python environment; it needs nvdisasm, which
    it finds beside itself."""
    found = shutil.which("cuobjdump")
    if found and shutil.which("nvdisasm"):
        return found
    environment = root / "build/venv/lib"
    packaged = sorted(environment.glob("python3*/site-packages/nvidia/*/bin/cuobjdump"))
    return str(packaged[-1]) if packaged else None


def newest_architecture(listing):
    """Of the machine code that cuobjdump --list-elf names."""
    found = ARCHITECTURE.findall(listing)
    if not found:
        return None
    number, letter = max(found, key=lambda pair: (int(pair[0]), pair[1]))
    return f"sm_{number}{letter}"


def instructions(disassembly):
    """Every instruction's name with its modifiers, once. Kernels that read the clock are left out:
    they are others' with the trace switched on, whose records are loads and stores."""
    kernels = re.split(r"^\s*Function :", disassembly, flags=re.MULTILINE)
    return {match.group(1) for kernel in kernels if "SR_CLOCK" not in kernel
            for line in kernel.splitlines() if (match := LINE.match(line))}


def is_a(instruction, pattern):
    """Whether LDG.E.EF.128 is a LDG.128: the name, and the modifiers in their order."""
    name, *modifiers = instruction.split(".")
    wanted, *others = pattern.split(".")
    rest = iter(modifiers)
    return name == wanted and all(other in rest for other in others)


def faults(rung, held):
    """What is wrong with the machine code of a rung, in words."""
    for pattern in rung["machine"]["holds"]:
        if not any(is_a(instruction, pattern) for instruction in held):
            yield f"teaches {pattern}, and has none"
    for pattern in rung["machine"]["lacks"]:
        for instruction in sorted(held):
            if is_a(instruction, pattern):
                yield f"does without {pattern}, and has {instruction}"


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def held_by(cuobjdump, listed):
    architecture = newest_architecture(output_of(cuobjdump, "--list-elf", listed))
    if architecture is None:
        sys.exit(f"sass: {listed}: holds no machine code")
    return instructions(output_of(cuobjdump, "--dump-sass", "--gpu-architecture", architecture,
                                  listed))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--penstock", required=True)
    parser.add_argument("--objects", type=Path, required=True)
    parser.add_argument("--if-possible", action="store_true")
    parser.add_argument("ladders", nargs="+", metavar="LADDER")
    args = parser.parse_args()
    cuobjdump = find_cuobjdump(ROOT)
    if cuobjdump is None:
        print("sass: skipped, there is no cuobjdump; scripts/setup.sh installs one")
        return 0 if args.if_possible else SKIPPED
    objects = dict(line.split(maxsplit=1) for line in args.objects.read_text().splitlines() if line)

    wrong = 0
    for ladder in args.ladders:
        rungs = json.loads(output_of(args.penstock, "ladder", ladder, "--list", "--json"))["rungs"]
        if not rungs:
            sys.exit(f"sass: the ladder '{ladder}' has no rungs in {args.penstock}")
        for rung in (rung for rung in rungs if "machine" in rung):
            where = f"{ladder}/{rung['file']}"
            if not os.path.isfile(objects.get(where, "")):
                sys.exit(f"sass: no object of {where} was built")
            found = list(faults(rung, held_by(cuobjdump, objects[where])))
            for fault in found:
                print(f"examples/{where}: {fault}")
            wrong += len(found)
            if not found:
                print(f"{where}: {' '.join(rung['machine']['holds'])}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
