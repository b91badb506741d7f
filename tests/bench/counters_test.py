"""ncu's CSV, and what is left of it when it breaks."""

from pathlib import Path

import pytest

from penstock.bench._counters import READ, TIME, WRITTEN, parse
from penstock.bench import BenchError

SAMPLE = (Path(__file__).parent / "samples" / "raw.csv").read_text()


def test_units_separators_and_talk_in_between():
    profile = parse(SAMPLE, "a.ncu-rep")
    assert [launch.kernel for launch in profile.launches] == [
        "void iterate_kernel<float4>(Cut, int)"] * 2
    assert profile.total(TIME) == pytest.approx(512e-6)
    assert profile.total(READ) == pytest.approx(1336.88e6)
    assert profile.total(WRITTEN) == 2 * 268435456
    assert profile.dram_bytes_per_second == pytest.approx((1336.88e6 + 536870912) / 512e-6)


def test_shares_are_weighed_by_time():
    share = parse(SAMPLE, "a").share("dram__throughput.avg.pct_of_peak_sustained_elapsed")
    assert share == pytest.approx((80 * 128 + 90 * 384) / 512)


@pytest.mark.parametrize("unit, scale", [("ns", 1e-9), ("nsecond", 1e-9), ("us", 1e-6), ("ms", 1e-3),
                                         ("msecond", 1e-3), ("second", 1), ("s", 1)])
def test_every_unit_of_time(unit, scale):
    assert parse(SAMPLE.replace('"usecond"', f'"{unit}"'), "a").total(TIME) == pytest.approx(
        512 * scale)


def test_a_share_that_ncu_does_not_know_is_not_a_number():
    share = parse(SAMPLE.replace('"50.00"', '"n/a"'), "a").share("lts__t_sector_hit_rate.pct")
    assert share != share


LINES = SAMPLE.splitlines()


@pytest.mark.parametrize("text, said", [
    ("", "a: ncu printed nothing"),
    ("==ERROR== The file is no report\n", "a: expected ncu's table, which begins with ID, got "
                                          "'==ERROR== The file is no report'"),
    ("\n".join(LINES[:3]), "a: no kernel was profiled"),
    ("\n".join(LINES[:4]), "a: no kernel was profiled"),
    ("\n".join(LINES[:5])[:-60], "is the file complete"),
    (SAMPLE.replace("lts__t_sector_hit_rate", "other"), "missing: lts__t_sector_hit_rate.pct"),
    (SAMPLE.replace('"128.00"', '"soon"'), f"a: {TIME}: expected a number, got 'soon'"),
    (SAMPLE.replace('"128.00"', '"0"'), f"a: {TIME}: expected a positive time, got '0'"),
    (SAMPLE.replace('"Mbyte"', '"acre"'), f"a: {READ}: expected a unit of time, bytes or %, "
                                          "got 'acre'"),
])
def test_what_is_wrong_is_named(text, said):
    with pytest.raises(BenchError) as failed:
        parse(text, "a")
    assert said in str(failed.value)


@pytest.mark.parametrize("cut", range(0, len(SAMPLE), 37))
def test_no_truncation_is_a_crash(cut):
    try:
        parse(SAMPLE[:cut], "a")
    except BenchError:
        pass
