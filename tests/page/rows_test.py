"""Intervals of a lane that overlap: each is seen, and can be pointed at, in a row of its own."""

import itertools

import pytest
from selenium.webdriver.common.keys import Keys

from samples import MS, lane

READS = [(0, 0, 4 * MS), (1, MS, 4 * MS), (2, 2 * MS, 4 * MS), (3, 4 * MS, 3 * MS), (4, 8 * MS, MS)]
ROWS = [0, 1, 2, 0, 0]


def shown(*lanes):
    return {"sections": [{"type": "timelines", "runs": [
        {"name": "r", "total_ns": 10 * MS, "lanes": list(lanes)}]}]}


def apart(one, other):
    return (one["right"] <= other["left"] + 0.01 or other["right"] <= one["left"] + 0.01 or
            one["bottom"] <= other["top"] or other["bottom"] <= one["top"])


@pytest.fixture(params=[1280, 390])
def page(screen, request):
    return screen.open(shown(lane("disk", READS, "read", ROWS), lane("compute", [(0, 5 * MS, MS)])),
                       width=request.param)


def test_no_bar_covers_another(page):
    bars = [page.bar(0, 0, index) for index in range(len(READS))]
    assert all(apart(one, other) for one, other in itertools.combinations(bars, 2))
    assert all(bar["bottom"] - bar["top"] > 5 for bar in bars)
    assert bars[0]["top"] == bars[3]["top"] == bars[4]["top"]


def test_the_lanes_below_make_room(page):
    lowest = max(page.bar(0, 0, index)["bottom"] for index in range(len(READS)))
    assert page.bar(0, 1, 0)["top"] >= lowest


def test_every_bar_is_painted_where_it_belongs(page):
    ground = page.colour("var(--track)")
    for index in range(len(READS)):
        bar = page.bar(0, 0, index)
        row = page.pixels(round(bar["left"]) + 1, round(bar["top"]) + 1,
                          round(bar["right"]) - round(bar["left"]) - 2)
        assert len(row) > 10 and all(pixel != ground for pixel in row), index
    lowest = page.bar(0, 0, 2)  # nothing else is in its row
    beside = page.pixels(round(lowest["right"]) + 3, round(lowest["top"]) + 1, 20)
    assert all(pixel == ground for pixel in beside)


def test_hovering_finds_the_bar_of_the_row(page):
    at = 4_500_000 / (10 * MS)  # reads 1, 2 and 3
    for index in (1, 2, 3):
        bar, place = page.bar(0, 0, index), page.lane(0, 0)
        page.move(place["left"] + at * (place["right"] - place["left"]),
                  (bar["top"] + bar["bottom"]) / 2)
        assert page.texts(".tip b")[1] == str(index)


def test_walking_goes_by_begin_through_all_rows(page):
    for item in range(len(READS)):
        page.keys("]")
        assert f"item {item} " in page.text(".line-of-details")
        assert f"({item + 1} of {len(READS)})" in page.text(".line-of-details")
    page.keys(Keys.ESCAPE)


def test_the_busy_time_counts_overlapping_intervals_once(page):
    assert page.texts(".timeline td")[4:6] == ["8\u00a0ms", "80.0%"]


def test_very_many_rows_stay_visible_and_apart(screen):
    reads = [(item, item * 1_000, 8 * MS) for item in range(100)]
    page = screen.open(shown(lane("disk", reads, rows=list(range(100)))))
    bars = [page.bar(0, 0, index) for index in range(100)]
    assert all(one["bottom"] <= other["top"] for one, other in itertools.pairwise(bars))
    assert all(bar["bottom"] - bar["top"] >= 2 for bar in bars)


def test_many_overlapping_intervals_take_no_more_rectangles_than_columns(screen):
    reads = [(item, item * 500, 1_900) for item in range(20_000)]
    page = screen.open(shown(lane("disk", reads, rows=[item % 4 for item in range(20_000)])))
    place = page.lane(0, 0)
    assert 0 < page.js("return penstockPage.drawn()") <= 4 * (place["right"] - place["left"])
