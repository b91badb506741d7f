"""The tables of docs/ops/moe.md: what a reader of that page needs of the results."""

from results_tables import judged_us, over, percent, ratio, shown_us, table


def shape_of(params):
    """(T, d, n, E, K) of a case."""
    return "({tokens}, {hidden}, {width}, {experts}, {choices})".format(**params)


def layers(documents):
    """GPU times of a layer next to its peers and its yardstick, and the rate of its products."""
    rows = []
    for case in documents["moe"][1]["cases"]:
        ours, metrics = judged_us(case["ours"]), case["metrics"]
        sonic, torch = (judged_us(case["peer"].get(name)) for name in ("SonicMoE", "torch"))
        sequential = without_overlap_us(case)
        rows.append([case["case"], shape_of(case["params"]), shown_us(ours),
                     f"{metrics['flop'] / ours * 1e-6:.0f}", ratio(over(case["yardstick_us"], ours)),
                     shown_us(sonic), ratio(over(sonic, ours)), shown_us(torch),
                     ratio(over(torch, ours), 2), shown_us(sequential), ratio(over(sequential, ours), 2),
                     percent(metrics["padded_share"])])
    return table(["layer", "(T, d, n, E, K)", "Penstock", "TFLOP/s", "yardstick / Penstock",
                  "SonicMoE", "SonicMoE / Penstock", "torch", "torch / Penstock", "without overlap",
                  "without / with overlap", "padded rows"], rows)


def without_overlap_us(case):
    """The time of kernel="sequential", which is the same kernel with overlap compiled out."""
    return judged_us(case["metrics"].get("kernels", {}).get("sequential"))


def overlap(documents):
    """The rungs of the ladder moe on the layers of the benchmark, and what overlap gains."""
    rows = []
    for case in documents["moe"][1]["cases"]:
        ours, sequential = judged_us(case["ours"]), without_overlap_us(case)
        if sequential:
            rows.append([case["case"], shown_us(sequential), shown_us(ours), ratio(over(sequential, ours), 2)])
    return table(["layer", "1. sequential", "2. overlapped", "sequential / overlapped"], rows)


def rounding(documents):
    """What rounding the routes changes, costs and saves."""
    rows = []
    for case in documents["moe_rounding"][1]["cases"]:
        metrics = case["metrics"]
        plain, before = (judged_us(case["peer"].get(name)) for name in ("not rounded", "rounded before"))
        rows.append([case["case"], case["params"]["extra"], percent(metrics["changed_share"]),
                     metrics["experts_rounded_up"],
                     metrics["experts_rounded_down"], shown_us(plain), shown_us(judged_us(case["ours"])),
                     shown_us(before), ratio(over(plain, before))])
    return table(["layer", "`extra`", "routes changed", "experts that take tokens", "experts that drop tokens",
                  "not rounded", "rounded in the call", "rounded before", "not rounded / rounded before"],
                 rows)


def decoding(documents):
    """GPU times of layers of few tokens next to the read of their weights, and to their peers."""
    rows = []
    for case in documents["moe_decode"][1]["cases"]:
        ours, metrics = judged_us(case["ours"]), case["metrics"]
        sonic, torch = (judged_us(case["peer"].get(name)) for name in ("SonicMoE", "torch"))
        given = judged_us(metrics.get("kernels", {}).get("given logits"))
        rows.append([case["case"], shape_of(case["params"]), metrics["experts_touched"],
                     metrics["rotation"]["sets"], shown_us(case["floor_us"]), shown_us(ours),
                     ratio(over(ours, case["floor_us"])), shown_us(given),
                     ratio(over(given, case["floor_us"])), shown_us(sonic), ratio(over(sonic, ours), 2),
                     shown_us(torch), ratio(over(torch, ours), 2)])
    return table(["layer", "(T, d, n, E, K)", "experts read", "sets of weights", "limit", "Penstock",
                  "Penstock / limit", "given logits", "given logits / limit", "SonicMoE", "SonicMoE / Penstock", "torch", "torch / Penstock"],
                 rows)


def portable(documents):
    """GPU times of the kernel for every GPU next to the one for Hopper and to torch."""
    rows = []
    for case in documents["moe_portable"][1]["cases"]:
        ours, torch = judged_us(case["ours"]), judged_us(case["peer"].get("torch"))
        best = judged_us(case["metrics"].get("kernels", {}).get("best"))
        rows.append([case["case"], shape_of(case["params"]), shown_us(ours), shown_us(best),
                     ratio(over(ours, best), 2), shown_us(torch), ratio(over(torch, ours), 2)])
    return table(["layer", "(T, d, n, E, K)", "portable", "best", "portable / best", "torch",
                  "torch / portable"], rows)


def layouts(documents):
    """GPU times of a layer with its weights in every layout, next to the first one."""
    cases = documents["moe_layouts"][1]["cases"]
    names = list(dict.fromkeys(name for case in cases for name in case["metrics"]["kernels"]))
    rows = []
    for case in cases:
        ours = judged_us(case["ours"])
        row = [case["case"], shown_us(ours)]
        for name in names:
            other = judged_us(case["metrics"]["kernels"].get(name))
            row += [shown_us(other), ratio(over(other, ours), 2)]
        rows.append(row)
    heads = [head for name in names for head in (name, "/ concatenated")]
    return table(["layer", "concatenated", *heads], rows)


def on_cpu(documents):
    """Call times on the CPU next to torch's."""
    rows = []
    for case in documents["moe_cpu"][1]["cases"]:
        ours, params = judged_us(case["ours"]), case["params"]
        loop, grouped = (judged_us(case["peer"].get(name))
                         for name in ("torch, loop", "torch, grouped"))
        rows.append([case["case"], shape_of(params), params["threads"], shown_us(ours), shown_us(loop),
                     ratio(over(loop, ours), 2), shown_us(grouped), ratio(over(grouped, ours), 2)])
    return table(["layer", "(T, d, n, E, K)", "threads", "Penstock", "torch, loop", "loop / Penstock",
                  "torch, grouped", "grouped / Penstock"], rows)


def calls(documents):
    """What a call takes on an idle GPU, and its host time: called, and replayed from a CUDA graph."""
    rows = []
    for case in documents["moe"][1]["cases"]:
        ours, metrics = case["ours"], case["metrics"]
        graph = metrics.get("kernels", {}).get("captured", {})
        sonic = case["peer"].get("SonicMoE", {})
        rows.append([case["case"], *map(shown_us, (
            ours.get("alone_us"), ours.get("call_us"), sonic.get("call_us"), ours.get("host_us"),
            metrics.get("enqueue_us"), graph.get("call_us"), graph.get("enqueue_us"),
            metrics["sustained_us"])), f"{metrics['workspace_bytes'] / 2**20:.0f} MiB",
            percent(metrics["workspace_bytes"] / metrics["workspace_bound"])])
    return table(["layer", "alone", "call", "SonicMoE, call", "host, after a pause",
                  "host, back to back", "graph, call", "graph, host back to back",
                  "back to back", "workspace", "share of the upper bound"], rows)


def routing(documents):
    """GPU times of route next to its peers."""
    rows = []
    for case in documents["route"][1]["cases"]:
        ours, params = judged_us(case["ours"]), case["params"]
        peers = [judged_us(case["peer"].get(name)) for name in ("torch", "torch.compile")]
        rows.append([case["case"], f"({params['tokens']}, {params['experts']}, {params['choices']})",
                     shown_us(ours), shown_us(case["yardstick_us"]), *map(shown_us, peers),
                     shown_us(case["metrics"].get("enqueue_us"))])
    return table(["case", "(T, E, K)", "Penstock", "yardstick", "torch", "torch.compile",
                  "host, back to back"], rows)
