"""Pictures of traces: what they show, and that they are the same every time."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import picture
import pytest

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("loader", "compute", "storer")
SVG = "{http://www.w3.org/2000/svg}"


def ring(tiles=60, block=0):
    """Three roles that overlap, a tile every 1000 ns."""
    for tile in range(tiles):
        at = 1000 * tile
        yield block, 0, tile * 132, max(0, at - 3000), at
        yield block, 1, tile * 132, at, at + 900
        yield block, 2, tile * 132, at + 900, at + 1400


def turns(blocks=32, at_once=4):
    """Blocks of one tile each, which load, compute and store by turns."""
    for block in range(blocks):
        at = 2000 * (block // at_once) + 100 * (block % at_once)
        yield block, 0, 0, at, at + 1000
        yield block, 1, 0, at + 1000, at + 1700
        yield block, 2, 0, at + 1700, at + 1750


def document(spans=None, roles=ROLES, **more):
    spans = [[block, 7, role, tile, begin, end]
             for block, role, tile, begin, end in (ring() if spans is None else spans)]
    kernel = {"run": "k", "name": "copy_ring", "stage": "k", "item": 0, "roles": list(roles),
              "begin_ns": 0, "end_ns": max((span[5] for span in spans), default=0),
              "error": {"max_ns": 41.4, "median_ns": 12.0, "place_ns": 0.0}, "lost": 0,
              "columns": ["block", "sm", "role", "tile", "begin_ns", "end_ns"], "spans": spans}
    return {"schema": 1, "kind": "trace", "version": "0", "commit": "c", "date": "d",
            "device": {"name": "cuda:0", "model": "GPU"}, "name": "Inside",
            "timelines": {"columns": []}, "kernels": [{**kernel, **more}]}


@pytest.fixture
def trace(write):
    def write_trace(*arguments, **more):
        return write("copy_ring.json", json.dumps(document(*arguments, **more)))

    return write_trace


def texts(path, kind):
    root = ElementTree.fromstring(picture.svg(path))
    return [text.text for text in root.iter(f"{SVG}text") if text.get("class") == kind]


def run(*arguments):
    return subprocess.run([sys.executable, ROOT / "tools/picture.py", *map(str, arguments)],
                          capture_output=True, text=True)


def test_a_block_alone_has_a_lane_a_role(trace):
    path = trace()
    assert texts(path, "n") == list(ROLES)
    assert texts(path, "a")[0] == "0" and texts(path, "a")[-1].endswith(" µs")


def test_the_middle_of_a_long_trace_is_shown(trace):
    window = picture.Shown(trace()).window
    assert window["end_ns"] - window["begin_ns"] == picture.TILES * 1000
    assert 20_000 < window["begin_ns"] < 40_000


def test_all_of_a_short_trace_is_shown(trace):
    window = picture.Shown(trace(ring(5))).window
    assert (window["begin_ns"], window["end_ns"]) == (0, 5400)


def test_the_window_is_around_the_rarest_role(trace):
    spans = [span for span in ring() if span[1] < 2 or span[2] == 20 * 132]
    window = picture.Shown(trace(spans)).window
    assert window["begin_ns"] < 20_900 and window["end_ns"] > 21_400


def test_tiles_are_numbered_from_the_first_shown(trace):
    numbers = [int(text) for text in texts(trace(), "t")]
    assert min(numbers) == 0 and set(range(picture.TILES)) <= set(numbers)


def test_bars_that_overlap_have_rows_of_their_own(trace):
    rows = picture.rows_of([(0, 10, "a"), (5, 12, "b"), (10, 20, "c"), (11, 13, "d")])
    assert rows == [[(0, 10, "a"), (10, 20, "c")], [(5, 12, "b")], [(11, 13, "d")]]
    assert picture.svg(trace()).count('height="9"') >= picture.TILES  # loads, in thin rows


def test_blocks_that_take_turns_inside_have_a_lane_each(trace):
    path = trace(turns())
    assert texts(path, "n") == [f"block {i}" for i in range(4)]
    assert texts(path, "l") == list(ROLES)
    assert "the 4 blocks that run there at once" in picture.caption(path)


def test_blocks_that_overlap_inside_have_lanes_of_roles(trace):
    path = trace([*ring(block=0), *ring(block=1), *ring(block=2)])
    assert texts(path, "n") == [f"{block}: {role}" for block in (0, 1) for role in ROLES]
    assert "2 of the 3 blocks that run there at once" in picture.caption(path)


def test_blocks_that_follow_each_other_share_a_lane(trace):
    second = [(1, role, tile, begin + 10_000, end + 10_000)
              for _, role, tile, begin, end in ring(3)]
    path = trace([*ring(3), *second])
    assert texts(path, "n") == list(ROLES)
    assert {int(text) for text in texts(path, "t")} == set(range(6))


def test_the_caption_says_how_busy_everyone_was_and_how_exact_it_is(trace):
    said = picture.caption(trace())
    assert "on GPU: 8.0 µs of 60.4 µs" in said and "one block" in said
    assert "loader 100 %, compute 90 %, storer 50 %" in said
    assert "within 41 ns." in said and "did not fit" not in said
    assert "3 records did not fit" in picture.caption(trace(lost=3))


@pytest.mark.parametrize("spans", [ring(), turns(), turns(100, 9)], ids=["roles", "turns", "many"])
def test_what_was_cut_off_was_not_shown(trace, write, spans):
    path = trace(spans)
    kept = write("kept.json", picture.cut(path))
    assert picture.svg(kept) == picture.svg(path)
    assert picture.caption(kept) == picture.caption(path)
    assert picture.cut(kept) == kept.read_text()
    assert len(kept.read_text()) < 20 * 1024 and len(picture.svg(kept)) < 30 * 1024


def test_a_picture_is_the_same_every_time_and_loads_nothing(trace):
    path = trace()
    drawn = picture.svg(path)
    assert drawn == picture.svg(path)
    assert re.findall(r"https?://[^\"<]*", drawn) == ["http://www.w3.org/2000/svg"]


def test_names_are_escaped(trace):
    assert texts(trace(roles=("a<b", "c&d", "e")), "n") == ["a<b", "c&d", "e"]


def test_both_commands(trace, tmp_path):
    path = trace()
    assert run("draw", path, tmp_path / "a.svg").returncode == 0
    assert (tmp_path / "a.svg").read_text() == picture.svg(path)
    assert run("cut", path, tmp_path / "kept").returncode == 0
    assert (tmp_path / "kept/copy_ring.json").read_text() == picture.cut(path)


@pytest.mark.parametrize("text, message", [
    (None, "No such file"),
    ("{", "picture: "),
    ("[]", "not a kernel's trace"),
    ('{"kernels": []}', "not a kernel's trace"),
    (json.dumps(document([])), "has no spans"),
    (json.dumps(document([(0, 3, 0, 0, 1)])), "roles without a name"),
])
def test_bad_input_is_refused(write, tmp_path, text, message):
    path = tmp_path / "none.json" if text is None else write("bad.json", text)
    done = run("draw", path, tmp_path / "a.svg")
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "a.svg").exists()
