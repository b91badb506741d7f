"""The benchmarks of append_kv and append_attention: their references, their checks, and their peers."""

import types

import numpy
import pytest

from penstock.bench import Context
from penstock.bench._clock import CpuClock
from penstock.bench._correctness import check
from penstock.bench.appending import rotary
from penstock.bench.appending.append_case import Append, AppendCase
from penstock.bench.appending.attend_case import AttendCase
from penstock.bench.decoding.case import READ
from penstock.bench.decoding.paged_case import PAGES
from penstock.bench.operators import append_attention, append_kv
from penstock.bench.prefill.shapes import Shape


def test_the_rotation_by_hand():
    x = numpy.zeros((1, 1, 1, 4), "f4")
    x[..., 0], x[..., 1] = 3, 5
    cos, sin = numpy.array([[0.6, 1]], "f4"), numpy.array([[0.8, 0]], "f4")
    numpy.testing.assert_allclose(rotary.rotated(x, cos, sin, False)[0, 0, 0], [1.8, 5, 2.4, 0], rtol=1e-6)
    numpy.testing.assert_allclose(rotary.rotated(x, cos, sin, True)[0, 0, 0], [-2.2, 5.4, 0, 0], rtol=1e-6)
    cos, sin = rotary.tables(3, 4, x)
    numpy.testing.assert_allclose(cos, numpy.cos([[0, 0], [1, 0.01], [2, 0.02]]), rtol=1e-6)
    drawn = numpy.random.default_rng(1).normal(size=(2, 3, 5, 4)).astype("f4")
    numpy.testing.assert_allclose(
        rotary.by_halves(drawn, rotary.doubled(cos, drawn), rotary.doubled(sin, drawn)),
        rotary.rotated(drawn, cos, sin, False), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", append_kv.SMALL)
def test_append_kv_and_its_peer_are_right(context, name):
    case = AppendCase(context, name, append_kv.SMALL[name])
    calls = dict(case.kernels()) | {name: peer.call for name, peer in case.peers().items()
                                    if hasattr(peer, "call")}
    assert set(calls) == ({"best"} if name == "interleaved" else {"best", "numpy"})
    verdicts = check(case, calls, CpuClock())
    assert not [verdict.complaint for verdict in verdicts.values() if not verdict.right]


def test_both_are_right_in_the_program(bench):
    for name, kernels in (("append_kv", 5), ("append_attention", 4)):
        code, out, err = bench(name, "--mode", "correctness", "--device", "cpu", "--quick")
        assert code == 0, err
        assert out.count(" right ") == kernels


def other_row(inputs, outputs):
    outputs[1][-1, 0, 0, 3] = 1  # row 0 of a page or of a sequence, which has rows before the new ones


def not_rotated(inputs, outputs):
    outputs[0][:] = inputs["q"]


def one_late(inputs, outputs):
    outputs[2][:] = numpy.roll(outputs[2], 1, 1)


def a_bit_too_large(inputs, outputs):
    outputs[0][:] *= numpy.float32(1 + 1e-4)


@pytest.mark.parametrize("wrong", [other_row, not_rotated, one_late, a_bit_too_large])
def test_what_append_kv_does_wrong_is_found(context, wrong):
    case = AppendCase(context, "it", append_kv.SMALL["interleaved"])

    def broken(inputs, outputs):
        case.kernels()["best"](inputs, outputs)
        wrong(inputs, outputs)

    verdicts = check(case, {**case.kernels(), "broken": broken}, CpuClock())
    assert verdicts["best"].right and not verdicts["broken"].right


def test_bytes_of_append_kv_are_counted_once(context):
    case = AppendCase(context, "it", Append(2, 10, 5, heads=4, heads_kv=2, dim=32))
    assert case.bytes == 2 * 2 * 10 * 32 * (4 + 2 + 2) * 4 + 10 * 32 * 4
    assert case.flop == 3 * 2 * 10 * 32 * (4 + 2)
    assert case.roof_us({"host_copy": 1e9}) == pytest.approx(case.bytes * 1e-3)


def test_rows_lie_where_the_table_says(context):
    case = AppendCase(context, "it", append_kv.SMALL["pages"])
    inputs = case.make_inputs(0)
    assert inputs["pages"].shape == (3, 4) and sorted(inputs["pages"].ravel()) == list(range(12))
    assert inputs["rows"][1, 4] == inputs["pages"][1, 3] * 8 + 1  # row 25
    assert case.make_outputs(inputs)[1].shape == (12, 8, 2, 32)


@pytest.fixture
def step(context):
    return append_attention.operator.cases(context)[0]


def test_every_way_of_a_step_is_right(step):
    verdicts = check(step, dict(step.kernels()), CpuClock())
    assert set(verdicts) == {"best", "append_kv, attention", "pages of 64", "pages of 16"}
    assert not [verdict.complaint for verdict in verdicts.values() if not verdict.right]


def nothing_appended(inputs, outputs):
    inputs["k"][:, -2:] = inputs["k_new"]


def cache_not_written(inputs, outputs):
    inputs["v"][:, -2:] = 0


def result_of_other_queries(inputs, outputs):
    outputs[0][:] = outputs[0][:, ::-1]


@pytest.mark.parametrize("wrong", [nothing_appended, cache_not_written, result_of_other_queries])
def test_what_a_step_does_wrong_is_found(step, wrong):
    def broken(inputs, outputs):
        step.kernels()["best"](inputs, outputs)
        wrong(inputs, outputs)

    assert not check(step, {"broken": broken}, CpuClock())["broken"].right


def test_a_step_can_be_repeated(step):
    inputs = step.make_inputs(0)
    outputs = step.make_outputs(inputs)
    assert numpy.isnan(inputs["k"][:, -2:]).all() and numpy.isfinite(inputs["k"][:, :-2]).all()
    results = []
    for _ in range(2):
        step.kernels()["best"](inputs, outputs)
        results.append([outputs[0].copy(), inputs["k"].copy()])
    assert all((one == other).all() for one, other in zip(*results))


def test_on_a_gpu_the_floor_of_a_step_is_a_read():
    device = types.SimpleNamespace(kind="cuda", name="cuda", capabilities={"l2_bytes": 50 << 20})
    case = AttendCase(Context(device, seed=11), "it", Shape(2, 1, 8, 128, True, heads_kv=2, keys=640))
    assert list(case.engines()) == [READ]
    assert list(case.kernels()) == ["best", "append_kv, attention", "captured", "pages of 64", "pages of 16"]
    for shape in append_attention.SHAPES.values():
        assert shape.causal and shape.length <= 16 and all(shape.keys % rows == 0 for rows in PAGES)
