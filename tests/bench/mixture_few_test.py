"""The benchmarks of moe with few tokens, of its portable kernel, and on the CPU."""

import json
import types

import numpy
import pytest

import penstock
from penstock.bench import BenchError, Context
from penstock.bench import operators as registry
from penstock.bench._choice import cases as chosen
from penstock.bench._clock import CpuClock
from penstock.bench._correctness import check
from penstock.bench._rotation import Rotation
from penstock.bench.mixture import cpu_case, decode_case, layouts_case, load, rounding_case
from penstock.bench.mixture.cpu_case import experts_that_fit, sets_of
from penstock.bench.mixture.decode_case import DecodeCase
from penstock.bench.mixture.shapes import Shape
from penstock.bench.operators import moe_cpu, moe_decode, moe_layouts, moe_portable, moe_rounding

SMALL = Shape(3, 64, 40, 8, 2)


@pytest.fixture
def gpu_context():
    device = types.SimpleNamespace(kind="cuda", name="cuda", capabilities={"l2_bytes": 50 << 20})
    return Context(device, seed=11)


def named(cases):
    return {case.name: tuple(case.params[name] for name in (
        "tokens", "hidden", "width", "experts", "choices")) for case in cases}


def test_decoding_has_three_models_and_three_batches(gpu_context):
    cases = moe_decode.operator.cases(gpu_context)
    models = {"Qwen3-30B": (2048, 768, 128, 8), "DeepSeek-V3": (7168, 2048, 256, 8),
              "gpt-oss-120B": (2880, 2880, 128, 4)}
    tokens = {"1 token": 1, "8 tokens": 8, "64 tokens": 64}
    assert named(cases) == {f"{model}, {words}": (count, *shape) for model, shape in models.items()
                            for words, count in tokens.items()}
    assert {case.fewest_sets for case in cases} == {4}
    weights = [4 * case._shape.experts * case._shape.expert_bytes(2) for case in cases]
    assert max(weights) < decode_case.MOST_BYTES


@pytest.mark.parametrize("most, sets", [(1 << 40, 4), (3 * 8 * 3 * 64 * 40 * 2, 3), (1, 2)])
def test_there_are_as_many_sets_of_weights_as_fit_but_two(gpu_context, monkeypatch, most, sets):
    monkeypatch.setattr(decode_case, "MOST_BYTES", most)
    assert DecodeCase(gpu_context, "it", SMALL).fewest_sets == sets


def test_all_sets_choose_the_same_experts_of_other_weights(context):
    case = DecodeCase(context, "it", SMALL)
    first, second = case.make_inputs(0), case.make_inputs(1)
    assert (first["x"] == second["x"]).all() and (first["router"] == second["router"]).all()
    assert first["x"] is not second["x"]
    assert (first["gate_up"] != second["gate_up"]).any() and (first["down"] != second["down"]).any()
    assert len(Rotation(case, 0)) == 4


@pytest.mark.parametrize("seed", range(20))
def test_one_token_can_always_be_compared(seed):
    """With eight of 64 experts, the choice of every sixth token or so depends on rounding."""
    case = DecodeCase(Context(penstock.Device("cpu"), seed), "it", Shape(1, 64, 40, 64, 8))
    case.reference(case.make_inputs(0))
    assert len(case._sample) == 1 and case.tolerance > 0


def test_tokens_that_all_depend_on_rounding_are_an_error(context, monkeypatch):
    monkeypatch.setattr(load, "CLEAR", 1e9)
    with pytest.raises(BenchError, match="it: in 100 draws .* more than half of the tokens"):
        DecodeCase(context, "it", SMALL).make_inputs(0)


def test_what_was_chosen_counts_as_read(context):
    case = DecodeCase(context, "it", SMALL)
    case.reference(case.make_inputs(0))
    assert 2 <= case.load.touched <= 6
    assert case.bytes == SMALL.touched_bytes(case.load.touched, 4)
    assert case.bytes == case.load.touched * SMALL.expert_bytes(4) + (8 + 2 * 3) * 64 * 4
    assert case.roof_us({"host_copy": 1e9}) == pytest.approx(case.bytes * 1e-3)


@pytest.mark.parametrize("name, rights", [
    ("moe_decode", 9), ("moe_layouts", 17), ("moe_portable", 4), ("moe_rounding", 1)])
def test_it_is_right(bench, name, rights):
    code, out, err = bench(name, "--mode", "correctness", "--device", "cpu", "--quick")
    assert code == 0, err
    assert out.count(" right ") == rights


@pytest.mark.parametrize("expert", [0, 5])
def test_a_wrong_weight_of_one_expert_is_found(context, expert, monkeypatch):
    """Also of expert 0: the places without an expert must not count as its tokens."""
    case, = moe_rounding.operator.cases(context)
    assert check(case, case.kernels(), CpuClock())["rounded"].right
    assert (case.load.ids == 8).any() and (case.load.ids == expert).any()
    moe = rounding_case.moe

    def wrong(x, gate_up, down, ids, weights, **more):
        moe(x, gate_up, down, ids, weights * numpy.where(ids == expert, numpy.float32(1.1), 1), **more)

    monkeypatch.setattr(rounding_case, "moe", wrong)
    assert not check(case, case.kernels(), CpuClock())["rounded"].right


def test_the_sets_of_weights_are_in_the_file(bench, tmp_path):
    code, _, err = bench("moe_decode", "--device", "cpu", "--quick", "--case", "small, 8 tokens",
                         "--output", "r.json")
    assert code == 0, err
    case, = json.loads((tmp_path / "r.json").read_text())["cases"]
    assert case["metrics"]["rotation"]["sets"] >= 4 and case["metrics"]["experts_touched"] > 0


def test_gpt_oss_has_the_layout_and_the_gate_of_transformers(context, gpu_context):
    cases = moe_layouts.operator.cases(gpu_context)[-3:]
    assert named(cases) == {
        f"gpt-oss-120B, {count} token{'s' if count > 1 else ''}": (count, 2880, 2880, 128, 4)
        for count in (1, 8, 64)}
    case = moe_layouts.operator.cases(context)[-1]
    assert list(case.kernels()) == ["concatenated", "as transformers stores it"]
    inputs = case.make_inputs(0)
    gate_up, _, options = inputs["variants"]["as transformers stores it"]
    assert gate_up.strides[1] == 4 and options["layout"] == "interleaved"
    numpy.testing.assert_array_equal(gate_up[:, 1::2], inputs["gate_up"][:, 40:])
    numpy.testing.assert_array_equal(options["gate_up_bias"][:, ::2], inputs["gate_up_bias"][:, :40])
    assert (abs(inputs["gate_up_bias"]) > layouts_case.LIMIT).any()


def test_a_shared_expert_is_computed_in_the_call_or_in_another(context, gpu_context):
    cases = [case for case in moe_layouts.operator.cases(gpu_context) if "shared" in case.name]
    assert named(cases) == {
        f"DeepSeek-V3, {count} token{'s' if count > 1 else ''}, shared expert": (count, 7168, 2048, 256, 8)
        for count in (1, 8, 64)}
    case = next(case for case in moe_layouts.operator.cases(context) if "shared" in case.name)
    without = DecodeCase(context, case.name, case._shape)
    for each in (case, without):
        each.reference(each.make_inputs(0))
    assert case.bytes - without.bytes == case._shape.expert_bytes(4)
    assert case.flop - without.flop == 6 * case._shape.tokens * 64 * 40
    peers = {name: peer.call for name, peer in case.peers().items()}
    verdicts = check(case, {**case.kernels(), **peers, "without it": without.kernels()["best"]}, CpuClock())
    assert {name: verdict.right for name, verdict in verdicts.items()} == {
        "concatenated": True, "in two calls": True, "without it": False}


@pytest.mark.parametrize("changed", [{"limit": 1e9}, {"alpha": 1.0}, {"down_bias": None}])
def test_gpt_oss_is_not_right_without_its_gate_and_biases(context, changed, monkeypatch):
    case = moe_layouts.operator.cases(context)[-1]
    moe = layouts_case.moe
    monkeypatch.setattr(layouts_case, "moe", lambda *args, **more: moe(*args, **{**more, **changed}))
    verdicts = check(case, case.kernels(), CpuClock())
    assert not any(verdict.right for verdict in verdicts.values())


def test_the_portable_kernel_is_the_one_that_is_judged(gpu_context):
    cases = moe_portable.operator.cases(gpu_context)
    assert named(cases) == {
        "Qwen3-30B": (16384, 2048, 768, 128, 8), "Qwen3-30B, 1024 tokens": (1024, 2048, 768, 128, 8),
        "Qwen3-30B, 64 tokens": (64, 2048, 768, 128, 8), "fine-grained 7B": (24576, 1536, 256, 128, 8),
        "Qwen3-30B, 1024 tokens, f32": (1024, 2048, 768, 128, 8),
        "Qwen3-30B, 64 tokens, f32": (64, 2048, 768, 128, 8)}
    assert [case.params["dtype"] for case in cases] == ["bf16"] * 4 + ["f32"] * 2
    assert all(list(case.kernels()) == ["portable", "best"] for case in cases[:4])
    assert all(list(case.kernels()) == ["portable"] for case in cases[4:])


def test_on_the_cpu_both_types_and_four_batches(monkeypatch):
    monkeypatch.setattr(moe_cpu.os, "sysconf", lambda name: 1 << 30)
    cases = moe_cpu.operator.cases(Context(penstock.Device("cpu"), seed=1))
    assert named(cases) == {
        f"Qwen3-30B, {dtype}, {count} token{'s' if count > 1 else ''}": (count, 2048, 768, 128, 8)
        for dtype in ("bf16", "f32") for count in (1, 8, 64, 1024)} | {
        f"Qwen3-30B, {dtype}, {count} tokens, transposed": (count, 2048, 768, 128, 8)
        for dtype in ("bf16", "f32") for count in (8, 1024)}
    assert {case.params["threads"] for case in cases} == {cpu_case.threads()}
    assert [case.params["dtype"] for case in cases] == ["bf16"] * 4 + ["f32"] * 4 + (
        ["bf16"] * 2 + ["f32"] * 2)
    assert [case.params["transposed"] for case in cases] == [False] * 8 + [True] * 4


def test_experts_are_left_out_only_if_memory_forces_it(monkeypatch):
    shape = Shape(1, 2048, 768, 128, 8)
    weights = 128 * shape.expert_bytes(4)
    assert experts_that_fit(shape, 4, 3, 6 * weights) == 128
    assert experts_that_fit(shape, 4, 3, 6 * weights - 2) == 64
    assert experts_that_fit(shape, 4, 3, 1) == 8
    monkeypatch.setattr(moe_cpu.os, "sysconf", lambda name: 1 << 15)  # 1 GiB
    cases = moe_cpu.operator.cases(Context(penstock.Device("cpu"), seed=1))
    assert all(f", {case.params['experts']} of 128 experts for want of memory" in case.name
               for case in cases)


def test_few_tokens_on_the_cpu_need_several_sets():
    shape = Shape(1, 2048, 768, 128, 8)
    read = 8 * shape.expert_bytes(2)
    assert sets_of(shape, 2, read) == 4 and sets_of(shape, 2, read // 4) == 1


def test_a_cpu_benchmark_has_no_cases_on_a_gpu(gpu_context):
    assert moe_cpu.operator.cases(gpu_context) == []
    with pytest.raises(BenchError, match="--device cpu"):
        chosen([], [])


def test_all_of_them_are_listed(bench):
    code, out, err = bench("--list", "--device", "cpu", "--quick", "--json")
    assert code == 0, err
    assert {"moe", "moe_cpu", "moe_decode", "moe_layouts", "moe_portable"} <= set(json.loads(out)) == set(
        registry.names())
