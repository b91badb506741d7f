#!/usr/bin/env python3
"""Writes what scripts/first_minutes.sh measured, with the machine, and prints it.

first_minutes.py FILE LOAD [TARGET INSTALL_SECONDS SECONDS]...
"""

import datetime
import json
import platform
import subprocess
import sys
from pathlib import Path

IDLE = 0.5  # load before the first run, in cores


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


def document(load, rows):
    cases = [{"case": f"make {target}", "ours": {"call_us": round(1e6 * float(took))}, "peer": {},
              "metrics": {"install_us": round(1e6 * float(install))}} for target, install, took in rows]
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
    if not rest or len(rest) % 3:
        sys.exit(__doc__)
    result = document(load, list(zip(rest[::3], rest[1::3], rest[2::3])))
    Path(path).write_text(json.dumps(result, indent=2) + "\n")
    print("\n".join(text(result)))


if __name__ == "__main__":
    main(sys.argv[1:])
