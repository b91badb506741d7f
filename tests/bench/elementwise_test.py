"""The benchmarks of transform and copy: right on the CPU, and what they count."""

import numpy
import pytest

from penstock.bench import Absent
from penstock.bench._clock import CpuClock
from penstock.bench._correctness import check
from penstock.bench.operators import copy, transform


def test_transform_is_right(bench):
    code, out, err = bench("transform", "--mode", "correctness", "--device", "cpu", "--quick")
    assert code == 0, err
    assert out.count(" right ") == 2 * len(transform.CASES) - 1  # NumPy has no GELU


def test_copy_is_right(bench):
    code, out, err = bench("copy", "--mode", "correctness", "--device", "cpu", "--quick")
    assert code == 0, err
    assert out.count(" right ") == 2 * len(copy.ON_CPU)


def test_the_cases_are_those_that_are_listed(context):
    assert list(transform.CASES) == ["cast f32 to bf16", "scale bf16", "axpby f32", "axpby bf16",
                                     "add 3 f32", "swiglu bf16", "gelu bf16", "mul f16"]
    assert [case.name for case in transform.operator.cases(context)][:2] == ["cast f32 to f16",
                                                                             "scale f16"]
    assert {(source, target) for source, target, _ in copy.CASES.values()} == {
        ("device", "device"), ("host", "device"), ("device", "host")}


def test_transform_counts_its_bytes(context):
    cases = {case.name: case for case in transform.operator.cases(context)}
    for name, per_element in (("cast f32 to f16", 6), ("axpby f32", 12), ("add 3 f32", 16),
                              ("swiglu f16", 6), ("gelu f16", 4)):
        case = cases[name]
        assert case.bytes == per_element * case.params["elements"]
        assert case.params["elements"] % 4096 == 0
        assert case.roof_us({"host_copy": 1e9}) == pytest.approx(case.bytes * 1e-3)
    assert isinstance(cases["gelu f16"].peers()["numpy"], Absent)


@pytest.mark.parametrize("number", range(len(transform.CASES)))
def test_what_transform_computes_wrongly_is_found(context, number):
    case = transform.operator.cases(context)[number]

    def late(inputs, out):
        case.kernels()["best"](inputs, out)
        out[:] = numpy.roll(out, 1)

    def light(inputs, out):
        case.kernels()["best"](inputs, out)
        out *= 1 - 4 * case.tolerance

    verdicts = check(case, {**case.kernels(), "late": late, "light": light}, CpuClock())
    assert {name: verdict.right for name, verdict in verdicts.items()} == {
        "best": True, "late": False, "light": False}


def test_one_wrong_bit_of_a_copy_is_found(context):
    case = copy.operator.cases(context)[0]
    assert case.bytes == 2 * case.params["bytes"] == 2 * copy.QUICK

    def flips(source, target):
        case.kernels()["best"](source, target)
        target.view("u4")[17] ^= 1

    verdict = check(case, {"flips": flips}, CpuClock())["flips"]
    assert "expected 0 within 0, got 1" in verdict.complaint


def test_a_copy_over_the_link_moves_every_byte_once(context):
    case = copy.CopyCase(context, "it", "host", "device", 4000)
    assert case.bytes == 4000 and case.roof_us({"h2d": 1e9}) == pytest.approx(4)
    assert "link" in case.yardstick
