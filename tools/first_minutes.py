#!/usr/bin/env python3
"""Writes what scripts/first_minutes.sh measured, with the machine, and prints it. Cases of FILE that were
not measured this time stay, with their own date and commit.

first_minutes.py FILE LOAD [TARGET INSTALL_SECONDS SECONDS LOG]...

LOG is what the target printed; the times of its phases are read from it.
"""

import datetime
import json
import platform
import re
import subprocess
import sys
from pathlib import Path

IDLE = 0.5  # load before the first run, in cores
FIELDS = 4  # per target
PHASE = re.compile(r"== (.+): (\d+) s")  # as scripts/test.sh prints it
OF_A_RUN = ("date", "commit", "machine", "load_before", "idle")  # what a case that stays keeps


def first_line(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True,
                              check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "none"


def field(path, name):
    """The value of `name` in a file of /proc or /etc with lines 'name: value' or 'name=value'."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.replace("=", ":", 1).partition(":")
        if key.strip() == name:
            return value.strip().strip('"')
    return "unknown"


def machine():
    return {
        "system": field("/etc/os-release", "PRETTY_NAME"),
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": 2,
        "memory": field("/proc/meminfo", "MemTotal"),
        "compiler": first_line("c++", "--version"),
        "cuda": first_line("sh", "-c", "nvcc --version | sed -n 's/.*release \\([0-9.]*\\).*/\\1/p'"),
        "gpu": first_line("nvidia-smi", "-L"),
        "python": platform.python_version(),
        "ceilings": {},
    }


def phases(log):
    """The phases that a target printed, in order, in microseconds."""
    lines = Path(log).read_text(errors="replace").splitlines()
    return {phase[1]: 1_000_000 * int(phase[2]) for phase in map(PHASE.fullmatch, lines) if phase}


def measured(target, install, took, log):
    return {"case": f"make {target}", "ours": {"call_us": round(1e6 * float(took))}, "peer": {},
            "metrics": {"install_us": round(1e6 * float(install)), "phases_us": phases(log)}}


def document(load, cases):
    return {
        "schema": 1,
        "name": "first_minutes",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": first_line("git", "rev-parse", "--short=12", "HEAD"),
        "machine": machine(),
        "load_before": float(load),
        "idle": float(load) <= IDLE,
        "command": "scripts/first_minutes.sh",
        "peers": {},
        "cases": cases,
    }


def merged(old, new):
    """`new` with the cases of `old` that it lacks, which name the run that they are from."""
    names = {case["case"] for case in new["cases"]}
    kept = [{field: old[field] for field in OF_A_RUN if old[field] != new[field]} | case
            for case in old["cases"] if case["case"] not in names]
    return new | {"cases": sorted(kept + new["cases"], key=lambda case: case["case"])}


def text(result):
    where = result["machine"]
    yield f"{where['system']}, {where['cpu']}, {where['cores']} cores; {where['compiler']}"
    for case in result["cases"]:
        yield (f"{case['case']}: {1e-6 * case['ours']['call_us']:.0f} s from an empty clone with an "
               "empty compiler cache; installing packages before it: "
               f"{1e-6 * case['metrics']['install_us']:.0f} s")
    if not result["idle"]:
        yield (f"The machine was busy (load {result['load_before']} before the start): "
               "these times are too long.")


def main(arguments):
    path, load, *rest = arguments
    if not rest or len(rest) % FIELDS:
        sys.exit(__doc__)
    result = document(load, [measured(*rest[first:first + FIELDS])
                             for first in range(0, len(rest), FIELDS)])
    path, shown = Path(path), "\n".join(text(result))
    if path.is_file():
        result = merged(json.loads(path.read_text()), result)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(shown)


if __name__ == "__main__":
    main(sys.argv[1:])
