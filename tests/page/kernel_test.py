"""The roles inside a kernel: under the engines on the same axis, and how one gets there."""

import pytest
from selenium.webdriver.common.keys import Keys

from samples import MS, inside, lane, many, role_lane, timelines

STAGES = (("upload", "upload", 3 * MS), ("compute", "iterate", 4 * MS), ("download", "download", 3 * MS))
ENGINES = len(STAGES)
LANE, INDEX = 1, 5  # the traced kernel's bar
ALIGNED = "clocks aligned to within 41.25\u00a0ns (median 12.5\u00a0ns), placed to within 2.5\u00a0µs"


@pytest.fixture
def section():
    made = timelines(12, STAGES)
    inside(made["runs"][1], LANE, INDEX)
    return made


@pytest.fixture
def page(screen, section):
    return screen.open({"title": "t", "sections": [section]})


def bar(section, run=1, number=LANE, index=INDEX):
    """When an interval begins and ends."""
    within = section["runs"][run]["lanes"][number]
    begin = sum(within["begin_ns"][:index + 1])
    return begin, begin + within["length_ns"][index]


def is_inside(page, section):
    """The view is the kernel's bar and little more."""
    (begin, end), (first, last) = page.view(), bar(section)
    return begin <= first and end >= last and end - begin < 1.1 * (last - first)


def test_roles_are_lanes_under_the_engines_on_the_same_axis(page, section):
    engines = [page.lane(1, number) for number in range(ENGINES)]
    roles = [page.lane(1, ENGINES + number) for number in range(6)]
    assert min(role["top"] for role in roles) > max(engine["top"] for engine in engines)
    assert {(one["left"], one["right"]) for one in engines + roles} == \
        {(engines[0]["left"], engines[0]["right"])}
    assert page.js("return penstockPage.bars(1)") == 12 * ENGINES + 6 * 16
    assert page.js("return penstockPage.bars(0)") == 12 * ENGINES


def test_the_alignment_error_stands_beside_the_button(page):
    assert page.texts(".kernels .button") == ["zoom into iterate 5"]
    assert page.texts(".kernels span") == [f"pipelined: {ALIGNED}"]


def test_what_did_not_fit_is_said(screen, section):
    section["runs"][1]["kernels"][0]["lost"] = 17
    page = screen.open({"sections": [section]})
    assert page.text(".kernels span").endswith("17 records did not fit")


def test_the_button_shows_the_roles(page, section):
    whole = page.view()
    page.click("zoom into iterate 5")
    assert is_inside(page, section)
    assert ALIGNED in page.text(".line-of-details")
    page.click("show the whole run")
    assert page.view() == whole


def test_the_button_is_found_and_pressed_by_keyboard(page, section):
    button = page.driver.find_element("css selector", ".kernels .button")
    for _ in range(20):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        if page.driver.switch_to.active_element == button:
            break
    assert page.driver.switch_to.active_element == button
    button.send_keys(Keys.ENTER)
    page.frames()
    assert is_inside(page, section)


def test_pressing_the_kernels_bar_shows_its_roles(page, section):
    x, y = page.at(sum(bar(section)) / 2, run=1, lane=LANE)
    page.move(x, y)
    assert page.js("return getComputedStyle(document.querySelector('.over')).cursor") == "pointer"
    assert page.texts(".tip *")[-2:] == ["inside", "6 lanes of roles"]
    page.drag(x, y, 0)
    assert is_inside(page, section)


def test_pressing_another_bar_does_not(page, section):
    whole = page.view()
    x, y = page.at(sum(bar(section, index=INDEX + 1)) / 2, run=1, lane=LANE)
    page.move(x, y)
    assert page.js("return getComputedStyle(document.querySelector('.over')).cursor") == "grab"
    page.drag(x, y, 0)
    assert page.view() == whole
    assert "item 6 begins" in page.text(".line-of-details")


def test_a_finger_gets_in(screen, section):
    page = screen.open({"sections": [section]}, width=390, mobile=True)
    page.touch((page.at(sum(bar(section)) / 2, run=1, lane=LANE),))
    assert is_inside(page, section)


def test_enter_on_the_kernels_bar_shows_its_roles(page, section):
    whole = page.view()
    page.keys(Keys.ENTER)
    assert page.view() == whole  # nothing is chosen yet
    down = Keys.SHIFT + Keys.ARROW_DOWN + Keys.NULL
    page.keys("]", *[down] * (ENGINES + LANE))
    page.keys(*"[" * 12, *"]" * (INDEX - 1), Keys.ENTER)
    assert page.view() == whole
    page.keys("]", Keys.ENTER)
    assert is_inside(page, section)
    assert page.text(".line-of-details").startswith("pipelined, inside iterate 5: 6 lanes of roles, ")


def test_a_bar_too_narrow_to_hit_is_hit_nearby(screen):
    section = timelines(2000, STAGES)
    inside(section["runs"][1], LANE, 700, tiles=4)
    page = screen.open({"sections": [section]})
    first, last = bar(section, index=700)
    x, y = page.at((first + last) / 2, run=1, lane=LANE)
    page.drag(x + 2, y, 0)
    begin, end = page.view()
    assert begin <= first and end >= last and end - begin < 1.1 * (last - first)


def test_hovering_a_role_tells_its_tile(page, section):
    page.click("zoom into iterate 5")
    kernel = section["runs"][1]["kernels"][0]
    loader = kernel["lanes"][0]
    middle = loader["begin_ns"][0] + loader["begin_ns"][1] + loader["length_ns"][1] / 2
    page.move(*page.at(middle, run=1, lane=ENGINES))
    tip = page.texts(".tip *")
    assert tip[:4] == ["role", "loader", "tile", "2"]
    assert tip[-6:] == ["block", "0", "SM", "0", "inside", "iterate 5"]


def test_walking_reaches_the_roles(page):
    down = Keys.SHIFT + Keys.ARROW_DOWN + Keys.NULL
    page.keys("]", *[down] * (2 * ENGINES))
    assert page.text(".line-of-details").startswith(
        "pipelined, inside iterate 5, block 0, loader: tile ")
    page.keys(down)
    assert "block 0, compute: tile " in page.text(".line-of-details")


def test_roles_keep_to_their_kernels_time(page, section):
    """Seen whole, the ground of a role's lane is no wider than the kernel."""
    place = page.lane(1, ENGINES)
    row = page.pixels(place["left"], place["top"] + 3, place["right"] - place["left"])
    plain = page.colour("var(--surface)")
    kernel = section["runs"][1]["kernels"][0]
    begin, end = page.view()
    wide = len(row) * (kernel["end_ns"] - kernel["begin_ns"]) / (end - begin)
    lines = 12 + 4  # the grid's and the kernel's own
    assert wide - 2 <= sum(pixel != plain for pixel in row) <= wide + lines


def test_the_roles_as_a_table(page):
    rows = page.js("""return [...document.querySelectorAll('.timeline details')][1]
                        .querySelectorAll('tbody tr').length""")
    assert rows == 6
    cells = page.js("""return [...[...document.querySelectorAll('.timeline details')][1]
                         .querySelector('tbody tr').cells].map((cell) => cell.textContent)""")
    assert cells[:5] == ["iterate 5", "0", "0", "loader", "16"]


def test_the_help_says_how(page):
    described = page.driver.find_element("css selector", ".over").get_attribute("aria-describedby")
    assert "to see the roles" in page.js("return document.getElementById(arguments[0]).textContent",
                                        described)


def test_without_kernels_nothing_is_offered(screen):
    page = screen.open({"sections": [timelines(12, STAGES)]})
    assert page.texts(".kernels") == []
    assert "roles" not in page.text("main")
    whole = page.view()
    page.keys("]", Keys.ENTER)
    assert page.view() == whole


def test_many_intervals_with_roles_take_no_more_rectangles_than_the_screen_has_columns(screen):
    data = many(100_000)
    run = data["sections"][0]["runs"][1]
    run["kernels"] = [{"name": "k", "bar": {"lane": 2, "index": 3}, "begin_ns": 0,
                       "end_ns": run["total_ns"], "error": {"max_ns": 1, "median_ns": 1}, "lanes": [
                           role_lane("loader", block, 0, [(tile, tile * 2_000, 1_500)
                                                          for tile in range(12_000)])
                           for block in range(4)]}]
    page = screen.open(data)
    place = page.lane(0, 0)
    assert 0 < page.js("return penstockPage.drawn()") <= 12 * round(place["right"] - place["left"])


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_is_wider_than_the_screen(screen, section, width):
    section["runs"][1]["kernels"][0]["name"] = "a_kernel_with_a_long_name_" * 6
    page = screen.open({"sections": [section]}, width=width, mobile=True)
    assert page.js("return document.documentElement.scrollWidth") == width


def test_on_paper_the_alignment_error_stays(page):
    page.cdp("Emulation.setEmulatedMedia", media="print", features=[])
    assert page.js("return document.querySelector('.kernels span').checkVisibility()")
    assert not page.js("return document.querySelector('.kernels .button').checkVisibility()")


def test_tiles_are_framed_in_their_own_block_only(screen):
    """Walking over a role's span paints frames in lanes of the same block and no other."""
    data = {"sections": [{"type": "timelines", "runs": [
        {"name": "r", "total_ns": 10 * MS, "lanes": [lane("compute", [(1, 0, 10 * MS)])], "kernels": [
            {"name": "k", "bar": {"lane": 0, "index": 0}, "begin_ns": 0, "end_ns": 10 * MS,
             "error": {"max_ns": 1, "median_ns": 1}, "lanes": [
                 role_lane("loader", 0, 0, [(1, 2 * MS, MS)]), role_lane("storer", 0, 0, [(1, 6 * MS, MS)]),
                 role_lane("loader", 1, 0, [(1, 4 * MS, MS)])]}]}]}]}
    page = screen.open(data)

    ink, surface = page.colour("var(--ink)"), page.colour("var(--surface)")

    def framed(number, time):
        """Whether something stands right above a bar: the upper side of its frame."""
        pixel = page.pixels(round(page.at(time, lane=number)[0]), page.lane(0, number)["top"] - 1, 1)[0]
        return abs(pixel[0] - ink[0]) < abs(pixel[0] - surface[0])

    down = Keys.SHIFT + Keys.ARROW_DOWN + Keys.NULL
    page.keys("]", down)
    assert framed(1, 2.4 * MS) and framed(2, 6.4 * MS)
    assert not framed(3, 4.4 * MS)
