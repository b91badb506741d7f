"""Measures the cost of Python: importing the package, and one item of a stage that does nothing.

    python3 bench/python.py --output bench/results/python.json
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import penstock
from penstock.bench import _results

ITEMS, REPEATS = 20_000, 7


def python_seconds(code):
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin


def import_seconds():
    """The import alone: interleaved runs with and without it, and their difference."""
    pairs = [(python_seconds("import penstock"), python_seconds("pass")) for _ in range(11)]
    return statistics.median(ours - bare for ours, bare in pairs)


class Stages:
    """Pipelines whose stages do nothing but count their calls."""

    def __init__(self):
        self.calls = 0

    def seconds_per_item(self, build):
        pipeline = penstock.Pipeline("cpu", depth=4)
        stages = build(pipeline, self)
        pipeline.run(ITEMS // 10)
        times = []
        for _ in range(REPEATS):
            self.calls = 0
            begin = time.perf_counter()
            pipeline.run(ITEMS)
            times.append((time.perf_counter() - begin) / ITEMS)
            if self.calls != stages * ITEMS:
                raise RuntimeError(f"expected {stages * ITEMS} calls, got {self.calls}")
        return statistics.median(times)


def empty(pipeline, stages):
    def work(item):
        stages.calls += 1

    pipeline.host_stage("empty", work)
    return 1


def with_slot(pipeline, stages):
    ring = pipeline.ring("ring", shape=1024, dtype="f32")

    def work(item):
        stages.calls += 1
        item.slot(ring)

    pipeline.host_stage("slot", work, uses=ring)
    return 1


def with_numpy(pipeline, stages):
    ring = pipeline.ring("ring", shape=1024, dtype="f32")

    def work(item):
        stages.calls += 1
        item.slot(ring).numpy()

    pipeline.host_stage("numpy", work, uses=ring)
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="results file to write")
    output = parser.parse_args().output
    device = penstock.Device.cpu()
    results = _results.document("python", device, penstock.limits(device, quick=True), 0, {})

    def add(case, seconds, what):
        print(f"{case:<12}{seconds * 1e6:12.2f} us {what}")
        results["cases"].append({
            "case": case, "params": {"items": ITEMS}, "correct": True, "max_error": 0,
            "tolerance": 0, "ours": {"call_us": seconds * 1e6}, "peer": {},
            "metrics": {"what": what}})

    add("import", import_seconds(), "for the import, beyond starting Python")
    for build in (empty, with_slot, with_numpy):
        add(build.__name__, Stages().seconds_per_item(build), "per item of one stage")
    if output:
        _results.write(output, results)


if __name__ == "__main__":
    main()
