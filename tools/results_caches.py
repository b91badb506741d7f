"""The tables of docs/ops/append_kv.md about caches that grow."""

from results_attention import GROWTH
from results_tables import judged_us, over, ratio, shown_us, table


def growth(documents):
    """What a growing cache costs the slow steps of a generation, and the steps while memory is mapped."""
    case = next(case for case in documents["kv_cache"][1]["cases"] if case["case"] == GROWTH)
    metrics, allocated = case["metrics"], case["peer"]["allocated"]
    rounds = metrics["p99_over_allocated_by_round"]
    return table(["", "measured"], [
        ["99th percentile of a step, `KVCache` / *allocated*: medians of all generations",
         ratio(over(judged_us(case["ours"]), judged_us(allocated)))],
        ["the same, one generation after the other", ", ".join(map(ratio, rounds))],
        [f"steps while the thread maps memory, of {case['params']['steps']} per generation",
         metrics["steps_while_mapping"]],
        ["their median", shown_us(metrics["median_while_mapping_us"])],
        ["the median of all steps with *allocated*", shown_us(metrics["median_step_us"])],
        ["the 99th percentile of the other steps", shown_us(metrics["p99_of_others_us"])],
        ["steps that waited for memory", metrics["steps_that_waited"]]])
