"""Reports to show: one like a user's, and one that is all corner cases."""

import math
import random

MS = 1_000_000
KIB, MIB = 2**10, 2**20


def lane(engine, intervals, stage=None, rows=None):
    """A lane from (item, begin, length), coded as the library codes it."""
    begins = [begin for _, begin, _ in intervals]
    return {
        **({"rows": rows} if rows else {}),
        "engine": engine,
        "stage": stage or engine,
        "items": [item for item, _, _ in intervals],
        "begin_ns": [begin - before for before, begin in zip([0, *begins], begins)],
        "length_ns": [length for _, _, length in intervals],
    }


def busy_ns(one):
    """The length of the union of a lane's intervals."""
    at = until = busy = 0
    for delta, length in zip(one["begin_ns"], one["length_ns"]):
        at += delta
        busy += max(0, at + length - max(at, until))
        until = max(until, at + length)
    return busy


def run(name, stages, items, pipelined, seed=1):
    """A run through stages of (engine, stage, length), one after the other or overlapped."""
    random_ = random.Random(seed)
    lanes = [[] for _ in stages]
    free = [0] * len(stages)
    for item in range(items):
        ready = 0 if pipelined else max(free)
        for number, (_, _, length) in enumerate(stages):
            begin = max(ready, free[number])
            length = round(length * random_.uniform(0.97, 1.03))
            ready = free[number] = begin + length
            lanes[number].append((item, begin, length))
    return {"name": name, "total_ns": max(free),
            "lanes": [lane(engine, intervals, stage)
                      for (engine, stage, _), intervals in zip(stages, lanes)]}


def timelines(items=24, stages=(("disk", "read", 900_000), ("upload", "upload", 1_150_000),
                                ("compute", "iterate", 1_200_000), ("download", "download", 1_050_000))):
    return {"type": "timelines", "title": "What every engine did, and when",
            "note": "Both runs on one time axis. The share beside a lane is how much of the run its "
                    "engine was busy.",
            "runs": [run("sequential", stages, items, False), run("pipelined", stages, items, True)]}


def role_lane(role, block, sm, spans):
    """A lane of a role inside a kernel, from (tile, begin, length)."""
    one = lane(role, spans)
    return {"role": role, "block": block, "sm": sm,
            **{key: one[key] for key in ("items", "begin_ns", "length_ns")}}


def inside(run_, number, index, tiles=16, blocks=((0, 0), (132, 0))):
    """Gives a run the roles inside one of its intervals: a loader, compute, a storer."""
    within = run_["lanes"][number]
    begin = sum(within["begin_ns"][:index + 1])
    first, last = begin + 2_000, begin + within["length_ns"][index] - 3_000
    each = (last - first) // (tiles + 2)
    lanes = []
    for block, sm in blocks:
        for late, (role, share) in enumerate((("loader", 0.6), ("compute", 0.95), ("storer", 0.4))):
            lanes.append(role_lane(role, block, sm, [
                (tile * 2 + block % 2, first + (tile + late) * each, round(each * share))
                for tile in range(tiles)]))
    run_.setdefault("kernels", []).append({
        "name": f"{within['stage']} {within['items'][index]}", "bar": {"lane": number, "index": index},
        "begin_ns": first, "end_ns": last, "lost": 0, "lanes": lanes,
        "error": {"max_ns": 41.25, "median_ns": 12.5, "place_ns": 2_500}})
    return run_


def traced(section):
    """The section with the roles inside one kernel of its last run."""
    inside(section["runs"][-1], 2, 3)
    return section


def report():
    chunks = [2**power for power in range(18, 29)]
    total, overhead, rate = 2 * 2**30, 12e-6, 55.2e9

    def predicted(chunk):
        return (total / chunk * (overhead + chunk / rate) + 2 * chunk / rate) * 1e6

    return {
        "title": "Three-way overlap on one GPU",
        "made": {"version": "0.3.0", "commit": "6b824e4", "date": "2025-11-08 14:02"},
        "sections": [
            {"type": "facts", "title": "In short", "rows": [
                ["pipelined", "43.74 ms", "2 GiB up and 2 GiB down"],
                ["of the limit", "99.9%", "floor 43.71 ms: the link both ways"],
                ["hidden", "1.000", "of what could be hidden"],
                ["against one after the other", "2.83×", "123.7 ms"]]},
            traced(timelines()),
            {"type": "table", "title": "How near to the limit",
             "note": "Every figure beside the limit it is held against, measured in the same run.",
             "columns": [{"name": "case"}, {"name": "chunks", "numeric": True},
                         {"name": "measured", "numeric": True}, {"name": "limit", "numeric": True},
                         {"name": "of the limit", "share": True}, {"name": "what limits"}],
             "rows": [["two-way", "104", "39.45 ms", "38.82 ms", 0.984, "upload"],
                      ["three-way", "152", "43.74 ms", "43.71 ms", 0.999, "the link, both ways"],
                      ["four-way", "152", "44.16 ms", "43.10 ms", 0.976, "the link, both ways"],
                      ["whole items, three-way", "8", "52.17 ms", "44.51 ms", 0.853, "fill and drain"],
                      ["pageable memory", "8", "171.3 ms", "44.51 ms", 0.26, "staging copies"],
                      ["without a limit", "8", "171.3 ms", "–", None, "unknown"],
                      ["busy machine", "8", "40.1 ms", "44.51 ms", 1.11, "unknown"]]},
            {"type": "plot", "title": "The chunk",
             "note": "Small chunks pay for their number, large ones for filling and draining.",
             "x": {"label": "chunk", "unit": "bytes", "scale": "log"},
             "y": {"label": "time", "unit": "us", "scale": "linear"},
             "series": [
                 {"name": "predicted", "line": True, "marks": False,
                  "points": [[chunk, predicted(chunk)] for chunk in chunks]},
                 {"name": "measured", "line": True, "marks": True,
                  "points": [[chunk, predicted(chunk) * (1.01 + 0.02 * math.sin(chunk))]
                             for chunk in chunks]}],
             "markers": [{"name": "chosen", "x": 14 * MIB}]},
            {"type": "roofline", "title": "Roofline",
             "note": "What the machine allows at each intensity, and what the kernels reach.",
             "ceilings": [{"name": "HBM copy", "bytes_per_second": 4.22e12},
                          {"name": "PCIe upload", "bytes_per_second": 55.2e9},
                          {"name": "bf16 tensor cores", "flops": 790e12},
                          {"name": "fp32", "flops": 60e12}],
             "points": [{"name": "copy + scale", "intensity": 0.25, "flops": 0.98e12},
                        {"name": "iterate, 100 rounds", "intensity": 25, "flops": 41e12},
                        {"name": "iterate, 10 rounds", "intensity": 2.5, "flops": 9.9e12},
                        {"name": "gemm 8192", "intensity": 1365, "flops": 702e12},
                        {"name": "gemm 1024", "intensity": 170, "flops": 410e12}]},
            {"type": "facts", "title": "The machine", "rows": [
                ["GPU", "one, of 139 GiB", "sm_90"], ["driver", "580.65", ""],
                ["CUDA", "13.0", "runtime, linked statically"], ["CPU", "16 cores", ""],
                ["memory", "128 GiB", ""], ["link", "PCIe 5.0 ×16", "55.2 GB/s measured"]]},
        ],
    }


def corner_cases():
    """Everything that may be missing is missing somewhere, and everything that may be empty is."""
    return {"sections": [
        {"type": "timelines", "runs": [
            {"name": "no lanes", "total_ns": 5 * MS, "lanes": []},
            {"name": "lanes without intervals", "lanes": [lane("upload", []), {"engine": "disk"}]},
            {"name": "one interval", "total_ns": 4 * MS, "lanes": [lane("compute", [(0, MS, MS)])]},
            {"name": "no length", "total_ns": 4 * MS,
             "lanes": [lane("host", [(0, 0, 0), (1, 2 * MS, 0), (2, 4 * MS, 0)])]},
            {"name": "several at once", "total_ns": 4 * MS,
             "lanes": [lane("disk", [(0, 0, 3 * MS), (1, 100, MS), (2, 200, 3 * MS), (3, 300, 10)])]},
            {"name": "rows that make no sense", "total_ns": 4 * MS, "lanes": [
                lane("disk", [(0, 0, MS), (1, MS, MS)], rows=[2**40, -1]),
                lane("disk", [(0, 0, MS), (1, MS, MS)], rows=["x"]), lane("disk", [], rows=[1])]},
            {"name": "an engine of its own", "total_ns": 4 * MS,
             "lanes": [lane("warp drive", [(0, 0, MS)]), lane("flux", [(0, MS, MS)], "x" * 200)]},
            {"name": "kernels without anything", "total_ns": 4 * MS,
             "lanes": [lane("compute", [(0, 0, MS)])], "kernels": [
                 {}, None, {"lanes": [{}]}, {"bar": {"lane": 7, "index": 0}, "error": None},
                 {"bar": {"lane": 0, "index": 9}, "begin_ns": 5, "end_ns": 1},
                 {"bar": {"lane": 0, "index": 0}, "lanes": [role_lane("r", 0, 0, [])]},
                 {"name": "k" * 200, "lanes": [role_lane("r" * 200, 0, 0, [(0, 3 * MS, 0)])]}]}]},
        {"type": "timelines"},
        {"type": "timelines", "title": "nothing", "runs": [{}]},
        {"type": "timelines", "title": "from far to far", "runs": [
            {"lanes": [lane("disk", [(0, -2**62, 2**63), (1, 2**62, 0)])]}]},
        {"type": "facts"}, {"type": "facts", "rows": [["label"], ["label", "value"], []]},
        {"type": "table"}, {"type": "table", "columns": [{}, {"share": True}], "rows": [[], ["a"]]},
        {"type": "plot"},
        {"type": "plot", "x": {"scale": "log"}, "series": [{"name": "one", "points": [[5, 7]]}]},
        {"type": "plot", "y": {"scale": "log"}, "series": [
            {"points": [[0, 0], [1, -3], [2, 1e-3]]}, {"name": "empty", "points": []}, {}]},
        {"type": "plot", "x": {"unit": "bytes"}, "y": {"unit": "GB/s", "label": "rate"},
         "series": [{"name": "flat", "points": [[KIB, 3], [MIB, 3]]}], "markers": [{}, {"x": MIB}]},
        {"type": "roofline"}, {"type": "roofline", "points": [{"intensity": 1, "flops": 1e12}]},
        {"type": "roofline", "ceilings": [{"name": "only a slope", "bytes_per_second": 1e12}, {}],
         "points": [{"name": "p", "intensity": 2, "flops": 1e12}]},
        {"type": "roofline", "ceilings": [{"name": "only a flat", "flops": 1e12}]},
        {"type": "of the future"}, {}, None,
    ]}


def many(intervals=100_000, lanes=4):
    """Two runs of very many short intervals with small gaps."""
    stages = [("disk", "read", 3_000), ("upload", "upload", 4_000), ("compute", "compute", 3_800),
              ("download", "download", 2_500)][:lanes]
    return {"title": "many", "sections": [timelines(intervals // (2 * lanes), stages)]}
