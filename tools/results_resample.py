"""The tables of docs/ops/resample.md: what a reader of that page needs of the results."""

from results_tables import judged_us, shown_us, table

PEERS = {"torch": "torch", "torch.compile": "torch.compile", "Triton": "triton"}


def shape_of(params):
    """(B, S → T, D) and the dtype of a case with one sensor."""
    if "samples" not in params:
        return f"{params['episodes']} episodes, {len(params['hz'])} sensors, {params['dtype']}"
    samples = f"50–{params['samples']}" if params["ragged"] else params["samples"]
    return (f"({params['episodes']}, {samples} → {params['targets']}, {params['columns']}) "
            f"{params['dtype']}")


def whole_pages_us(case):
    """The copy whose size is a multiple of the page size."""
    return next((judged_us(times) for name, times in case["peer"].items() if "pages" in name), None)


def gpu_table(documents):
    """GPU times, and the host's share of a call."""
    rows = []
    for case in documents["resample"][1]["cases"]:
        peers = (judged_us(case["peer"].get(name)) for name in PEERS.values())
        rows.append([case["case"], shape_of(case["params"]), *map(shown_us, (
            judged_us(case["ours"]), whole_pages_us(case), *peers,
            case["metrics"].get("enqueue_us"), case["ours"].get("host_us")))])
    return table(["case", "shape", "Penstock", "cudaMemcpy", *PEERS, "host, back to back",
                  "host, after a pause"], rows)


def cpu_table(documents):
    """One row per shape: all cores, then one thread."""
    threads = "all cores", "one thread"
    cases = {}
    for case in documents["resample_cpu"][1]["cases"]:
        name, _, of = case["case"].rpartition(", ")
        cases.setdefault(name, {})[of] = [judged_us(case["ours"]), case.get("floor_us"),
                                          judged_us(case["peer"].get("memcpy"))]
    rows = [[name.replace(" to ", " → "),
             *(shown_us(time) for of in threads for time in times.get(of, [None] * 3))]
            for name, times in cases.items()]
    return table(["shape", *(f"{column}, {of}" for of in threads
                             for column in ("Penstock", "floor", "memcpy"))], rows)
