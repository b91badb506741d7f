"""What a stage in Python costs an item beyond its own work: python_stage.py [ITEMS].

The same pipelines with stages that do nothing; the time an item, over all items.
"""

import statistics
import sys
import time

import penstock


def seconds_per_item(build, items, repeats=7):
    pipeline = penstock.Pipeline("cpu", depth=4)
    build(pipeline)
    pipeline.run(items // 10)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        pipeline.run(items)
        times.append((time.perf_counter() - begin) / items)
    return statistics.median(times)


def empty(pipeline):
    pipeline.host_stage("empty", lambda item: None)


def with_slot(pipeline):
    ring = pipeline.ring("ring", shape=1024, dtype="f32")
    pipeline.host_stage("slot", lambda item: item.slot(ring), uses=ring)


def with_numpy(pipeline):
    ring = pipeline.ring("ring", shape=1024, dtype="f32")
    pipeline.host_stage("numpy", lambda item: item.slot(ring).numpy(), uses=ring)


def two_stages(pipeline):
    ring = pipeline.ring("ring", shape=1024, dtype="f32")
    first = pipeline.host_stage("first", lambda item: item.slot(ring), uses=ring)
    pipeline.host_stage("second", lambda item: item.slot(ring), after=first, uses=ring)


def main():
    items = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    for build in (empty, with_slot, with_numpy, two_stages):
        print(f"{build.__name__:<12}{seconds_per_item(build, items) * 1e6:8.2f} us an item")


if __name__ == "__main__":
    main()
