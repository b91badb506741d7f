"""The tables and the plot of docs/ops/attention.md and docs/notes/attention.md."""

from dataclasses import dataclass, field

import plot
from results_tables import (NONE, fastest_us, geometric_mean, judged_us, over, percent, ratio, shown_us,
                            table)

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
DIMS = (64, 128, 256)
SHORT = 1024
MASKS = ("full", "causal")
LIMIT = "large matrix product"


def name_of(dim, length, mask):
    return f"d{dim}, {length}, {mask}"


LISTED = [name_of(dim, length, mask) for dim in DIMS for mask in MASKS for length in LENGTHS]


def cases_of(documents, name="attention"):
    return {case["case"]: case for case in documents[name][1]["cases"]}


def rate(case, us):
    """TFLOP/s."""
    return case["metrics"]["flop"] / us * 1e-6 if us else None


def whole(value):
    return NONE if value is None else f"{value:.0f}"


def listed(documents):
    """Our rate at each listed shape, and our speed relative to the faster peer."""
    cases = cases_of(documents)

    def cell(name):
        if name not in cases:
            return NONE
        case = cases[name]
        ours = judged_us(case["ours"])
        return f"{whole(rate(case, ours))} ({ratio(over(fastest_us(case), ours), 2)})"

    rows = [[f"{dim}, {mask}", *(cell(name_of(dim, length, mask)) for length in LENGTHS)]
            for dim in DIMS for mask in MASKS]
    return table(["head dimension", *(f"{length} rows" for length in LENGTHS)], rows)


def summary(documents):
    """Our speed relative to peers: the geometric mean of several shapes, and the lowest."""
    document, cases = documents["attention"][1], cases_of(documents)
    present = [name for name, version in document["peers"].items() if not version.startswith("absent")]
    both = ("the faster of " if len(present) > 1 else "") + " and ".join(present)
    short = [name for name in LISTED if int(name.split(", ")[1]) <= SHORT]
    others = [name for name in cases if name not in LISTED]
    rows = []
    for what, names, peer in ((f"all {len(LISTED)} listed shapes", LISTED, None),
                              (f"the {len(short)} of 512 and 1024 rows", short, None),
                              *((name, [name], "FlashAttention") for name in others)):
        speeds = {}
        for name in names:
            case = cases.get(name, {"peer": {}})
            peer_us = fastest_us(case) if peer is None else judged_us(case["peer"].get(peer))
            if peer_us:
                speeds[name] = peer_us / judged_us(case["ours"])
        least = min(speeds, key=speeds.get, default=None)
        rows.append([what, both if peer is None else peer, f"{len(speeds)} of {len(names)}",
                     ratio(geometric_mean(speeds.values()) if speeds else None),
                     NONE if least is None else f"{speeds[least]:.3f}",
                     least if len(names) > 1 and least else ""])
    return table(["shapes", "compared with", "measured", "relative speed, mean", "least", "at"], rows)


def shape_of(params):
    """(B, S, Hq, Hk, D) of a case; S → keys, D / Dv where they differ."""
    rows = f"{params['length']}"
    if "packed" in params:
        rows = f"{min(params['packed'])}–{max(params['packed'])}"
    if "keys_of" in params:
        rows += f" → {min(params['keys_of'])}–{max(params['keys_of'])}"
    if "keys" in params:
        rows += f" → {params['keys']}"
    dim = f"{params['dim']}" + (f" / {params['dim_v']}" if params["dim_v"] != params["dim"] else "")
    return f"({params['batch']}, {rows}, {params['heads']}, {params['heads_kv']}, {dim})"


def others(documents):
    """The shapes that are not listed: times and rates beside both peers."""
    rows = []
    for name, case in cases_of(documents).items():
        if name in LISTED:
            continue
        ours = judged_us(case["ours"])
        cudnn, flash = (judged_us(case["peer"].get(peer)) for peer in ("cuDNN", "FlashAttention"))
        rows.append([name, shape_of(case["params"]), "causal" if case["params"]["causal"] else "full",
                     shown_us(ours), whole(rate(case, ours)), shown_us(cudnn),
                     ratio(over(cudnn, ours), 2), shown_us(flash), ratio(over(flash, ours), 2)])
    return table(["case", "(B, S, Hq, Hk, D)", "mask", "Penstock", "TFLOP/s", "cuDNN",
                  "cuDNN / Penstock", "FlashAttention", "FlashAttention / Penstock"], rows)


def calls(documents):
    """What a call costs the host: the highest of all cases, and first calls in new processes."""
    cases = cases_of(documents)
    enqueue = {name: case["metrics"]["enqueue_us"] for name, case in cases.items()
               if "enqueue_us" in case["metrics"]}
    rows = []
    if enqueue:
        most = max(enqueue, key=enqueue.get)
        rows.append(["host time of a call, back to back, the longest of all cases", most,
                     shown_us(enqueue[most])])
    rows += [["first call in a process", name, shown_us(case["metrics"]["first_call_us"])]
             for name, case in cases.items() if "first_call_us" in case["metrics"]]
    return table(["what", "case", "time"], rows)


def decoding(documents):
    """GPU times of few queries per sequence next to the read of keys and values, and to the faster peer."""
    rows = []
    for name, case in cases_of(documents, "attention_decode").items():
        kernels = case["metrics"].get("kernels", {})
        ours, floor = judged_us(case["ours"]), case.get("floor_us")
        rows.append([name, shape_of(case["params"]), shown_us(floor), shown_us(ours),
                     ratio(over(floor, ours)), ratio(over(fastest_us(case), ours), 2),
                     *(ratio(over(ours, judged_us(kernels.get(kernel))))
                       for kernel in ("pages of 64", "pages of 16", "batch invariant"))])
    return table(["sequences", "(B, Sq → Sk, Hq, Hk, D)", "limit", "Penstock", "share of the limit",
                  "speed relative to the faster peer", "pages of 64, relative", "pages of 16, relative",
                  "batch invariant, relative"], rows)


@dataclass
class Comparison:
    """Values of several cases by name, of which the mean or the worst one is compared with a goal."""

    what: str
    names: list  # of all cases that it is about
    goal: float | None
    values: dict = field(default_factory=dict)
    mean: bool = False
    at_most: bool = False  # values are meant to be at most the goal, not at least
    shown: callable = ratio

    def row(self):
        values = {name: value for name, value in self.values.items() if value}
        worst = (max if self.at_most else min)(values, key=values.get, default=None)
        found = None if worst is None else (
            geometric_mean(values.values()) if self.mean else values[worst])
        what = f"{self.what}, mean" if self.mean else self.what
        where = worst if worst and not self.mean and len(self.names) > 1 else ""
        goal = met = ""
        if self.goal is not None:
            goal = f"at {'most' if self.at_most else 'least'} {self.shown(self.goal)}"
            if found is not None:
                met = "yes" if (found <= self.goal if self.at_most else found >= self.goal) else "no"
        measured = "not measured" if found is None else self.shown(found)
        return [what, f"{len(values)} of {len(self.names)}" if self.names else NONE, goal, measured, met, where]


GQA, PACKED = "GQA, 32 over 8 heads", "packed, 128 to 8192 rows"
PORTABLE = tuple(name_of(128, 4096, mask) for mask in MASKS)
# The cases of decode that are listed, and the share of a plain read's rate that is the goal.
DECODE = {"1 sequence, 131072 keys": 0.87, "16 sequences, 16384 keys": 0.92,
          "64 sequences, 4096 keys": 0.92, "128 sequences, 2048 keys, 32 heads of k": 0.92}
TWO_CALLS = "append_kv, attention"
CHUNK = "1024 rows behind 8192"
GROWTH, GAP = "step, 99th percentile", "other stream, longest gap"
TORCH = "FlashAttention 2", "cuDNN", "efficient"  # kernels of its scaled_dot_product_attention
# A claim about FlashAttention, which is no kernel of ours.
DRAM_CASE, DRAM_SHARE = name_of(128, 4096, "full"), 0.85
DRAM_COUNTER = "dram__throughput.avg.pct_of_peak_sustained_elapsed"


def compared(documents):
    """What was compared with what, the goal, and what was measured, also where there are no results yet."""
    found = {name: cases_of(documents, name) if name in documents else {}
             for name in ("attention", "attention_portable", "attention_cpu", "attention_decode",
                          "append_attention", "kv_cache", "attention_transformers", "attention_profiles")}

    def values(benchmark, names, value):
        return {name: value(found[benchmark][name]) for name in names if name in found[benchmark]}

    def beside(*names):
        """The time of the fastest of these peers, or of all, relative to ours."""
        def speed(case):
            peers = [judged_us(case["peer"].get(name)) for name in names or case["peer"]]
            return over(min(filter(None, peers), default=None), judged_us(case["ours"]))
        return speed

    def variant(kernel):
        def speed(case):
            return over(judged_us(case["ours"]), judged_us(case["metrics"].get("kernels", {}).get(kernel)))
        return speed

    def of_floor(case):
        return over(case.get("floor_us"), judged_us(case["ours"]))

    def metric(name):
        return lambda case: case["metrics"].get(name)

    def dram_share(case):
        return over(case["profiles"].get("FlashAttention", {}).get(DRAM_COUNTER), 100)

    def comparison(benchmark, what, names, goal, value, **more):
        return Comparison(what, list(names), goal, values(benchmark, names, value), **more)

    prefill, on_cpu_cases, steps, generations = (list(found[name]) for name in (
        "attention", "attention_cpu", "append_attention", "attention_transformers"))
    short = [name for name in LISTED if int(name.split(", ")[1]) <= SHORT]
    first = [name for name in prefill if "first_call_us" in found["attention"][name]["metrics"]]
    growth = "99th percentile of a step: cache that grows / allocated cache"
    worst = "the same, in the worst of the interleaved rounds"
    comparisons = [
        comparison("attention", "faster peer / Penstock, listed shapes", LISTED, 1.05, beside(), mean=True),
        comparison("attention", "faster peer / Penstock, listed shapes", LISTED, 0.93, beside()),
        comparison("attention", "faster peer / Penstock, 512 and 1024 rows", short, 1.02, beside(),
                   mean=True),
        *(comparison("attention", f"FlashAttention / Penstock, {name}", [name], 1.0,
                     beside("FlashAttention")) for name in (GQA, PACKED)),
        *(comparison("attention", f"{CHUNK}, contiguous / {kernel}", [CHUNK], None, variant(kernel))
          for kernel in ("pages of 16", "pages of 64")),
        comparison("attention", "host time of a call, back to back", prefill, 25, metric("enqueue_us"),
                   at_most=True, shown=shown_us),
        comparison("attention", "first call in a process", first, 100_000, metric("first_call_us"),
                   at_most=True, shown=shown_us),
        *(comparison("attention_portable", f"FlashAttention 2 / portable kernel, {name}", [name], 0.9,
                     beside("FlashAttention 2")) for name in PORTABLE),
        comparison("attention_cpu", "torch / Penstock on the CPU", on_cpu_cases, 0.5, beside("torch"),
                   mean=True),
        comparison("attention_cpu", "torch / Penstock on the CPU", on_cpu_cases, 0.5, beside("torch")),
        *(comparison("attention_decode", f"plain read / decode, {name}", [name], goal, of_floor)
          for name, goal in DECODE.items()),
        comparison("attention_decode", "faster peer / decode", DECODE, 1.0, beside()),
        *(comparison("attention_decode", f"decode, contiguous / {kernel}", DECODE, 0.95, variant(kernel))
          for kernel in ("pages of 16", "pages of 64")),
        comparison("append_attention", "two calls / append_attention", steps, None,
                   lambda case: over(1, variant(TWO_CALLS)(case))),
        comparison("kv_cache", growth, [GROWTH], 1.05,
                   lambda case: over(1, beside("allocated")(case)), at_most=True),
        comparison("kv_cache", worst, [GROWTH], 1.05,
                   lambda case: max(case["metrics"].get("p99_over_allocated_by_round", [None])),
                   at_most=True),
        comparison("kv_cache", "longest gap on another stream: cache that grows / allocated cache", [GAP], None,
                   lambda case: over(1, beside("allocated")(case)), at_most=True),
        comparison("attention_transformers", "torch's fastest kernel / Penstock, a token of a transformers model",
                   generations, None, beside(*TORCH)),
        comparison("attention_profiles", f"DRAM bandwidth that FlashAttention uses, {DRAM_CASE}", [DRAM_CASE],
                   DRAM_SHARE, dram_share, shown=percent)]
    return table(["what", "cases measured", "goal", "measured", "met", "at"],
                 [each.row() for each in comparisons])


def steps(documents):
    """Times of append_attention next to the read of keys and values, and to two calls."""
    rows = []
    for name, case in cases_of(documents, "append_attention").items():
        kernels, ours, floor = case["metrics"].get("kernels", {}), judged_us(case["ours"]), case.get("floor_us")
        two = judged_us(kernels.get(TWO_CALLS))
        rows.append([name, shape_of(case["params"]), shown_us(floor), shown_us(ours), ratio(over(floor, ours)),
                     shown_us(two), ratio(over(two, ours)),
                     *(ratio(over(ours, judged_us(kernels.get(kernel))))
                       for kernel in ("pages of 64", "pages of 16"))])
    return table(["sequences", "(B, Snew → S, Hq, Hk, D)", "limit", "Penstock", "share of the limit",
                  "two calls", "two calls / Penstock", "pages of 64, relative", "pages of 16, relative"], rows)


def generating(documents):
    """Times per token of transformers' generate, and how many of the tokens were compared with eager's."""
    rows = []
    for name, case in cases_of(documents, "attention_transformers").items():
        ours, peers, metrics = judged_us(case["ours"]), case["peer"], case["metrics"]
        torch = [judged_us(peers.get(peer)) for peer in TORCH]
        fastest, eager = min(filter(None, torch), default=None), judged_us(peers.get("eager"))
        rows.append([name, shown_us(ours), *map(shown_us, torch), ratio(over(fastest, ours), 2),
                     shown_us(eager), ratio(over(eager, ours), 2),
                     f"{metrics['compared']} of {case['params']['tokens']}",
                     metrics["mismatches"]["ours"]])
    return table(["model", "Penstock", *TORCH,
                  "fastest of these / Penstock", "eager", "eager / Penstock", "positions compared",
                  "other tokens"], rows)


def portable(documents):
    """The kernel for every GPU next to the one for Hopper and to torch's FlashAttention 2, or for f32 its
    memory-efficient kernel."""
    rows = []
    for name, case in cases_of(documents, "attention_portable").items():
        ours, torch = judged_us(case["ours"]), fastest_us(case)
        best = judged_us(case["metrics"].get("kernels", {}).get("best"))
        rows.append([name, shape_of(case["params"]), shown_us(ours), whole(rate(case, ours)),
                     shown_us(best), ratio(over(ours, best), 2), shown_us(torch),
                     ratio(over(torch, ours), 2)])
    return table(["case", "(B, S, Hq, Hk, D)", "portable", "TFLOP/s", "best", "portable / best",
                  "torch", "torch / portable"], rows)


def on_cpu(documents):
    """Call times on the CPU next to torch's."""
    rows = []
    for name, case in cases_of(documents, "attention_cpu").items():
        ours, torch = judged_us(case["ours"]), judged_us(case["peer"].get("torch"))
        rows.append([name, shape_of(case["params"]), case["params"]["threads"], shown_us(ours),
                     whole(1e3 * rate(case, ours)), shown_us(torch),
                     ratio(over(torch, ours), 2)])
    return table(["case", "(B, S, Hq, Hk, D)", "threads", "Penstock", "GFLOP/s", "torch",
                  "torch / Penstock"], rows)


def picture(document):
    """Rates over the length of the sequences, one panel per head dimension and mask."""
    cases = {case["case"]: case for case in document["cases"]}
    peers = [name for name in document["peers"]
             if any(name in cases[shape]["peer"] for shape in LISTED if shape in cases)]

    def line(dim, mask, us):
        names = [name_of(dim, length, mask) for length in LENGTHS]
        return [rate(cases[name], us(cases[name])) if name in cases else None for name in names]

    panels = []
    for mask in MASKS:
        for dim in DIMS:
            lines = {"Penstock": line(dim, mask, lambda case: judged_us(case["ours"]))}
            for peer in peers:
                lines[peer] = line(dim, mask, lambda case: judged_us(case["peer"].get(peer)))
            lines[LIMIT] = line(dim, mask, lambda case: case["yardstick_us"])
            panels.append(plot.Panel(f"head dimension {dim}, {mask}", list(map(str, LENGTHS)), lines))
    return plot.svg("TFLOP/s of attention over the length of the sequences", "TFLOP/s", panels,
                    len(DIMS), dashed=(LIMIT,))
