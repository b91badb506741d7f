"""The tables of streamed experts."""

import benchmarks
import results
import results_experts


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


def goals(documents):
    rows = results.TABLES["expert_streaming-goals"]({
        name: (None, {"cases": cases}) for name, cases in documents.items()}).splitlines()[2:]
    return {cells[0]: cells[1:] for cells in ([cell.strip() for cell in row.strip("|").split(" | ")] for row in rows)}


def test_goals_stand_beside_the_worst_case():
    prompts = [PLAIN | {"case": name, "metrics": PLAIN["metrics"] | {"share_of_link": share}}
               for name, share in zip(results_experts.PROMPTS, (0.97, 0.94))]
    cached = CACHED | {"case": "zipf B1"}
    found = goals({"expert_streaming": [*prompts, cached]})
    assert found["link alone / Penstock, prompts"] == ["2 of 2", "at least 0.950", "0.940", "no", "prefill 4x4096"]
    assert found["the same: Penstock / the copies that were made"] == [
        "1 of 2", "at most 1.150", "1.111", "yes", "zipf B1"]


def test_goals_that_were_not_measured_say_so():
    for cells in goals({}).values():
        assert cells[0].startswith("0 of ") and cells[2:] == ["not measured", "", ""]


def test_goals_of_other_benchmarks():
    overlap = [PASS | {"case": "large experts", "metrics": {"upload_alone_us": 960.0, "speedup": 1.1}},
               PASS | {"case": "large experts, balanced", "metrics": {"upload_alone_us": 500.0, "speedup": 1.9}},
               PASS | {"case": "prefill from a disk", "metrics": {"disk_alone_us": 850.0, "speedup": 1.0}}]
    model = [PASS | {"case": "forward, decode, batch 1", "yardstick_us": 800.0,
                     "metrics": {"speedup_over_accelerate": 81.0}}]
    found = goals({"expert_overlap": overlap, "expert_streaming_transformers": model,
                   "checkpoint_loading": [PASS | {"case": "device", "metrics": {"of_floor": 0.93}}]})
    assert found["link alone / Penstock, 256 experts of 7168 × 14336"][2:4] == ["0.960", "yes"]
    assert found["one after the other / Penstock, loading as long as computing"][2:4] == ["1.900", "yes"]
    assert found["plain reads of the packed file / Penstock"][2:4] == ["0.850", "no"]
    assert found["slower of disk and memory / loading a checkpoint"] == [
        "1 of 5", "at least 0.900", "0.930", "yes", "device"]
    assert found["accelerate / Penstock, whole model, single tokens"][1:4] == [
        "at least 80.0", "81.0", "yes"]
    assert found["Penstock / link and GPU time of everything else, tokens"][2:4] == ["1.250", "no"]


def test_goals_name_cases_of_the_benchmarks():
    def source(name):
        return (benchmarks.ROOT / "bench" / name).read_text()

    for name in (results_experts.LARGE, results_experts.BALANCED, results_experts.FROM_DISK):
        assert f'make("{name}"' in source("expert_overlap.cpp")
    for name in results_experts.LOADS:
        assert f'"{name}"' in source("checkpoint_loading.py")
    model = source("expert_streaming_transformers.py")
    assert 'f"forward, {name}"' in model
    for name in (*results_experts.MODEL_PROMPTS, *results_experts.MODEL_TOKENS):
        assert f'"{name.removeprefix("forward, ")}"' in model
    assert 'fmt::format("{}, {} GiB"' in source("page_locking_cuda.cpp")
    assert "gibibytes{1, 8}" in source("page_locking_cuda.cpp")
    passes = source("expert_streaming.cpp")
    for name in (*results_experts.PROMPTS, *results_experts.TOKENS, *results_experts.CACHED,
                 *results_experts.COMPRESSED, results_experts.WITH_CPU):
        assert f'"{name}"' in passes
