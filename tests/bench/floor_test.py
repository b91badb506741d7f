"""A result that beats its floor is dropped with its reason; peers and roofs may be beaten."""

import json
import math
import time
import warnings
from pathlib import Path

import pytest

import penstock
from penstock.bench import Yardstick, _results
from penstock.bench._clock import CpuClock
from penstock.bench._floor import LEAST_OVER_FLOOR, Floor, reason_to_drop
from penstock.bench._performance import run_case
from penstock.bench._table import of_results
from penstock.bench._timing import Plan

from conftest import Doubling, double

ROOT = Path(__file__).resolve().parents[2]


def test_a_floor_is_the_best_pass():
    floor = Floor()
    for us in (44.5, 42.3, 43.0):
        floor.add(us)
    assert floor.us == 42.3 and floor.passes == 3


def test_a_floor_without_a_pass_is_an_error():
    with pytest.raises(penstock.InvalidArgument, match="at least one pass"):
        Floor().us


@pytest.mark.parametrize("us", [0.0, -1.0, math.nan, math.inf])
def test_times_must_be_positive_and_finite(us):
    for use in (Floor().add, lambda us: reason_to_drop(us, 1), lambda us: reason_to_drop(1, us)):
        with pytest.raises(penstock.InvalidArgument, match="positive, finite"):
            use(us)


@pytest.mark.parametrize("us, kept", [(200, True), (100, True), (98, True), (97.9, False),
                                      (50, False)])
def test_results_below_98_percent_of_the_floor_are_dropped(us, kept):
    reason = reason_to_drop(us, 100)
    assert kept == (reason == "")
    if not kept:
        assert f"took {us:g} us, {us / 100:.3f} x its floor of 100 us" in reason


def test_results_take_a_case_or_drop_it_with_its_reason(capsys):
    def case(name, us, **floor):
        return {"case": name, "ours": {"call_us": us}} | floor

    results = {"cases": []}
    assert _results.add(results, case("kept", 98.0, floor_us=100.0))
    assert _results.add(results, case("without", 1.0))
    assert "dropped" not in results
    assert not _results.add(results, case("beaten", 90.0, floor_us=100.0))
    assert [each["case"] for each in results["cases"]] == ["kept", "without"]
    assert results["dropped"] == [{"case": "beaten", "us": 90.0, "floor_us": 100.0,
                                   "reason": reason_to_drop(90.0, 100.0)}]
    assert capsys.readouterr().out.startswith("beaten: dropped: took 90 us")


def test_the_rule_is_that_of_cpp():
    header = (ROOT / "include/penstock/measure/floor.h").read_text()
    assert f"least_over_floor = {LEAST_OVER_FLOOR};" in header


class WithEngines(Doubling):
    def __init__(self, context, engines, **more):
        super().__init__(context, **more)
        self._engines = engines

    def engines(self):
        return self._engines


def run_scripted(context, ours, **engines):
    """One case whose kernel takes `ours`, and whose engines take those times alone."""
    class Clock(CpuClock):
        def gpu_us(self, run, expected_host_us):
            run()
            return Clock.times[run.args[0].__name__].pop(0)

    def named(name):
        def call(x, out):
            double(x, out)

        call.__name__ = name
        return call

    Clock.times = {"ours": [ours] * 99, **{name: [*times] * 20 for name, times in engines.items()}}
    case = WithEngines(context, {name: named(name) for name in engines},
                       kernels={"default": named("ours")},
                       peers={"copy": Yardstick("1", named("ours"))})
    return run_case(case, case.kernels(), Clock(), Plan.quick(), 1 << 16, {"host_copy": 1e9})


def test_the_floor_is_the_best_pass_of_the_slowest_engine(context):
    entry = run_scripted(context, 105.0, link=[110.0, 100.0, 104.0], copy_engine=[50.0]).entry
    assert entry["floor_us"] == 100 and entry["metrics"]["over_floor"] == 1.05
    assert entry["metrics"]["engines_us"] == {"link": 100, "copy_engine": 50}
    assert set(entry["peer"]) == {"copy"}, "engines are no peers"


def test_a_case_that_beats_its_floor_is_dropped(context):
    result = run_scripted(context, 90.0, link=[110.0, 100.0])
    assert result.entry is None and not result.complaints
    assert result.dropped["case"] == "double" and result.dropped["floor_us"] == 100
    assert "0.900 x its floor" in result.dropped["reason"]


def test_a_case_within_the_clocks_noise_is_kept(context):
    assert run_scripted(context, 98.5, link=[100.0]).entry["metrics"]["over_floor"] == 0.985


def test_without_engines_there_is_no_floor_and_the_roof_may_be_beaten(context):
    entry = run_scripted(context, 2.0).entry  # the roof of 8000 bytes at 1 GB/s is 8 us
    assert "floor_us" not in entry and entry["yardstick_us"] == 8 and entry["metrics"]["of_roof"] == 4


def test_the_table_and_the_file_name_what_was_dropped(bench, operator, tmp_path):
    def slow(x, out):
        time.sleep(0.02)

    operator(lambda context: [Doubling(context, "kept"),
                              WithEngines(context, {"slow": slow}, name="beaten")])
    code, out, err = bench("double", "--quick", "--device", "cpu", "--output", "r.json")
    assert code == 0, err
    assert "beaten: dropped: took" in out.splitlines()[-1]
    results = json.loads((tmp_path / "r.json").read_text())
    assert [case["case"] for case in results["cases"]] == ["kept"]
    assert [case["case"] for case in results["dropped"]] == ["beaten"]
    assert "dropped" in of_results(results)


def test_the_old_name_of_the_roof_still_works(context):
    class Old(Doubling):
        roof_us = penstock.bench.Case.roof_us

        def floor_us(self, ceilings):
            return 5.0

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert Old(context).roof_us({}) == 5
    assert "roof_us" in str(seen[0].message) and seen[0].category is DeprecationWarning
