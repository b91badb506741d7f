"""The benchmark of route: its reference, its check, and the bytes it counts."""

import numpy
import pytest

from penstock.bench._clock import CpuClock
from penstock.bench._correctness import check
from penstock.bench.mixture.route_case import RouteCase, Rule, answer
from penstock.bench.operators import route as operator


def test_it_is_right(bench):
    code, out, err = bench("route", "--mode", "correctness", "--device", "cpu", "--quick")
    assert code == 0, err
    assert out.count(" right ") == 2 * len(operator.CASES)


def test_softmax_by_hand():
    logits = numpy.log(numpy.array([[1, 5, 2, 2], [4, 3, 2, 1]], "f4"))
    ids, weights, clear = answer(Rule(4, 2, "softmax_topk"), logits, None)
    assert ids.tolist() == [[1, 2], [0, 1]] and clear.tolist() == [1]  # two logits are equal
    numpy.testing.assert_allclose(weights, [[0.5, 0.2], [0.4, 0.3]], rtol=1e-6)
    _, weights, _ = answer(Rule(4, 2, "topk_softmax", scale=7), logits, None)
    numpy.testing.assert_allclose(weights, [[5, 2], [4, 3]], rtol=1e-6)
    _, weights, _ = answer(Rule(4, 2, "softmax_topk", renormalise=True), logits, None)
    numpy.testing.assert_allclose(weights[1], [4 / 7, 3 / 7], rtol=1e-6)


def test_groups_by_hand():
    share = numpy.array([[0.9, 0.1, 0.6, 0.5], [0.3, 0.2, 0.1, 0.4]])
    logits = numpy.log(share / (1 - share)).astype("f4")
    rule = Rule(4, 2, "sigmoid", groups=2)
    ids, weights, clear = answer(rule, logits, numpy.zeros(4, "f4"))
    assert ids.tolist() == [[2, 3], [0, 1]]  # 1.1 is more than 1.0; 0.5 and 0.5 are too close
    assert clear.tolist() == [0]
    numpy.testing.assert_allclose(weights[0], [0.6, 0.5], rtol=1e-6)
    ids, weights, _ = answer(rule, logits, numpy.array([0, 1, 0, 0], "f4"))
    assert ids.tolist() == [[1, 0], [1, 0]]
    numpy.testing.assert_allclose(weights[0], [0.1, 0.9], rtol=1e-6)


@pytest.mark.parametrize("rule", [rule for _, rule in operator.CASES.values()])
def test_what_is_wrong_is_found(context, rule):
    case = RouteCase(context, "it", 100, rule)

    def swapped(inputs, outputs):
        case.kernels()["best"](inputs, outputs)
        for each in outputs:
            each[:] = each[:, ::-1]

    def light(inputs, outputs):
        case.kernels()["best"](inputs, outputs)
        outputs[1][:] *= numpy.float32(1 - 1e-4)

    verdicts = check(case, {**case.kernels(), "swapped": swapped, "light": light}, CpuClock())
    assert {name: verdict.right for name, verdict in verdicts.items()} == {
        "best": True, "swapped": False, "light": False}
    assert len(case._answer[2]) > 50


def test_bytes_are_counted(context):
    assert RouteCase(context, "it", 10, Rule(16, 2, "softmax_topk")).bytes == 10 * (16 * 4 + 2 * 8)
    biased = RouteCase(context, "it", 10, Rule(16, 2, "sigmoid"))
    assert biased.bytes == 10 * (16 * 4 + 2 * 8) + 16 * 4
    assert biased.roof_us({"host_copy": 1e9}) == pytest.approx(biased.bytes * 1e-3)
