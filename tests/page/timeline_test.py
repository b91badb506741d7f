"""The timelines: what they show, and how they answer to wheel, keys, buttons, drags and fingers."""

import time

import pytest
from selenium.webdriver.common.keys import Keys

from samples import MS, busy_ns, lane, many, timelines

STAGES = (("disk", "read", 2 * MS), ("upload", "upload", 3 * MS), ("compute", "iterate", 4 * MS))


def shown(*runs):
    return {"title": "t", "sections": [{"type": "timelines", "title": "runs", "runs": list(runs)}]}


@pytest.fixture
def section():
    return timelines(12, STAGES)


@pytest.fixture
def page(screen, section):
    return screen.open({"title": "t", "sections": [section]})


def settle():
    """A page that has just scrolled leaves the wheel to scrolling for a moment."""
    time.sleep(0.3)


def test_every_interval_is_there(page, section):
    for number, run in enumerate(section["runs"]):
        assert page.js("return penstockPage.bars(arguments[0])", number) == 12 * len(STAGES)
    assert page.js("return penstockPage.drawn()") == 2 * 12 * len(STAGES)
    assert page.view() == (0, max(run["total_ns"] for run in section["runs"]))


def test_the_runs_share_one_axis(page):
    for number in range(len(STAGES)):
        first, second = page.lane(0, number), page.lane(1, number)
        assert (first["left"], first["right"]) == (second["left"], second["right"])
        assert second["top"] > first["top"]


def test_the_wheel_zooms_about_the_pointer(page, section):
    settle()
    x, y = map(round, page.at(section["runs"][0]["total_ns"] * 0.3))  # wheels know whole pixels only
    under = page.time_at(x)
    whole = page.view()
    page.wheel(x, y, -300)
    near = page.view()
    assert near[1] - near[0] < 0.7 * (whole[1] - whole[0])
    assert page.time_at(x) == pytest.approx(under, abs=(near[1] - near[0]) * 1e-6)
    page.wheel(x, y, 150)
    assert page.time_at(x) == pytest.approx(under, abs=(near[1] - near[0]) * 1e-6)
    page.wheel(x, y, 5000)
    assert page.view() == whole


def test_the_page_stays_where_it_is_while_the_wheel_zooms(screen, section):
    page = screen.open({"sections": [section] * 3})
    page.js("scrollTo(0, 60)")
    settle()
    page.wheel(*page.at(MS), -200)
    settle()
    assert page.js("return scrollY") == 60


def test_the_wheel_scrolls_the_page_where_there_is_nothing_to_zoom_out(screen, section):
    page = screen.open({"sections": [section] * 3})
    page.js("scrollTo(0, 0)")
    settle()
    x, y = page.at(0)
    page.wheel(x, y, 200)
    settle()
    assert page.js("return scrollY") > 0


@pytest.mark.parametrize("zoom_in, zoom_out, whole", [("+", "-", "0"), ("=", "-", Keys.HOME)])
def test_keys_zoom(page, zoom_in, zoom_out, whole):
    all_of_it = page.view()
    page.keys(zoom_in, zoom_in)
    near = page.view()
    assert near[1] - near[0] == pytest.approx((all_of_it[1] - all_of_it[0]) / 1.5**2)
    page.keys(zoom_out)
    assert page.view()[1] - page.view()[0] > near[1] - near[0]
    page.keys(whole)
    assert page.view() == all_of_it


def test_keys_pan_and_stop_at_the_ends(page):
    whole = page.view()
    page.keys("+", "+", "+")
    before = page.view()
    page.keys(Keys.ARROW_RIGHT)
    after = page.view()
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0])
    page.keys(*[Keys.ARROW_LEFT] * 20)
    assert page.view()[0] == whole[0]
    page.keys(*[Keys.ARROW_RIGHT] * 40)
    assert page.view()[1] == whole[1]


def test_buttons(page):
    whole = page.view()
    page.click("zoom in")
    near = page.view()
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 1.5)
    page.click("zoom out")
    assert page.view() == pytest.approx(whole)
    page.click("zoom in")
    page.click("show the whole run")
    assert page.view() == whole


def test_a_drag_takes_the_time_along(page):
    page.keys("+", "+", "+")
    x, y = page.at(sum(page.view()) / 2)
    held = page.time_at(x)
    page.drag(x, y, -120)
    assert page.time_at(x - 120) == pytest.approx(held, rel=1e-6)


def test_fingers_pan_and_pinch(screen, section):
    page = screen.open({"sections": [section]}, width=390, mobile=True)
    x, y = page.at(section["runs"][0]["total_ns"] / 2)
    whole = page.view()
    spreads = [((x - reach, y), (x + reach, y)) for reach in (20, 30, 45, 60, 80)]
    under = page.time_at(x)
    page.touch(*spreads)
    near = page.view()
    assert near[1] - near[0] < 0.4 * (whole[1] - whole[0])
    assert page.time_at(x) == pytest.approx(under, rel=0.02)

    page.touch(*[((x + by, y),) for by in (0, -15, -30, -45, -60)])
    assert page.view()[0] > near[0]
    assert page.view()[1] - page.view()[0] == pytest.approx(near[1] - near[0])


def test_a_tap_keeps_the_details(screen, section):
    page = screen.open({"sections": [section]}, width=390, mobile=True)
    page.touch((page.at(MS, run=0, lane=0),))
    assert page.text(".line-of-details").startswith("sequential, read (disk): item 0 begins at 0")


def test_hovering_tells_the_details(screen):
    page = screen.open(shown({"name": "r", "total_ns": 10 * MS, "lanes": [
        lane("disk", [(7, MS, 2_500_000), (8, 6 * MS, 12_300)], "read")]}))
    page.move(*page.at(2 * MS))
    assert page.texts(".tip *") == ["stage", "read", "item", "7", "begin", "1\u00a0ms",
                                    "length", "2.5\u00a0ms", "engine", "disk"]
    page.move(*page.at(6 * MS))
    assert "12.3\u00a0µs" in page.texts(".tip b")
    page.move(*page.at(9 * MS))
    assert page.js("return document.querySelector('.tip').hidden")


def test_walking_from_interval_to_interval(page):
    page.keys("]")
    assert page.text(".line-of-details").startswith("sequential, read (disk): item 0 ")
    page.keys("]", Keys.SHIFT + Keys.ARROW_RIGHT)
    assert "item 2 " in page.text(".line-of-details")


def test_walking_keeps_the_chosen_interval_in_sight(page, section):
    page.keys(*"++++++", "0", *"++++++")
    page.keys("]", *"[" * 20)
    begin, end = page.view()
    assert "(1 of 12)" in page.text(".line-of-details")
    assert begin == 0 and end < section["runs"][0]["total_ns"]


def test_walking_between_lanes_and_runs(page):
    down = Keys.SHIFT + Keys.ARROW_DOWN + Keys.NULL
    page.keys("]", down)
    assert page.text(".line-of-details").startswith("sequential, upload: item 0 ")
    page.keys(down, down)
    assert page.text(".line-of-details").startswith("pipelined, read (disk): ")
    page.keys(Keys.ESCAPE)
    assert page.text(".line-of-details") == ""


def test_the_keyboard_reaches_it_and_it_describes_itself(page):
    canvas = page.driver.find_element("css selector", ".over")
    for _ in range(10):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        if page.driver.switch_to.active_element == canvas:
            break
    assert page.driver.switch_to.active_element == canvas
    assert page.js("return getComputedStyle(arguments[0]).outlineStyle", canvas) == "solid"
    assert "sequential" in canvas.get_attribute("aria-label")
    assert page.js("return document.getElementById(arguments[0]).textContent",
                   canvas.get_attribute("aria-describedby")).count("zoom") == 2
    assert page.js("return document.querySelector('.line-of-details').ariaLive") == "polite"


def test_the_same_as_a_table(page, section):
    rows = page.js("""return [...document.querySelectorAll('.timeline details tbody tr')]
                              .map((row) => [...row.cells].map((cell) => cell.textContent))""")
    expected = [(run, one) for run in section["runs"] for one in run["lanes"]]
    assert len(rows) == len(expected)
    for row, (run, one) in zip(rows, expected):
        assert row[:4] == [run["name"], one["stage"], one["engine"], "12"]
        assert row[5] == f"{busy_ns(one) / run['total_ns']:.1%}"


def test_lost_records_are_said_above_the_timeline(screen):
    run = {"name": "cut", "total_ns": MS, "lanes": [lane("disk", [(0, 0, MS)])]}
    page = screen.open(shown({**run, "name": "whole"}, {**run, "lost_records": 3}))
    assert page.text(".lost-records").startswith("Incomplete: cut, 3 records lost.")
    assert "3 records lost" in page.js("return document.querySelector('.over').ariaLabel")
    screen.open(shown(run))
    assert page.js("return document.querySelector('.lost-records')") is None


def test_several_at_once_count_once(screen):
    page = screen.open(shown({"name": "r", "total_ns": 10 * MS, "lanes": [
        lane("disk", [(0, 0, 4 * MS), (1, MS, MS), (2, 3 * MS, 2 * MS)])]}))
    assert page.texts(".timeline td")[-2:] == ["5\u00a0ms", "50.0%"]


def test_many_intervals_take_no_more_rectangles_than_the_screen_has_columns(screen):
    data = many(100_000)
    page = screen.open(data)
    lanes = sum(len(run["lanes"]) for run in data["sections"][0]["runs"])
    place = page.lane(0, 0)
    assert sum(page.js("return penstockPage.bars(arguments[0])", run) for run in (0, 1)) == 100_000
    assert 0 < page.js("return penstockPage.drawn()") <= lanes * round(place["right"] - place["left"])

    middle = page.at(sum(page.view()) / 2)[0]
    page.js("""for (let n = 0; n < 400; ++n) document.querySelector('.over').dispatchEvent(
                 new WheelEvent('wheel', {deltaY: -20, clientX: arguments[0], ctrlKey: true}));""",
            middle)
    page.frames()
    begin, end = page.view()
    assert end - begin == pytest.approx(50)
    assert page.js("return penstockPage.drawn()") <= lanes
