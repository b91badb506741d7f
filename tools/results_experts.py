"""The tables of docs/ops/expert-streaming.md, of passes through all layers with experts."""

from results_tables import judged_us, over, percent, ratio, shown_us, table


def cases_with(documents, metric):
    return [case for case in documents["expert_streaming"][1]["cases"] if metric in case["metrics"]]


def link(documents):
    """Passes with an empty cache, next to the link alone."""
    rows = []
    for case in cases_with(documents, "share_of_link"):
        ours, metrics = judged_us(case["ours"]), case["metrics"]
        plain = metrics.get("plain_us")
        rows.append([case["case"], metrics["experts_needed"], f"{metrics['bytes_needed'] * 1e-9:.2f} GB",
                     shown_us(case["floor_us"]), shown_us(ours), percent(over(case["floor_us"], ours)),
                     shown_us(plain), ratio(over(ours, plain), 2)])
    return table(["pass", "experts", "over the link", "link alone", "Penstock", "share of the link",
                  "not compressed", "/ not compressed"], rows)


def with_cpu(documents):
    """Passes of which the CPU computes some experts, next to the same without it."""
    rows = []
    for case in cases_with(documents, "share_on_host"):
        ours, metrics = judged_us(case["ours"]), case["metrics"]
        rows.append([case["case"], percent(metrics["share_on_host"]), f"{metrics['GBps']:.0f} GB/s",
                     f"{metrics['link_GBps'] + metrics['reads_GBps']:.0f} GB/s",
                     percent(metrics["share_of_link_and_reads"]), shown_us(ours),
                     shown_us(metrics["plain_us"]), ratio(over(metrics["plain_us"], ours), 2)])
    return table(["pass", "experts on the CPU", "weights per time", "link and CPU reads at once",
                  "share of these", "Penstock", "without the CPU", "gain"], rows)


def cached(documents):
    """Tokens with a cache of a quarter of the experts."""
    rows = []
    for case in cases_with(documents, "hit_rate"):
        metrics = case["metrics"]
        rows.append([case["case"], percent(metrics["hit_rate"]), percent(metrics["best_fixed_set"]),
                     percent(metrics["offline_optimum"]), shown_us(case["floor_us"]),
                     shown_us(judged_us(case["ours"])), ratio(metrics["over_predicted"])])
    return table(["tokens", "hit rate", "best fixed set", "best possible", "copies alone", "Penstock",
                  "Penstock / copies alone"], rows)
