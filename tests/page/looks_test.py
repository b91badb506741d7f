"""How it looks, by structure: what the screen's pixels say against what the data say."""

import pytest

from samples import MS, busy_ns, lane, many, report, timelines


def colouredness(pixel, ground, colour):
    """0 on the lane's ground, 1 where it is all of the engine's colour."""
    towards = [c - g for c, g in zip(colour, ground)]
    length = sum(part * part for part in towards)
    return max(0, min(1, sum((p - g) * t for p, g, t in zip(pixel, ground, towards)) / length))


def shares(screen, run, number, engine):
    """How coloured each pixel of a lane is."""
    place = screen.lane(run, number)
    ground, colour = screen.colour("var(--track)"), screen.engine_colour(engine)
    row = screen.pixels(place["left"], place["top"] + 3, place["right"] - place["left"])
    return [colouredness(pixel, ground, colour) for pixel in row]


def relative_luminance(colour):
    parts = [part / 255 for part in colour]
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(screen, one, other):
    lights = sorted(relative_luminance(screen.colour(f"var(--{name})")) for name in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


@pytest.mark.parametrize("scheme, ratio", [("light", 1), ("dark", 2)])
def test_bars_cover_as_much_as_the_engines_were_busy(screen, scheme, ratio):
    section = timelines(10)
    page = screen.open({"sections": [section]}, prefers_color_scheme=scheme, ratio=ratio)
    whole = page.view()[1]
    for r, run in enumerate(section["runs"]):
        for number, one in enumerate(run["lanes"]):
            row = shares(page, r, number, one["engine"])
            covered = [share > 0.5 for share in row]
            assert sum(covered) / len(row) == pytest.approx(busy_ns(one) / whole, abs=0.02)
            last = len(covered) - covered[::-1].index(True)
            ends = sum(one["begin_ns"]) + one["length_ns"][-1]
            assert last / len(row) == pytest.approx(ends / whole, abs=0.004)


def test_merged_intervals_are_as_dense_as_the_engines_were_busy(screen):
    data = many(40_000)
    page = screen.open(data)
    whole = page.view()[1]
    for r, run in enumerate(data["sections"][0]["runs"]):
        for number, one in enumerate(run["lanes"]):
            row = shares(page, r, number, one["engine"])
            assert sum(row) / len(row) == pytest.approx(busy_ns(one) / whole, abs=0.03)


def test_intervals_at_once_are_no_denser_than_one(screen):
    twice = [(item, item // 2 * 2_000, 1_000) for item in range(20_000)]
    page = screen.open({"sections": [{"type": "timelines", "runs": [
        {"name": "r", "total_ns": 20 * MS, "lanes": [lane("disk", twice)]}]}]})
    row = shares(page, 0, 0, "disk")
    assert sum(row) / len(row) == pytest.approx(0.5, abs=0.03)


def test_an_interval_without_length_is_seen(screen):
    page = screen.open({"sections": [{"type": "timelines", "runs": [
        {"name": "r", "total_ns": 10 * MS, "lanes": [lane("host", [(0, 5 * MS, 0)])]}]}]})
    row = shares(page, 0, 0, "host")
    seen = [at for at, share in enumerate(row) if share > 0.3]
    assert seen == [pytest.approx(len(row) / 2, abs=2)]


def test_engines_have_colours_of_their_own(screen):
    engines = ["disk", "host", "upload", "download", "device copy", "compute", "unheard of", "another"]
    page = screen.open({"sections": [{"type": "timelines", "runs": [
        {"name": "r", "total_ns": MS, "lanes": [lane(engine, [(0, 0, MS)]) for engine in engines]}]}]})
    colours = {tuple(page.engine_colour(engine)) for engine in engines}
    assert len(colours) == len(engines)
    for number, engine in enumerate(engines):
        row = shares(page, 0, number, engine)
        assert sum(row) / len(row) > 0.98


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_graphics_stand_out(screen, scheme):
    page = screen.open(report(), prefers_color_scheme=scheme)
    for ground in ("page", "surface", "track"):
        for ink in ("ink", "muted", "accent"):
            assert contrast(page, ink, ground) >= 4.5, (ink, ground)
        for engine in ("disk", "host", "upload", "download", "device-copy", "compute"):
            assert contrast(page, f"engine-{engine}", ground) >= 3, (engine, ground)


def test_dark_follows_the_system_and_the_button_turns_it(screen):
    def page_and_bar():
        return (tuple(screen.colour("var(--page)")), tuple(screen.engine_colour("disk")),
                tuple(screen.pixels(screen.lane(0, 0)["left"] + 3, screen.lane(0, 0)["top"] + 3, 1)[0]))

    screen.open(report(), prefers_color_scheme="light")
    light = page_and_bar()
    screen.open(report(), prefers_color_scheme="dark")
    dark = page_and_bar()
    assert all(one != other for one, other in zip(light, dark))
    assert screen.text("#theme") == "Light colours"
    screen.driver.find_element("id", "theme").click()
    screen.frames()
    assert page_and_bar() == light
    assert screen.text("#theme") == "Dark colours"
    screen.open(report(), prefers_color_scheme="dark")
    assert page_and_bar() == dark  # nothing is remembered


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_is_wider_than_the_screen(screen, width):
    page = screen.open(report(), width=width, mobile=True)
    assert page.js("return document.documentElement.scrollWidth") == width
    outside = page.js("""return [...document.querySelectorAll('main *')].filter((node) =>
        !node.closest('.scroll') && node.getBoundingClientRect().right > innerWidth + 0.5)
        .map((node) => node.outerHTML.slice(0, 80))""")
    assert outside == []


def test_a_wide_table_scrolls_by_itself(screen):
    page = screen.open(report(), width=390, mobile=True)
    inner, outer = page.js("const box = document.querySelector('.scroll');"
                           "return [box.scrollWidth, box.clientWidth]")
    assert inner > outer


def test_it_follows_the_windows_width(screen):
    page = screen.open(report())
    before = page.lane(0, 0)["right"]
    page.resize(800)
    assert page.lane(0, 0)["right"] < before
    assert page.js("return document.querySelector('svg[role=img]').getBoundingClientRect().right") < 800


def test_no_motion_where_none_is_wanted(screen):
    screen.open(report(), prefers_reduced_motion="reduce")
    assert screen.js(
        "return getComputedStyle(document.querySelector('.button')).transitionDuration") == "0s"


def test_on_paper_it_is_light_and_without_buttons(screen):
    page = screen.open(report(), prefers_color_scheme="dark")
    page.js("dispatchEvent(new Event('beforeprint'))")
    page.cdp("Emulation.setEmulatedMedia", media="print", features=[])
    assert page.colour("var(--ink)") == page.colour("#15202b")
    assert page.js(
        "return [...document.querySelectorAll('button')].every((one) => !one.checkVisibility())")
    page.js("dispatchEvent(new Event('afterprint'))")
    assert page.cdp("Page.printToPDF", printBackground=True)["data"]
