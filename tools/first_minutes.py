#!/usr/bin/env python3
"""The parts of scripts/first_minutes.sh that measure and write.

first_minutes.py run LOG COMMAND...
    Runs a command on two cores, copies what it prints to LOG and to standard error, and prints the seconds that
    it took, and how many cores' worth of these two cores other programs used meanwhile.

first_minutes.py write FILE LOAD [TARGET INSTALL_SECONDS SECONDS OTHERS LOG]...
    Writes the times, with the machine, and prints them. Cases of FILE that were not measured this time stay,
    with their own date and commit. The times of phases are read from the LOG of a target. Writes nothing, and
    fails, if the machine was busy: LOAD is the load before the start, OTHERS what `run` printed.
"""

import datetime
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import MEASURED_ELSEWHERE

BUILDS = MEASURED_ELSEWHERE["first_minutes"]
CORES = 2
IDLE = 0.5  # load before the first run, in cores
OTHERS = 0.05 * CORES  # what other programs may use during a run, in cores
FIELDS = 5  # per target
PHASE = re.compile(r"== (.+): (\d+) s")  # as scripts/test.sh prints it
# What a case that stays keeps.
OF_A_RUN = ("date", "commit", "sources", "code_bytes", "machine", "load_before", "idle")


def busy_seconds(cores, stat=Path("/proc/stat")):
    """The time that these cores were not idle, since the machine was started."""
    times = {line.split()[0]: list(map(int, line.split()[1:])) for line in stat.read_text().splitlines()
             if line.startswith("cpu")}
    # user nice system idle iowait irq softirq steal, and guests, which are part of user and nice
    ticks = sum(sum(times[f"cpu{core}"][:8]) - sum(times[f"cpu{core}"][3:5]) for core in cores)
    return ticks / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """The CPU time of this process and of the descendants that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def run(log, *command):
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, cores)  # the command's as well
    begin, busy, own = time.monotonic(), busy_seconds(cores), own_seconds()
    with open(log, "wb") as copy, subprocess.Popen(command, stdout=subprocess.PIPE,
                                                   stderr=subprocess.STDOUT) as process:
        while part := process.stdout.read1():
            copy.write(part)
            sys.stderr.buffer.write(part)
            sys.stderr.buffer.flush()
    if process.returncode:
        sys.exit(process.returncode)
    seconds = time.monotonic() - begin
    others = (busy_seconds(cores) - busy - (own_seconds() - own)) / seconds
    print(f"{seconds:.3f} {max(others, 0):.3f}")


def disturbance(load, cases):
    """Why times of this run do not count; empty if they do."""
    reasons = [f"load {load} before the start"] if float(load) > IDLE else []
    reasons += [f"other programs used {case['metrics']['others_cores']:.2f} of {CORES} cores during {case['case']}"
                for case in cases if case["metrics"]["others_cores"] > OTHERS]
    return "; ".join(reasons)


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
        "cores": CORES,
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


def measured(target, install, took, others, log):
    return {"case": f"make {target}", "ours": {"call_us": round(1e6 * float(took))}, "peer": {},
            "metrics": {"install_us": round(1e6 * float(install)), "others_cores": float(others),
                        "phases_us": phases(log)}}


def document(load, cases):
    return {
        "schema": 1,
        "name": "first_minutes",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": first_line("git", "rev-parse", "--short=12", "HEAD"),
        "sources": BUILDS.sources_hash(),
        "code_bytes": BUILDS.code_bytes(),
        "machine": machine(),
        "load_before": float(load),
        "idle": True,
        "command": "scripts/first_minutes.sh",
        "peers": {},
        "cases": cases,
    }


def merged(old, new):
    """`new` with the cases of `old` that it lacks, which name the run that they are from."""
    names = {case["case"] for case in new["cases"]}
    kept = [{field: old.get(field) for field in OF_A_RUN if old.get(field) != new[field]} | case
            for case in old["cases"] if case["case"] not in names]
    return new | {"cases": sorted(kept + new["cases"], key=lambda case: case["case"])}


def text(result):
    where = result["machine"]
    yield f"{where['system']}, {where['cpu']}, {where['cores']} cores; {where['compiler']}"
    for case in result["cases"]:
        yield (f"{case['case']}: {1e-6 * case['ours']['call_us']:.0f} s from an empty clone with an "
               "empty compiler cache; installing packages before it: "
               f"{1e-6 * case['metrics']['install_us']:.0f} s")


def write(path, load, *rest):
    if not rest or len(rest) % FIELDS:
        sys.exit(__doc__)
    result = document(load, [measured(*rest[first:first + FIELDS])
                             for first in range(0, len(rest), FIELDS)])
    path, shown = Path(path), "\n".join(text(result))
    if reason := disturbance(load, result["cases"]):
        sys.exit(f"{shown}\nThe machine was busy, so that these times are too long ({reason}). They are not recorded.")
    if path.is_file():
        result = merged(json.loads(path.read_text()), result)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(shown)


def main(arguments):
    commands = {"run": run, "write": write}
    if len(arguments) < 3 or arguments[0] not in commands:
        sys.exit(__doc__)
    commands[arguments[0]](*arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
