"""The tables of streamed experts."""

import results


def rows_of(name, cases):
    return results.TABLES[name]({"expert_streaming": (None, {"cases": cases})}).splitlines()[2:]


PASS = {"case": "decode", "floor_us": 900.0, "ours": {"call_us": 1000.0}}
PLAIN = PASS | {"metrics": {"share_of_link": 0.9, "experts_needed": 8, "bytes_needed": 80_000_000}}
COMPRESSED = PASS | {"metrics": PLAIN["metrics"] | {"plain_us": 1250.0}}
WITH_CPU = PASS | {"metrics": {"share_on_host": 0.5, "GBps": 100.0, "link_GBps": 50.0, "reads_GBps": 75.0,
                               "share_of_link_and_reads": 0.8, "plain_us": 2000.0}}
CACHED = PASS | {"metrics": {"hit_rate": 0.68, "best_fixed_set": 0.7, "offline_optimum": 0.79,
                             "over_predicted": 1.111}}
ALL = [PLAIN, COMPRESSED, WITH_CPU, CACHED]


def test_passes_stand_beside_the_link():
    assert rows_of("expert_streaming", ALL) == [
        "| decode | 8 | 0.08 GB | 900 µs | 1 ms | 90.0 % | – | – |",
        "| decode | 8 | 0.08 GB | 900 µs | 1 ms | 90.0 % | 1.25 ms | 0.80 |"]


def test_the_cpu_stands_beside_what_it_could_read():
    assert rows_of("expert_streaming-cpu", ALL) == [
        "| decode | 50.0 % | 100 GB/s | 125 GB/s | 80.0 % | 1 ms | 2 ms | 2.00 |"]


def test_hit_rates_stand_beside_the_best():
    assert rows_of("expert_streaming-cache", ALL) == [
        "| decode | 68.0 % | 70.0 % | 79.0 % | 900 µs | 1 ms | 1.111 |"]
