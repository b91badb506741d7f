"""The benchmarks of attention: their shapes, their reference, and their checks."""

import json
import sys

import numpy
import pytest

import penstock
from penstock.bench import Absent, Context
from penstock.bench._clock import CpuClock
from penstock.bench._correctness import check
from penstock.bench.operators import attention, attention_cpu, attention_portable
from penstock.bench.prefill import first_call, flash_peer, reference
from penstock.bench.prefill.case import AttentionCase
from penstock.bench.prefill.numpy_peer import NumpyAttention
from penstock.bench.prefill.shapes import Shape, sample_of


def test_the_listed_shapes_are_16384_tokens_of_2048_numbers():
    shapes = attention.listed()
    assert len(shapes) == 36 and list(shapes)[:2] == ["d64, 512, full", "d64, 1024, full"]
    assert sum(shape.length <= 1024 for shape in shapes.values()) == 12
    for name, shape in shapes.items():
        assert shape.rows == (16384, 16384) and shape.heads * shape.dim == 2048
        assert name == f"d{shape.dim}, {shape.length}, {'causal' if shape.causal else 'full'}"
    # Whole parts of a run have one head dimension and one mask, for peers that compile.
    parts = list(shapes.values())
    assert all(len({(s.dim, s.causal) for s in parts[i:i + 6]}) == 1 for i in range(0, 36, 6))


def test_causal_attention_counts_half_of_the_operations():
    shapes = attention.listed()
    full, causal = (shapes[f"d128, 4096, {mask}"].flop for mask in ("full", "causal"))
    assert full == 4 * 4 * 16 * 4096 * 4096 * 128 and causal == full // 2
    assert Shape(1, 4, 1, 8, dim_v=16).flop == 2 * 16 * (8 + 16)
    assert Shape(1, 2, 1, 8, True, keys=5).pairs == 4 + 5
    assert Shape(1, 5, 1, 8, True, window=1).pairs == 1 + 2 + 2 + 2 + 2


def test_bytes_are_counted_once():
    assert Shape(2, 10, 8, 32, heads_kv=2, keys=20, dim_v=16).least_bytes(2) == 2 * 2 * (32 + 16) * (
        10 * 8 + 20 * 2)


def test_the_packed_lengths_are_the_same_every_time():
    shape = attention.packed()
    assert shape == attention.packed() and len(shape.packed) == 16
    assert all(128 <= length <= 8192 for length in shape.packed)
    assert min(shape.packed) < 256 and max(shape.packed) > 4096
    assert (shape.heads, shape.kv_heads, shape.dim, shape.causal) == (32, 8, 128, True)
    assert shape.pairs == sum(length * length // 2 for length in shape.packed)


def test_the_shapes_beyond_the_listed_ones_are_named():
    names = attention.on_gpu()
    assert len(names) == 36 + 1 + len(attention.OTHERS)
    assert names["GQA, 32 over 8 heads"] == Shape(4, 4096, 32, 128, True, heads_kv=8)
    assert set(attention.NEW_PROCESS) <= set(names) and set(attention_portable.CASES) <= set(names)


@pytest.mark.parametrize("seed", range(20))
def test_who_sees_whom_is_as_defined(seed):
    random = numpy.random.default_rng(seed)
    queries, keys = (int(n) for n in random.integers(1, 40, 2))
    keys = max(keys, queries)
    window = None if random.random() < 0.5 else int(random.integers(0, 20))
    shape = Shape(1, queries, 1, 8, bool(random.random() < 0.5), keys=keys, window=window)
    first, end = shape.seen(0, numpy.arange(queries))
    for query in range(queries):
        place = query + keys - queries
        wanted = [key for key in range(keys) if (not shape.causal or key <= place)
                  and (window is None or key >= place - window)]
        assert list(range(first[query], end[query])) == wanted


@pytest.mark.parametrize("name", attention.QUICK)
def test_the_sample_holds_the_first_and_the_last_queries(name, context):
    shape = attention.QUICK[name]
    sample = sample_of(shape, context.random(0))
    assert sample[0].sequence == 0 and sample[-1].sequence == len(shape.sequences) - 1
    for part in sample:
        queries, _ = shape.sequences[part.sequence]
        before = sum(count for count, _ in shape.sequences[:part.sequence])
        assert part.first_row == before
        assert part.queries[0] == 0 and part.queries[-1] == queries - 1
    assert len(sample_of(Shape(100, 3, 1, 8), context.random(0))) == 16
    assert len(sample_of(Shape(1, 9999, 1, 8), context.random(0))[0].queries) > 40


@pytest.mark.parametrize("name", attention.QUICK)
def test_the_reference_is_that_of_all_queries(name, context):
    shape = attention.QUICK[name]
    case = AttentionCase(context, name, shape)
    inputs = case.make_inputs(0)
    exact, coarse = reference.of_sample(shape, inputs, case._sample)
    wide = {key: array if key == "begins" else array.astype("f8") for key, array in inputs.items()}
    out = numpy.full((*wide["q"].shape[:-1], shape.value_dim), numpy.nan)
    NumpyAttention(shape)(wide, out)
    rows = [row for part in case._sample for row in part.first_row + part.queries]
    all_rows = out.reshape(-1, *out.shape[-2:])
    assert numpy.isfinite(out).all()
    numpy.testing.assert_allclose(exact, all_rows[rows], rtol=0, atol=1e-12)
    assert 0 < abs(coarse - exact).max() < 1e-6


def test_results_of_all_queries_have_the_same_size(context):
    shape = Shape(1, 2000, 2, 16, True)
    case = AttentionCase(context, "it", shape)
    exact = case.reference(case.make_inputs(0))[0]
    sizes = numpy.sqrt((exact * exact).mean((1, 2)))
    assert sizes.max() < 4 * sizes.min() and case.tolerance < 1e-4


def test_it_is_right(bench):
    code, out, err = bench("attention", "--mode", "correctness", "--device", "cpu", "--quick")
    assert code == 0, err
    assert out.count(" right ") == 2 * len(attention.QUICK) + 2  # pages


def wrong_mask(inputs, out):
    penstock.attention(inputs["q"], inputs["k"], inputs["v"], causal=True, window=(2000, None), out=out)


@pytest.mark.parametrize("wrong", [
    lambda inputs, out: out.__setitem__((1, 5, 0, 3), numpy.nan),  # a row that is not compared
    lambda inputs, out: out.__setitem__((-1, -1), 0),
    lambda inputs, out: out.__setitem__((0, 0, 0), 0),
    lambda inputs, out: out.__imul__(1 + 1e-4),
    lambda inputs, out: out.__setitem__((slice(None), slice(2000, None)), 0),
    wrong_mask,
])
def test_what_is_wrong_is_found(context, wrong):
    case = AttentionCase(context, "it", Shape(2, 2100, 2, 16, True))
    best = case.kernels()["best"]

    def broken(inputs, out):
        best(inputs, out)
        wrong(inputs, out)

    verdicts = check(case, {"best": best, "broken": broken}, CpuClock())
    assert verdicts["best"].right and not verdicts["broken"].right


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_what_was_never_written_is_found_in_every_dtype(context, dtype):
    case = AttentionCase(context, "it", Shape(1, 3, 2, 8))
    for byte in (0xFF, 0x5A):
        result = numpy.zeros((1, 3, 2, 8), dtype)
        result.reshape(-1).view("u1")[-result.itemsize:] = byte
        assert case.compared(result)[1] == 1


def test_a_case_has_its_times_and_its_limit(bench):
    code, out, err = bench("attention", "--device", "cpu", "--quick", "--json", "--case", "GQA")
    assert code == 0, err
    case = json.loads(out)["cases"][0]
    assert case["params"] | {"heads_kv": 2, "dim_v": 64, "keys": 90, "dtype": "f32"} == case["params"]
    metrics = case["metrics"]
    assert metrics["flop"] == 4 * 6 * 33 * 90 * 64
    assert case["tolerance"] > 0 and set(case["peer"]) == {"numpy"}
    assert "256 x 256 x 256" in case["yardstick"] and case["yardstick_us"] > 0
    rate = 2 * 256**3 / metrics["roof_parts_us"]["large product"]  # FLOP per microsecond
    assert case["yardstick_us"] >= 0.99 * metrics["flop"] / rate


def test_flash_attention_is_absent_or_found_where_peers_says(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PEERS", str(tmp_path))
    assert flash_peer.version() is None and str(tmp_path) not in sys.path
    (tmp_path / "flash_attn/cute").mkdir(parents=True)
    (tmp_path / "flash_attn/cute/__init__.py").write_text("raise RuntimeError('imported too early')\n")
    (tmp_path / "flash_attn_4-4.0.0b9.dist-info").mkdir()
    assert flash_peer.version() == "4.0.0b9" and sys.path.count(str(tmp_path)) == 1
    assert "PEERS" in flash_peer.NEEDED and "flash-attn-4" in flash_peer.NEEDED


def test_the_first_call_is_timed_in_a_new_process(context):
    found = first_call.metrics(context, attention.QUICK["packed"])
    assert set(found) == {"first_call_us"} and found["first_call_us"] > 0


def test_a_first_call_that_fails_is_absent(context, monkeypatch):
    monkeypatch.setattr(first_call.sys, "executable", "/nowhere/python")
    assert "nowhere" in first_call.metrics(context, attention.QUICK["GQA"])["first_call"]["absent"]
    monkeypatch.undo()
    bad = Shape(1, 3, 2, 8, heads_kv=3)
    assert "expected" in first_call.metrics(context, bad)["first_call"]["absent"]


def test_only_named_cases_start_a_process(context, monkeypatch):
    monkeypatch.setattr(first_call, "metrics", lambda context, shape: {"first_call_us": 1.0})
    shape = attention.QUICK["GQA"]
    assert AttentionCase(context, "it", shape).more_metrics() == {}
    assert AttentionCase(context, "it", shape, True).more_metrics() == {"first_call_us": 1.0}


def test_the_benchmark_of_the_cpu_says_what_it_lacks(context, monkeypatch):
    monkeypatch.setattr("penstock.bench.prefill.cpu_case.find_spec", lambda name: None)
    case = attention_cpu.operator.cases(context)[0]
    peer = case.peers()["torch"]
    assert isinstance(peer, Absent) and "pip install torch" in peer.reason
    assert case.params["threads"] >= 1 and case.params["dtype"] == "f32"


def test_the_cpu_has_cases_of_its_own(context):
    large = Context(context.device, 7)
    assert [case.name for case in attention_cpu.operator.cases(large)] == list(attention_cpu.SHAPES)
    assert [case.name for case in attention.operator.cases(large)] == list(attention.ON_CPU)
