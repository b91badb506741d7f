"""A report shows data from anywhere: it stays text, and the page asks nobody for anything."""

import json

from samples import MS, lane, report

EVIL = "<img src=x onerror=\"window.stolen=1\"></script><script>window.stolen=1</script>{{js}}"


def replaced(value):
    """The same data with every text in it evil, but for what the page goes by."""
    if isinstance(value, dict):
        return {key: one if key in ("type", "unit", "scale") else replaced(one)
                for key, one in value.items()}
    if isinstance(value, list):
        return [replaced(one) for one in value]
    return EVIL if isinstance(value, str) else value


def test_evil_text_stays_text(screen):
    page = screen.open(replaced(report()))
    page.move(*page.at(MS / 2))
    page.keys("]")
    assert page.js("return window.stolen") is None
    assert page.js("return document.querySelectorAll('main img, main script').length") == 0
    assert page.text("h1") == EVIL
    assert page.driver.title == EVIL
    assert EVIL in page.texts(".tip b")
    assert EVIL in page.text(".line-of-details")
    assert page.texts("h2") == [EVIL] * len(report()["sections"])


def test_an_evil_stage(screen):
    screen.open({"sections": [{"type": "timelines", "runs": [
        {"name": "r", "total_ns": MS, "lanes": [lane("__proto__", [(0, 0, MS)], EVIL)]}]}]})
    screen.move(*screen.at(MS / 2))
    assert EVIL in screen.texts(".tip b")
    assert screen.js("return window.stolen") is None


def test_no_request_leaves_the_page(screen):
    screen.open(report())
    screen.move(*screen.at(MS / 2))
    assert screen.js("return performance.getEntriesByType('resource').map((one) => one.name)") == []


def test_one_name_of_its_own(screen, tmp_path):
    names = "return Object.getOwnPropertyNames(window)"
    (tmp_path / "empty.html").write_text("<!doctype html>")
    screen.driver.get((tmp_path / "empty.html").as_uri())
    screen.frames()  # the driver leaves names of its own
    before = set(screen.js(names))
    screen.open(report())
    assert set(screen.js(names)) - before == {"penstockPage"}


def test_the_data_is_in_the_page_as_given(screen):
    screen.open(report())
    assert json.loads(screen.text("#data")) == json.loads(json.dumps(report()))
