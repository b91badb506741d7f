#!/usr/bin/env python3
"""Runs the benchmarks, all or those named, and writes their results files.

A benchmark whose results were measured on the same sources is skipped. With --budget the run stops in
time, and the same command continues where it stopped: finished parts are kept in build/bench.

    scripts/gpu_bench.sh                             everything that is not current, unmeasured first
    scripts/gpu_bench.sh --list                      what there is, and which results are stale
    scripts/gpu_bench.sh --budget 540                nine minutes of it; run it again to continue
    scripts/gpu_bench.sh gemm overlap --again        these two, although their results are current
    scripts/gpu_bench.sh --budget 540 --pack r.tgz   also packs all results so far into one file
    scripts/gpu_bench.sh --import r.tgz              takes such a file, or a folder, into the tree

Exit codes: 0 everything is current, 1 a benchmark failed, 2 wrong usage, 3 the budget is used up.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import benchmarks

DONE, FAILED, MISUSED, UNFINISHED = 0, 1, 2, 3
GUESS = 120  # seconds of a part that never ran


@dataclass(frozen=True)
class Part:
    benchmark: benchmarks.Benchmark
    number: int
    count: int
    cases: tuple[str, ...] = ()

    @property
    def name(self):
        return self.benchmark.name if self.count == 1 else (
            f"{self.benchmark.name}, part {self.number} of {self.count}")


def device_of(operator):
    """The option that chooses a device, where it is not the first GPU."""
    return ["--device", "cpu"] if operator in benchmarks.ON_CPU else []


class Bench:
    """The benchmarks of one tree, and what was done of them there."""

    def __init__(self, root, output=None, commit=None, one_commit=False):
        self.root = root
        self.results = root / "bench/results"
        self.output = output or self.results
        self.commit = commit
        self.one_commit = one_commit  # results of other commits count as stale
        self.work = root / "build/bench"
        self.python = os.environ.get("PENSTOCK_PYTHON", "python3")
        self.environment = dict(os.environ)
        package = root / "build/gpu/package"  # by scripts/python_module.sh; else as installed
        if package.is_dir():
            known = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
            self.environment["PYTHONPATH"] = os.pathsep.join([str(package), *known])
        if (root / benchmarks.CUB_LIBRARY).is_file():
            self.environment.setdefault("PENSTOCK_CUB", str(root / benchmarks.CUB_LIBRARY))
        self.all = benchmarks.every(root)
        self._progress = self.work / "progress.json"
        self._packages = {}  # whether the interpreter has them
        self.done = {}
        if self._progress.is_file():
            self.done = json.loads(self._progress.read_text())

    def state(self, name):
        commit = self.commit if self.one_commit else None
        found = [benchmarks.state(self.all[name], folder, self.root, commit)
                 for folder in (self.results, self.output, self.work / "results")]
        return next((state for state in ("current", "stale") if state in found), "missing")

    def obstacle(self, name):
        """Why a benchmark cannot run here; empty if it can."""
        benchmark = self.all[name]
        for program in benchmark.programs:
            if shutil.which(program) is None:
                return f"{program} is not on PATH"
        for variable in benchmark.variables:
            if variable not in self.environment:
                return f"the environment variable {variable} is not set"
        for package in benchmark.packages:
            if not self.has_package(package):
                how = "pip install ." if package == "penstock" else f"pip install {package}"
                return f"{self.python} has no package {package} ({how})"
        program = self.root / benchmarks.BIN / (
            f"bench_{name}" if benchmark.kind == "program" else "penstock")
        if benchmark.kind != "script" and not program.is_file():
            return f"{program.relative_to(self.root)} is not built"
        return ""

    def has_package(self, name):
        if name not in self._packages:
            found = subprocess.run([self.python, "-c", f"import {name}"], capture_output=True,
                                   env=self.environment)
            self._packages[name] = found.returncode == 0
        return self._packages[name]

    def parts(self, name):
        benchmark = self.all[name]
        if benchmark.kind != "operator":
            return [Part(benchmark, 1, 1)]
        listed = subprocess.run([self.program(), "bench", name, "--list", "--json", *device_of(name)],
                                capture_output=True, text=True, env=self.environment)
        if listed.returncode != 0:
            raise RuntimeError(f"{name}: cannot list its cases: {listed.stderr.strip()}")
        cases = list(json.loads(listed.stdout)[name]["cases"])
        size = benchmarks.LARGER_PARTS.get(name, benchmarks.CASES_PER_PART)
        groups = [tuple(cases[i:i + size]) for i in range(0, len(cases), size)]
        return [Part(benchmark, number, len(groups), group)
                for number, group in enumerate(groups, 1)]

    def program(self):
        return self.root / benchmarks.BIN / "penstock"

    def file_of(self, part):
        return self.work / "parts" / f"{part.benchmark.name}.{part.number}.json"

    def is_done(self, part):
        kept = self.done.get(part.name, {})
        return (self.file_of(part).is_file()
                and (not self.one_commit or kept.get("commit") == self.commit)
                and kept.get("sources") == part.benchmark.sources_hash(self.root))

    def expected_seconds(self, part):
        """As it took here before; else as the last results say."""
        if part.name in self.done:
            return self.done[part.name]["seconds"]
        path = self.results / f"{part.benchmark.name}.json"
        known = json.loads(path.read_text()).get("seconds") if path.is_file() else None
        return GUESS if known is None else known / part.count

    def run(self, part, timeout=None):
        """Runs one part; raises subprocess.TimeoutExpired or RuntimeError if it does not end well."""
        target = self.file_of(part)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        command, folder, printed = self.command(part, target)
        folder.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        try:
            with open(target if printed else os.devnull, "wb") as out:
                # In a session of its own, so that a timeout ends all processes of the benchmark.
                process = subprocess.Popen(command, cwd=folder, start_new_session=True,
                                           env=self.environment, stdout=out if printed else None)
                try:
                    status = process.wait(timeout)
                except BaseException:
                    os.killpg(process.pid, 9)
                    process.wait()
                    raise
            if status != 0 or not target.is_file():
                raise RuntimeError(f"{part.name}: exit status {status}")
            if part.benchmark.kind == "ladder":
                self.cut_traces(part)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        self.done[part.name] = {"sources": part.benchmark.sources_hash(self.root),
                                "commit": self.commit,
                                "seconds": round(time.monotonic() - begin, 1)}
        self._progress.write_text(json.dumps(self.done, indent=1) + "\n")

    def command(self, part, target):
        """The command, its folder, and whether it prints the results."""
        name, root = part.benchmark.name, self.root
        match part.benchmark.kind:
            case "program":
                return [root / benchmarks.BIN / f"bench_{name}", "--output", target], root, False
            case "script":
                return [self.python, f"bench/{name}.py", "--output", target], root, False
            case "operator":
                # One seed for all parts.
                seed = int(part.benchmark.sources_hash(root)[:8], 16)
                counters = ["--counters"] if name == "resample" and shutil.which("ncu") else []
                return [self.program(), "bench", name, "--output", target, "--seed", str(seed),
                        "--case", *part.cases, *counters, *device_of(name)], root, False
            case "ladder":
                ladder, more = name.removeprefix("ladder_"), []
                if ladder in ("copy", "gemm", "attention"):
                    shutil.rmtree(self.work / "raw_traces" / ladder, ignore_errors=True)
                    more = ["--trace", self.work / "raw_traces" / ladder]
                if ladder == "resample":
                    more = ["--all-shapes"]
                if ladder in benchmarks.COUNTED and shutil.which("ncu"):
                    more.append("--counters")
                return [self.program(), "ladder", ladder, *more, "--json"], root, True
            case "profiles":
                # The reports are left there, for Nsight Compute.
                operator = name.removesuffix("_profiles")
                kernels, cases = benchmarks.PROFILED[operator]
                named = [word for kernel in kernels for word in ("--kernel", kernel)]
                return [self.program(), "bench", operator, "--mode", "ncu", *named, "--case", *cases,
                        "--json"], root / "build/profiles", True

    def cut_traces(self, part):
        """Shortens the ladder's traces to what the tutorial's pictures show."""
        raw = self.work / "raw_traces" / part.benchmark.name.removeprefix("ladder_")
        files = sorted(raw.glob("*.json"))
        if files:
            (self.work / "traces").mkdir(parents=True, exist_ok=True)
            subprocess.run([sys.executable, self.root / "tools/picture.py", "cut", *files,
                            self.work / "traces"], check=True)

    def finish(self, parts):
        """Makes the results file of parts that are all done."""
        benchmark = parts[0].benchmark
        documents = [json.loads(self.file_of(part).read_text()) for part in parts]
        whole = documents[0]
        for more in documents[1:]:
            whole["cases"] += more["cases"]
            whole["peers"] |= {name: version for name, version in more["peers"].items()
                               if not version.startswith("absent") or name not in whole["peers"]}
            whole.setdefault("dropped", []).extend(more.get("dropped", []))
        if self.commit and whole.get("commit", "unknown") == "unknown":
            whole["commit"] = self.commit
        whole["sources"] = benchmark.sources_hash(self.root)
        whole["seconds"] = round(sum(self.done[part.name]["seconds"] for part in parts), 1)
        kept = self.work / "results" / f"{benchmark.name}.json"
        write(kept, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
        self.hand_out(kept)

    def hand_out(self, kept):
        self.output.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept, self.output / kept.name)
        traces = (self.root / "docs/tutorial/traces" if self.output == self.results
                  else self.output / "traces")
        ladder = kept.stem.removeprefix("ladder_")
        for trace in sorted((self.work / "traces").glob(f"{ladder}_*.json")):
            traces.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(trace, traces / trace.name)

    def pack(self, path):
        with tarfile.open(path, "w:gz") as archive:
            for folder in ("results", "traces"):
                for file in sorted((self.work / folder).glob("*.json")):
                    archive.add(file, f"{folder}/{file.name}")

    def take(self, source):
        """Copies results and traces from an archive or a folder into the tree; returns their names."""
        with tempfile.TemporaryDirectory() as scratch:
            if source.is_file():
                with tarfile.open(source) as archive:
                    archive.extractall(scratch, filter="data")
                source = Path(scratch)
            taken = []
            for file in sorted([*source.glob("*.json"), *source.glob("results/*.json")]):
                if file.stem in self.all and "schema" in json.loads(file.read_text()):
                    shutil.copyfile(file, self.results / file.name)
                    taken.append(file.stem)
            for file in sorted(source.glob("traces/*.json")):
                shutil.copyfile(file, self.root / "docs/tutorial/traces" / file.name)
        return taken


def write(path, text):
    """Replaces the file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.new")
    partial.write_text(text)
    os.replace(partial, path)


def listing(bench):
    lines = [("benchmark", "results", "seconds", "")]
    for name in bench.all:
        path = bench.results / f"{name}.json"
        document = json.loads(path.read_text()) if path.is_file() else {}
        about = f"commit {document['commit']}" if "commit" in document else ""
        lines.append((name, bench.state(name), str(document.get("seconds", "?")),
                      bench.obstacle(name) or about))
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in lines)


def run_all(bench, names, budget, again, explicit):
    """Runs what is not current; returns the exit code."""
    deadline = None if budget is None else time.monotonic() + budget
    failed, ran = [], False
    for name in names:
        if not again and bench.state(name) == "current":
            print(f"== {name}: current", flush=True)
            continue
        obstacle = bench.obstacle(name)
        if obstacle:
            print(f"== {name}: not run: {obstacle}", flush=True)
            failed += [name] if explicit else []
            continue
        try:
            parts = bench.parts(name)
            for part in parts:
                if bench.is_done(part) and not again:
                    continue
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and (left <= 0 or ran and bench.expected_seconds(part) > left):
                    print(f"The budget is used up before {part.name}: run the same command again to "
                          "continue.", flush=True)
                    return FAILED if failed else UNFINISHED
                print(f"== {part.name}", flush=True)
                bench.run(part, left)
                ran = True
            bench.finish(parts)
        except subprocess.TimeoutExpired:
            if ran:
                print(f"{part.name} did not end within the budget: run the same command again, and "
                      "it comes first.", flush=True)
                return FAILED if failed else UNFINISHED
            print(f"{part.name} takes longer than the budget of {budget:g} s", flush=True)
            failed.append(name)
            return FAILED
        except (RuntimeError, OSError, subprocess.CalledProcessError, KeyError,
                json.JSONDecodeError) as error:
            print(f"== {name}: failed: {error}", flush=True)
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return FAILED if failed else DONE


def make_pages(root):
    for tool in ("results", "tutorial"):
        subprocess.run([sys.executable, root / f"tools/{tool}.py"], check=True)


def main(words=None, root=benchmarks.ROOT):
    parser = argparse.ArgumentParser(prog="gpu_bench.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help="benchmarks; default: all")
    parser.add_argument("--list", action="store_true", help="show the benchmarks and run none")
    parser.add_argument("--stale", action="store_true",
                        help="say in one line which results are stale, and run none")
    parser.add_argument("--budget", metavar="SECONDS", type=float, help="stop within this time")
    parser.add_argument("--again", action="store_true", help="also run those that are current")
    parser.add_argument("--output", metavar="DIR", type=Path,
                        help="folder for the results; default: bench/results, and the pages follow")
    parser.add_argument("--pack", metavar="FILE", type=Path,
                        help="archive to write, with all results and traces measured here so far")
    parser.add_argument("--import", metavar="PATH", type=Path, dest="take",
                        help="archive or folder of results to copy into the tree; runs nothing")
    parser.add_argument("--commit", metavar="ID",
                        help="commit to note in the results if the programs do not know theirs")
    parser.add_argument("--one-commit", action="store_true",
                        help="results of other commits than --commit count as stale, although they "
                             "were measured on the same sources")
    args = parser.parse_intermixed_args(words)  # names may also follow options
    if args.one_commit and not args.commit:
        parser.error("--one-commit: expected --commit ID as well, got none")
    bench = Bench(root, args.output and args.output.resolve(), args.commit, args.one_commit)
    for name in args.names:
        if name not in bench.all:
            print(f"gpu_bench: NAME: expected one of {', '.join(bench.all)}, got {name!r}",
                  file=sys.stderr)
            return MISUSED
    if args.list:
        print(listing(bench))
        return DONE
    if args.stale:
        print(staleness(bench))
        return DONE
    if args.take:
        if not args.take.exists():
            print(f"gpu_bench: --import: expected an archive or a folder, got {args.take}",
                  file=sys.stderr)
            return MISUSED
        print(f"taken: {', '.join(bench.take(args.take)) or 'nothing'}")
        make_pages(root)
        return DONE
    # What was never measured comes first: a budget may not suffice for everything.
    names = args.names or sorted(bench.all, key=lambda name: bench.state(name) != "missing")
    code = run_all(bench, names, args.budget, args.again, bool(args.names))
    if args.pack:
        bench.pack(args.pack)
    if bench.output == bench.results:
        make_pages(root)
    return code


def staleness(bench):
    states = {name: benchmarks.state(benchmark, bench.results, bench.root)
              for name, benchmark in bench.all.items()}
    old = [name for name, state in states.items() if state != "current"]
    if not old:
        return "Results: all benchmarks were measured on these sources"
    return (f"Results: {len(old)} of {len(states)} benchmarks were measured on other sources: "
            f"{', '.join(old)}")


if __name__ == "__main__":
    sys.exit(main())
