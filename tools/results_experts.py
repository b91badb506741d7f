"""The tables of docs/ops/expert-streaming.md and docs/notes/expert-streaming.md, of passes through all layers with
experts."""

from results_attention import Comparison, cases_of
from results_tables import NONE, judged_us, over, percent, ratio, shown_us, table


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


PROMPTS, TOKENS = ("prefill 1x4096", "prefill 4x4096"), ("decode B1", "decode B8", "decode B64")
CACHED, WITH_CPU = ("zipf B1", "zipf B8"), "decode B1, with the CPU"
COMPRESSED = [f"{name}, compressed" for name in (*PROMPTS, "decode B1")]
LARGE, BALANCED, FROM_DISK = "large experts", "large experts, balanced", "prefill from a disk"
LOCKED = [f"{kind}, {size} GiB" for size in (1, 8) for kind in ("PinnedBuffer", "PinnedArena")]
LOADS = ("host memory", "page-locked memory", "page-locked memory, page-aligned", "device",
         "experts into an ExpertStore")
MODEL_PROMPTS = [f"forward, {name}" for name in PROMPTS]
MODEL_TOKENS = [f"forward, decode, batch {count}" for count in (1, 8, 64)]
# Whose results the goals are compared with.
MEASURED_BY = ("expert_streaming", "expert_overlap", "page_locking", "checkpoint_loading",
               "expert_streaming_transformers")


def goals(documents):
    """All goals of expert streaming, and what was measured of each."""
    found = {name: cases_of(documents, name) if name in documents else {} for name in MEASURED_BY}

    def metric(name):
        return lambda case: case["metrics"].get(name)

    def alone(name):
        return lambda case: over(case["metrics"].get(name), judged_us(case["ours"]))

    def of_yardstick(case):
        return over(judged_us(case["ours"]), case.get("yardstick_us"))

    def tenths(value):
        return ratio(value, 1)

    def comparison(benchmark, what, names, goal, value, **more):
        cases = found[benchmark]
        return Comparison(what, list(names), goal,
                          {name: value(cases[name]) for name in names if name in cases}, **more)

    def shown(row):
        """Without a value, the row says so."""
        return [*row[:3], "not measured", *row[4:]] if row[3] == NONE else row

    comparisons = [
        comparison("expert_streaming", "link alone / Penstock, prompts", PROMPTS, 0.95, metric("share_of_link")),
        comparison("expert_streaming", "link alone / Penstock, one token per sequence", TOKENS, 0.9,
                   metric("share_of_link")),
        comparison("expert_streaming", "hit rate / that of the best fixed set, a quarter cached, Zipf's law", CACHED,
                   0.95, metric("hit_rate_share")),
        comparison("expert_streaming", "the same: Penstock / the copies that were made", CACHED, 1.15,
                   metric("over_predicted"), at_most=True),
        comparison("expert_streaming", "bytes of compressed experts / of plain ones", COMPRESSED, 0.7,
                   metric("share_of_bytes"), at_most=True),
        comparison("expert_streaming", "time with compressed experts / with plain ones, prompts", COMPRESSED[:2],
                   0.75, metric("over_plain"), at_most=True),
        comparison("expert_streaming", "rate with the CPU / link and CPU reads at once", [WITH_CPU], 0.75,
                   metric("share_of_link_and_reads")),
        comparison("expert_overlap", "link alone / Penstock, 256 experts of 7168 × 14336", [LARGE], 0.95,
                   alone("upload_alone_us")),
        comparison("expert_overlap", "one after the other / Penstock, loading as long as computing", [BALANCED], 1.8,
                   metric("speedup")),
        comparison("expert_overlap", "plain reads of the packed file / Penstock", [FROM_DISK], 0.9,
                   alone("disk_alone_us")),
        comparison("page_locking", "cudaHostAlloc / Penstock, page-locked memory", LOCKED, 1.0,
                   lambda case: over(judged_us(case["peer"].get("cudaHostAlloc")), judged_us(case["ours"]))),
        comparison("checkpoint_loading", "slower of disk and memory / loading a checkpoint", LOADS, 0.9,
                   metric("of_floor")),
        comparison("expert_streaming_transformers", "accelerate / Penstock, whole model, prompts", MODEL_PROMPTS, 9.0,
                   metric("speedup_over_accelerate"), shown=tenths),
        comparison("expert_streaming_transformers", "accelerate / Penstock, whole model, single tokens",
                   MODEL_TOKENS[:1], 80.0, metric("speedup_over_accelerate"), shown=tenths),
        comparison("expert_streaming_transformers", "Penstock / slower of resident model and link, prompts",
                   MODEL_PROMPTS, 1.15, of_yardstick, at_most=True),
        comparison("expert_streaming_transformers", "Penstock / link and GPU time of everything else, tokens",
                   MODEL_TOKENS, 1.15, of_yardstick, at_most=True)]
    return table(["what", "cases measured", "goal", "measured", "met", "at"],
                 [shown(each.row()) for each in comparisons])
