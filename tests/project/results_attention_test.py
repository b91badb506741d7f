"""The tables and the plot of attention."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import benchmarks
import plot
import pytest
import results
import results_attention

RESULTS = Path(__file__).resolve().parents[2] / "tools" / "results.py"
SVG = "{http://www.w3.org/2000/svg}"
PARAMS = {"batch": 4, "length": 4096, "heads": 16, "heads_kv": 16, "dim": 128, "dim_v": 128,
          "causal": True, "dtype": "bf16"}


def case(name, us=1000.0, cudnn=None, flash=None, params=None, **metrics):
    peers = {"cuDNN": cudnn, "FlashAttention": flash}
    return {"case": name, "ours": {"gpu_us": us}, "params": PARAMS | (params or {}),
            "yardstick": "a product", "yardstick_us": us / 2,
            "peer": {peer: {"gpu_us": time} for peer, time in peers.items() if time},
            "metrics": {"flop": 600_000_000_000, "enqueue_us": 9.0} | metrics}


def document(*cases, **more):
    return {"schema": 1, "name": "attention", "date": "d", "commit": "c", "cases": list(cases),
            "machine": {"gpu": "GPU", "driver": "1", "cuda": "13", "cpu": "CPU", "ceilings": {}},
            "peers": {"cuDNN": "torch 2, cuDNN 9", "FlashAttention": "4.0"}} | more


def everything():
    """All listed shapes, in which ours is 1.1 times as fast as the faster peer."""
    return document(*(case(name, 1000.0 + i, 1100.0 + 1.1 * i, 1200.0 + 2 * i)
                      for i, name in enumerate(results_attention.LISTED)))


def rows_of(name, found, benchmark="attention"):
    return results.TABLES[name]({benchmark: (None, found)}).splitlines()[2:]


def test_the_listed_names_are_those_of_the_benchmark():
    source = (benchmarks.ROOT / "python/penstock/bench/operators/attention.py").read_text()
    assert 'f"d{dim}, {length}, {\'causal\' if causal else \'full\'}"' in source
    for numbers in (results_attention.LENGTHS, results_attention.DIMS):
        assert str(numbers) in source
    assert len(results_attention.LISTED) == len(set(results_attention.LISTED)) == 36


def test_the_listed_shapes_have_rates_and_relative_speeds():
    rows = rows_of("attention", document(case("d128, 4096, full", 1000.0, 1200.0, 1100.0),
                                         case("d128, 512, full", 1000.0)))
    assert len(rows) == 6
    assert rows[2] == "| 128, full | 600 (–) | – | – | 600 (1.10) | – | – |"
    assert rows[0] == "| 64, full | – | – | – | – | – | – |"


def test_the_summary_has_means_and_the_lowest():
    found = everything()
    found["cases"][0] = case("d64, 512, full", 1000.0, 1099.0, 1300.0)
    found["cases"][3] = case("d64, 4096, full", 1000.0, 950.0, 1300.0)
    found["cases"] += [case("GQA", 1000.0, 900.0, 1050.0), case("packed", 1000.0)]
    rows = rows_of("attention-summary", found)
    assert rows[0].startswith("| all 36 listed shapes | the faster of cuDNN and FlashAttention | 36 of 36 "
                              "| 1.096 | 0.950 | d64, 4096, full |")
    assert rows[1] == ("| the 12 of 512 and 1024 rows | the faster of cuDNN and FlashAttention | 12 of 12 "
                       "| 1.100 | 1.099 | d64, 512, full |")
    assert rows[2] == "| GQA | FlashAttention | 1 of 1 | 1.050 | 1.050 |  |"
    assert rows[3] == "| packed | FlashAttention | 0 of 1 | – | – |  |"


def test_the_summary_names_the_only_peer():
    rows = rows_of("attention-summary", document(
        case("d64, 512, full", 1000.0, 1100.0),
        peers={"cuDNN": "9", "FlashAttention": "absent (set PEERS)"}))
    assert rows[0] == "| all 36 listed shapes | cuDNN | 1 of 36 | 1.100 | 1.100 | d64, 512, full |"


def test_other_shapes_are_described():
    rows = rows_of("attention-others", document(
        case("d64, 512, full"),
        case("packed", 1000.0, None, 1100.0, {"heads_kv": 8, "packed": [300, 7000], "batch": 2}),
        case("behind", 500.0, 400.0, None, {"keys": 9000, "dim_v": 64, "causal": False})))
    assert rows == [
        "| packed | (2, 300–7000, 16, 8, 128) | causal | 1 ms | 600 | – | – | 1.1 ms | 1.10 |",
        "| behind | (4, 4096 → 9000, 16, 16, 128 / 64) | full | 500 µs | 1200 | 400 µs | 0.80 | – | – |"]


def test_host_times_are_the_longest_and_first_calls():
    rows = rows_of("attention-calls", document(case("a", enqueue_us=12.0), case("b"),
                                               case("c", first_call_us=45_000.0)))
    assert rows == ["| host time of a call, back to back, the longest of all cases | a | 12 µs |",
                    "| first call in a process | c | 45 ms |"]


def test_the_portable_kernel_stands_beside_the_best():
    found = case("d128", 1000.0, kernels={"best": {"gpu_us": 500.0}})
    found["peer"] = {"FlashAttention 2": {"gpu_us": 950.0}}
    assert rows_of("attention_portable", document(found), "attention_portable") == [
        "| d128 | (4, 4096, 16, 16, 128) | 1 ms | 600 | 500 µs | 2.00 | 950 µs | 0.95 |"]


def test_f32_stands_beside_the_memory_efficient_kernel():
    found = case("d128, f32", 1000.0)
    found["peer"] = {"efficient": {"gpu_us": 800.0}}
    assert rows_of("attention_portable", document(found), "attention_portable") == [
        "| d128, f32 | (4, 4096, 16, 16, 128) | 1 ms | 600 | – | – | 800 µs | 0.80 |"]


def test_generations_stand_beside_torchs_fastest_backend():
    found = {"case": "1B, prompt 8192, KVCache", "params": {"tokens": 256}, "ours": {"call_us": 10_000.0},
             "peer": {"FlashAttention 2": {"call_us": 12_000.0}, "cuDNN": {"call_us": 11_000.0},
                      "eager": {"call_us": 15_000.0}},
             "metrics": {"compared": 91, "mismatches": {"ours": 0, "eager": 0}}}
    assert rows_of("attention_transformers", document(found), "attention_transformers") == [
        "| 1B, prompt 8192, KVCache | 10 ms | 12 ms | 11 ms | – | 1.10 | 15 ms | 1.50 | 91 of 256 | 0 |"]
    found["peer"] = {}
    assert rows_of("attention_transformers", document(found), "attention_transformers") == [
        "| 1B, prompt 8192, KVCache | 10 ms | – | – | – | – | – | – | 91 of 256 | 0 |"]


def compared(**found):
    """The rows of the table of comparisons, by what they are about."""
    rows = [row.strip("|").split(" | ") for row in results.TABLES["attention-compared"](
        {name: (None, each) for name, each in found.items()}).splitlines()[2:]]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


def test_comparisons_have_a_goal_and_what_was_measured():
    attention = everything()
    attention["cases"][0] = case("d64, 512, full", 1000.0, 1099.0, 1300.0)
    attention["cases"][3] = case("d64, 4096, full", 1000.0, 950.0, 1300.0)
    attention["cases"] += [case(results_attention.GQA, 1000.0, 900.0, 1050.0, enqueue_us=26.0),
                           case("first", first_call_us=45_000.0)]
    rows = compared(attention=attention)
    assert rows["faster peer / Penstock, listed shapes, mean"] == [
        "36 of 36", "at least 1.050", "1.096", "yes", ""]
    assert rows["faster peer / Penstock, listed shapes"] == [
        "36 of 36", "at least 0.930", "0.950", "yes", "d64, 4096, full"]
    assert rows["faster peer / Penstock, 512 and 1024 rows, mean"][:3] == [
        "12 of 12", "at least 1.020", "1.100"]
    assert rows[f"FlashAttention / Penstock, {results_attention.GQA}"][:3] == [
        "1 of 1", "at least 1.000", "1.050"]
    assert rows[f"FlashAttention / Penstock, {results_attention.PACKED}"][:4] == [
        "0 of 1", "at least 1.000", "not measured", ""]
    assert rows["host time of a call, back to back"] == [
        "38 of 38", "at most 25 µs", "26 µs", "no", results_attention.GQA]
    assert rows["first call in a process"] == ["1 of 1", "at most 100 ms", "45 ms", "yes", ""]


def test_goals_without_results_are_shown():
    rows = compared(attention=everything())
    for what, goal in (("plain read / decode, 1 sequence, 131072 keys", "at least 0.870"),
                       ("FlashAttention 2 / portable kernel, d128, 4096, full", "at least 0.900"),
                       ("99th percentile of a step: cache that grows / allocated cache", "at most 1.050"),
                       ("longest gap on another stream: cache that grows / allocated cache", ""),
                       ("DRAM bandwidth that FlashAttention uses, d128, 4096, full", "at least 85.0 %")):
        assert rows[what] == ["0 of 1", goal, "not measured", "", ""]
    # Which cases there would be is known to the benchmark alone.
    for what, goal in (("torch / Penstock on the CPU", "at least 0.500"),
                       ("torch / Penstock on the CPU, mean", "at least 0.500"),
                       ("two calls / append_attention", ""),
                       ("torch's fastest kernel / Penstock, a token of a transformers model", "")):
        assert rows[what] == ["–", goal, "not measured", "", ""]


def test_comparisons_of_decode_are_with_the_read_the_peer_and_pages():
    names = list(results_attention.DECODE)
    cases = [case(name, 1000.0, 1100.0 + number, kernels={
        "pages of 16": {"gpu_us": 1010.0 + number}}) | {"floor_us": 900.0} for number, name in enumerate(names)]
    rows = compared(attention_decode=document(*cases))
    assert rows["plain read / decode, 1 sequence, 131072 keys"] == ["1 of 1", "at least 0.870", "0.900", "yes", ""]
    assert rows["faster peer / decode"] == ["4 of 4", "at least 1.000", "1.100", "yes", names[0]]
    assert rows["decode, contiguous / pages of 16"] == [
        "4 of 4", "at least 0.950", "0.987", "yes", names[3]]
    assert rows["decode, contiguous / pages of 64"][0] == "0 of 4"


def test_comparisons_of_other_files():
    def beside(name, peer, us, ours=1000.0):
        return document(case(name, ours) | {"peer": {peer: {"gpu_us": us}}})

    rows = compared(attention_cpu=beside("d64", "torch", 600.0),
                    attention_portable=beside("d128, 4096, causal", "FlashAttention 2", 950.0),
                    kv_cache=beside("step, 99th percentile", "allocated", 1000.0, 1040.0))
    assert rows["torch / Penstock on the CPU"] == ["1 of 1", "at least 0.500", "0.600", "yes", ""]
    assert rows["FlashAttention 2 / portable kernel, d128, 4096, causal"][2] == "0.950"
    assert rows["FlashAttention 2 / portable kernel, d128, 4096, full"][2] == "not measured"
    assert rows["99th percentile of a step: cache that grows / allocated cache"] == [
        "1 of 1", "at most 1.050", "1.040", "yes", ""]


def test_the_claim_about_flash_attention_is_judged_by_its_counters():
    def profiled(**kernels):
        return document({"case": "d128, 4096, full", "profiles": {
            name: {"dram__throughput.avg.pct_of_peak_sustained_elapsed": share}
            for name, share in kernels.items()}})

    what = "DRAM bandwidth that FlashAttention uses, d128, 4096, full"
    for found, row in ((profiled(best=90.0, FlashAttention=12.34), ["1 of 1", "at least 85.0 %", "12.3 %", "no", ""]),
                       (profiled(FlashAttention=86.0), ["1 of 1", "at least 85.0 %", "86.0 %", "yes", ""]),
                       (profiled(best=90.0), ["0 of 1", "at least 85.0 %", "not measured", "", ""])):
        assert compared(attention_profiles=found)[what] == row
    kernels, cases = benchmarks.PROFILED["attention"]
    assert "FlashAttention" in kernels and results_attention.DRAM_CASE in cases


def growing(rounds):
    found = case(results_attention.GROWTH, 1000.0, params={"steps": 2000}) | {
        "peer": {"allocated": {"gpu_us": 1040.0}}}
    found["metrics"] |= {"p99_over_allocated_by_round": rounds, "steps_while_mapping": 9,
                         "median_while_mapping_us": 170.0, "median_step_us": 175.0,
                         "p99_of_others_us": 990.0, "steps_that_waited": 1}
    return document(found)


def test_the_worst_round_of_a_growing_cache_is_compared_too():
    rows = compared(kv_cache=growing([1.15, 0.97, 0.98]))
    assert rows["99th percentile of a step: cache that grows / allocated cache"][2] == "0.962"
    assert rows["the same, in the worst of the interleaved rounds"] == [
        "1 of 1", "at most 1.050", "1.150", "no", ""]


def test_growth_and_generations_are_compared_without_a_goal():
    gap = case(results_attention.GAP, 66.0) | {"peer": {"allocated": {"gpu_us": 60.0}}}
    tokens = [case(name, 1000.0) | {"peer": {"eager": {"call_us": 900.0}, "cuDNN": {"call_us": us}}}
              for name, us in (("a", 1200.0), ("b", 1100.0))]
    rows = compared(kv_cache=document(gap), attention_transformers=document(*tokens))
    assert rows["longest gap on another stream: cache that grows / allocated cache"] == [
        "1 of 1", "", "1.100", "", ""]
    assert rows["torch's fastest kernel / Penstock, a token of a transformers model"] == [
        "2 of 2", "", "1.100", "", "b"]


def test_growth_is_shown_round_by_round_and_while_memory_is_mapped():
    rows = rows_of("kv_cache-growth", growing([1.15, 0.97]), "kv_cache")
    assert [row.split(" | ")[1].strip(" |") for row in rows] == [
        "0.962", "1.150, 0.970", "9", "170 µs", "175 µs", "990 µs", "1"]


def test_comparisons_without_a_goal():
    chunk = case(results_attention.CHUNK, 1000.0, kernels={"pages of 16": {"gpu_us": 1030.0}})
    steps = [case(name, 1000.0, kernels={"append_kv, attention": {"gpu_us": us}})
             for name, us in (("a", 1200.0), ("b", 1100.0))]
    rows = compared(attention=document(chunk), append_attention=document(*steps))
    assert rows["1024 rows behind 8192, contiguous / pages of 16"] == ["1 of 1", "", "0.971", "", ""]
    assert rows["two calls / append_attention"] == ["2 of 2", "", "1.100", "", "b"]
    assert rows_of("append_attention", document(*steps), "append_attention")[1] == (
        "| b | (4, 4096, 16, 16, 128) | – | 1 ms | – | 1.1 ms | 1.100 | – | – |")


def test_keys_of_several_lengths_are_described():
    found = case("uneven", params={"length": 1, "keys_of": [64, 192, 128]}) | {"floor_us": 900.0}
    (row,) = rows_of("attention_decode", document(found), "attention_decode")
    assert row.startswith("| uneven | (4, 1 → 64–192, 16, 16, 128) | 900 µs | 1 ms | 0.900 |")


def test_comparisons_name_cases_of_the_benchmarks():
    folder = benchmarks.ROOT / "python/penstock/bench/operators"
    prefill, decode = ((folder / f"{name}.py").read_text() for name in ("attention", "attention_decode"))
    assert f'"{results_attention.CHUNK}"' in prefill
    step = (benchmarks.ROOT / "python/penstock/bench/appending/attend_case.py").read_text()
    assert f'"{results_attention.TWO_CALLS}"' in step
    assert f'"{results_attention.GQA}"' in prefill and f'"{results_attention.PACKED}"' in prefill
    assert all(f'"{name}"' in decode for name in results_attention.DECODE)
    growth, tokens = ((benchmarks.ROOT / f"bench/{name}.py").read_text()
                      for name in ("kv_cache", "attention_transformers"))
    assert f'"{results_attention.GROWTH}"' in growth and f'"{results_attention.GAP}"' in growth
    assert all(f'"{name}"' in tokens for name in results_attention.TORCH)


def test_on_the_cpu_torch_may_be_missing():
    found = case("d64", params={"threads": 16})
    found["ours"] = {"call_us": 100_000.0}
    assert rows_of("attention_cpu", document(found), "attention_cpu") == [
        "| d64 | (4, 4096, 16, 16, 128) | 16 | 100 ms | 6000 | – | – |"]


def test_the_faster_peer_is_a_figure(tmp_path):
    found = everything()
    assert results.figure(found, "mean ratio2 of fastest/ours in d*") == "1.10"
    assert results.figure(found, "least ratio2 of fastest/ours in d64, 512, *") == "1.10"
    alone = document(case("a", 1000.0))
    with pytest.raises(results.Unreadable, match="no case"):
        results.figure(alone, "mean ratio2 of fastest/ours in *")


@pytest.fixture
def run(tmp_path):
    (tmp_path / "bench/results").mkdir(parents=True)
    (tmp_path / "docs/ops").mkdir(parents=True)

    def run_results(content=None, *words):
        path = tmp_path / "bench/results/attention.json"
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(json.dumps(content))
        return subprocess.run([sys.executable, RESULTS, "--root", tmp_path, *words],
                              capture_output=True, text=True)

    return run_results


def test_a_page_shows_the_plot_once_there_are_results(run, tmp_path):
    page = tmp_path / "docs/ops/attention.md"
    place = "<!-- plot attention -->\n{}<!-- end of plot -->\n<!-- table attention-summary -->\n{}" \
            "<!-- end of table -->\n"
    page.write_text(place.format("", ""))
    assert run().returncode == 0
    assert page.read_text() == place.format("", "")
    assert run(everything()).returncode == 0
    assert "(../results/attention.svg)\n" in page.read_text() and "all 36 listed" in page.read_text()
    picture = tmp_path / "docs/results/attention.svg"
    first = picture.read_text()
    assert run(everything(), "--check").returncode == 0
    picture.write_text(first.replace("circle", "rect"))
    done = run(everything(), "--check")
    assert done.returncode == 1 and "docs/results/attention.svg is stale" in done.stdout
    assert run().returncode == 0 and not picture.exists()
    assert page.read_text() == place.format("", "")


def test_a_plot_of_a_broken_file_is_an_error(run, tmp_path):
    broken = document(case("d64, 512, full"))
    del broken["cases"][0]["yardstick_us"]
    done = run(broken)
    assert done.returncode == 1 and "attention.json" in done.stderr and "Traceback" not in done.stderr
    (tmp_path / "docs/a.md").write_text("<!-- plot none -->\n<!-- end of plot -->\n")
    done = run(document())
    assert done.returncode == 1 and "plot none: expected one of attention" in done.stderr


def drawn(content):
    return ElementTree.fromstring(results_attention.picture(content))


def test_every_panel_has_a_line_per_column():
    root = drawn(everything())
    kinds = [path.get("class") for path in root.iter(f"{SVG}path")]
    for kind in ("s0", "s1", "s2", "limit"):
        assert kinds.count(kind) == 1 + 6  # the legend, and the panels
    assert len(list(root.iter(f"{SVG}circle"))) == 3 * 36
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "head dimension 256, causal" in texts and texts.count("16384") == 6
    assert {"Penstock", "cuDNN", "FlashAttention", "large matrix product", "TFLOP/s"} <= set(texts)


def test_what_was_not_measured_leaves_a_gap():
    found = everything()
    found["cases"] = [each for each in found["cases"] if each["case"] != "d64, 2048, full"]
    for each in found["cases"]:
        del each["peer"]["FlashAttention"]
    root = drawn(found)
    assert "FlashAttention" not in [text.text for text in root.iter(f"{SVG}text")]
    lines = [path.get("d") for path in root.iter(f"{SVG}path") if path.get("class") == "s0"]
    assert lines[1].count("M") == 2 and lines[2].count("M") == 1
    assert len(list(drawn(document()).iter(f"{SVG}circle"))) == 0


def test_a_plot_is_the_same_every_time_and_fits_its_frame():
    panel = plot.Panel("a<b", ["1", "2"], {"x": [1.0, 730.0], "limit": [800.0, None]})
    text = plot.svg("it", "TFLOP/s", [panel], 1, dashed=("limit",))
    assert text == plot.svg("it", "TFLOP/s", [panel], 1, dashed=("limit",))
    root = ElementTree.fromstring(text)
    _, _, width, height = map(float, root.get("viewBox").split())
    for circle in root.iter(f"{SVG}circle"):
        assert 0 < float(circle.get("cx")) < width and 0 < float(circle.get("cy")) < height
    assert "a<b" in [each.text for each in root.iter(f"{SVG}text")]
