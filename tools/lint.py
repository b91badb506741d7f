#!/usr/bin/env python3
"""Runs clang-tidy over the host sources of one or more build folders.

lint.py --clang-tidy PROGRAM --stamps FOLDER [--quick] BUILD...
A source is linted with the first build that compiles it. One that was clean is not read again
until it, a header that it includes, its compile command or the configuration changes.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def ninja_dependencies(build):
    """Object -> headers, as the last build of the folder recorded them."""
    listed = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True,
                            check=True).stdout
    found, current = {}, []
    for line in listed.splitlines():
        if line.startswith(" "):
            current.append(line.strip())
        elif ": #deps" in line:
            current = found.setdefault(line.split(": #deps")[0], [])
    return found


def entries(builds):
    """(source, build, command, headers) for every host source, each source once."""
    seen = set()
    for build in builds:
        dependencies = ninja_dependencies(build)
        for entry in json.loads((build / "compile_commands.json").read_text()):
            source = Path(entry["file"])
            ours = source.is_relative_to(ROOT) and not source.is_relative_to(build.resolve())
            if source.suffix != ".cpp" or source in seen or not ours:
                continue
            seen.add(source)
            headers = dependencies.get(entry.get("output", ""), [])
            yield source, build, entry["command"], headers


def stamp_of(source, build, command, headers, fixed):
    digest = hashlib.sha256(fixed)
    digest.update(command.encode())
    for name in sorted({str(source), *(os.path.join(build, h) for h in headers)}):
        path = Path(name).resolve()
        if path.is_relative_to(ROOT) and path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def lint(command, source, build):
    done = subprocess.run([*command, "-p", build, "--quiet", source], capture_output=True,
                          text=True)
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clang-tidy", required=True)
    parser.add_argument("--stamps", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true",
                        help="without the tests, and without following paths through the code")
    parser.add_argument("builds", type=Path, nargs="+")
    args = parser.parse_args()

    version = subprocess.run([args.clang_tidy, "--version"], capture_output=True, check=True).stdout
    command = [args.clang_tidy, *(["--checks=-clang-analyzer-*"] if args.quick else [])]
    fixed = version + b"".join(p.read_bytes() for p in sorted(ROOT.rglob(".clang-tidy")))
    args.stamps.mkdir(parents=True, exist_ok=True)
    kept = {path.name for path in args.stamps.iterdir()}
    work = [(stamp_of(*entry, fixed), *entry[:2]) for entry in entries(args.builds)]
    due = [item for item in work if item[0] not in kept
           and not (args.quick and item[1].is_relative_to(ROOT / "tests"))]

    failed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda item: lint(command, *item[1:]), due)
        for (stamp, source, _), (status, output) in zip(due, results):
            if status == 0:
                (args.stamps / stamp).touch()
            else:
                failed += 1
                print(f"{source.relative_to(ROOT)}:\n{output}")
    for stale in kept - {stamp for stamp, *_ in work}:
        (args.stamps / stale).unlink()
    print(f"lint: {len(due) - failed} of {len(due)} changed sources are clean")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
