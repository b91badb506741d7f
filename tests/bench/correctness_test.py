"""Kernels that are wrong in the ways that kernels are."""

import numpy
import pytest

from penstock.bench import Peer
from penstock.bench._clock import CpuClock
from penstock.bench._correctness import check

from conftest import Doubling, double


def verdict(context, kernel, **case):
    return check(Doubling(context, **case), {"it": kernel}, CpuClock())["it"]


def test_a_right_one_is_right(context):
    found = verdict(context, double)
    assert found.right and found.max_error < 1e-6


def test_a_result_of_its_own_counts(context):
    assert verdict(context, lambda x, out: 2 * x).right
    assert not verdict(context, lambda x, out: 3 * x).right


def skips_the_last(x, out):
    double(x[:-1], out[:-1])


def writes_nan(x, out):
    double(x, out)
    out[3] = numpy.nan


def slightly_off(x, out):
    double(x, out)
    out[500] += 1e-3


@pytest.mark.parametrize("kernel, where, given", [
    (slightly_off, "[500]", ""),
    (skips_the_last, "[999]", "nan"),
    (writes_nan, "[3]", "nan"),
])
def test_one_wrong_element_is_found(context, kernel, where, given):
    found = verdict(context, kernel)
    assert not found.right
    assert "1 of 1000 elements wrong" in found.complaint and where in found.complaint
    assert given in found.complaint


def test_nothing_written_is_wrong_everywhere(context):
    assert "1000 of 1000" in verdict(context, lambda x, out: None).complaint


def test_writing_to_inputs_does_not_help(context):
    def cheats(x, out):
        x[:] = 0
        out[:] = 0

    assert not verdict(context, cheats).right


def test_the_reference_comes_after_every_kernel(context):
    order = []

    class Watched(Doubling):
        def reference(self, inputs):
            order.append("reference")
            return super().reference(inputs)

    def kernel(name):
        def run(x, out):
            order.append(name)
            double(x, out)
        return run

    check(Watched(context), {"a": kernel("a"), "b": kernel("b")}, CpuClock())
    assert order == ["a", "b", "reference", "a", "b"]


class NanIsRight(Doubling):
    def reference(self, inputs):
        wanted = super().reference(inputs)
        wanted[-1] = numpy.nan
        return wanted


def test_where_nan_is_right_an_unwritten_element_is_still_found(context):
    def writes_nan_at_the_end(x, out):
        double(x, out)
        out[-1] = numpy.nan

    case = NanIsRight(context)
    assert check(case, {"it": writes_nan_at_the_end}, CpuClock())["it"].right
    assert not check(case, {"it": skips_the_last}, CpuClock())["it"].right


def test_infinities_are_compared(context):
    class Infinite(Doubling):
        def reference(self, inputs):
            return numpy.full(inputs.shape, numpy.inf)

    def fill(value):
        return lambda x, out: out.fill(value)

    verdicts = check(Infinite(context), {"up": fill(numpy.inf), "down": fill(-numpy.inf)},
                     CpuClock())
    assert verdicts["up"].right and not verdicts["down"].right


@pytest.mark.parametrize("kernel, said", [
    (lambda x, out: 1 / 0, "ZeroDivisionError"),
    (lambda x, out: x[:5], "expected shape (1000,), got (5,)"),
    (lambda x, out: [x, x], "expected 1 outputs, got 2"),
])
def test_what_cannot_be_compared_is_wrong(context, kernel, said):
    assert said in verdict(context, kernel).complaint


def test_the_first_wrong_element_is_found_in_a_large_array(context):
    def off(x, out):
        double(x, out)
        out[[70_000, 200_001]] += 1

    found = verdict(context, off, elements=300_000)
    assert "2 of 300000 elements wrong, the first at [70000]" in found.complaint
    assert found.max_error > 0.3


def test_a_peer_may_round_more_often(context):
    def rough(x, out):
        double(x, out)
        out[500] += 1e-3

    case = Doubling(context, peers={"strict": Peer("1", rough), "lenient": Peer("1", rough, 1e-2)})
    verdicts = check(case, {name: rough for name in ("ours", "strict", "lenient")}, CpuClock())
    assert [name for name, found in verdicts.items() if found.right] == ["lenient"]
    assert "within 1e-06" in verdicts["strict"].complaint


def test_nothing_to_compute_is_right(context):
    assert verdict(context, double, elements=0).right
