import numpy as np
import pytest

import penstock


@pytest.fixture(scope="module")
def found():
    reports = []
    result = penstock.overlap("cpu", items=4, item_bytes=1 << 20, repeats=3,
                              progress=lambda what, share: reports.append((what, share)))
    assert reports and all(0 <= share <= 1 for _, share in reports)
    return result


def test_doctor_reads_well():
    found = penstock.doctor()
    assert found.data["machine"]["host"]["cores"] > 0
    assert "CPU" in str(found) and "<table>" in found._repr_html_()


def test_overlap_has_figures_and_timelines(found):
    assert found.seconds > 0 and found.efficiency > 0
    assert found.data["chunks"] >= 4
    for timeline in (found.sequential, found.pipelined):
        assert timeline.busy_seconds("upload") > 0 and timeline.complete
        assert timeline.gaps("upload").total_seconds >= 0
    assert "floor" in str(found)


def test_timelines_outlive_the_result():
    timeline = penstock.overlap("cpu", items=1, item_bytes=1 << 20, repeats=1).pipelined
    assert len(timeline) == len(timeline.entries()) > 0


def test_a_timeline_as_an_array(found):
    rows = found.pipelined.array()
    assert (rows["end_ns"] >= rows["begin_ns"]).all()
    assert set(rows["engine"]) == {"upload", "compute", "download"}
    assert penstock.Timeline().array().shape == (0,)


def test_notebooks_draw_pages_that_cannot_touch_them(found):
    for html in (found._repr_html_(), found.pipelined._repr_html_(),
                 penstock.Timeline()._repr_html_()):
        assert '<iframe srcdoc="' in html and 'sandbox="allow-scripts"' in html
        inside = html.split('srcdoc="', 1)[1].split('"', 1)[0]
        assert "&lt;script" in inside and "<" not in inside


def test_an_engine_that_is_none_is_refused():
    with pytest.raises(ValueError, match="^engine: expected disk, .*given 'steam'"):
        penstock.Timeline().busy_seconds("steam")


@pytest.mark.parametrize("keywords, message", [
    ({"ways": 5}, "^ways: expected 2, 3 or 4, given 5"),
    ({"items": 0}, "^items: "),
    ({"item_bytes": 3}, "item_bytes"),
    ({"repeats": 0}, "^repeats: "),
    ({"device": "cuda:99"}, "^device: "),
])
def test_options_of_overlap_are_checked(keywords, message):
    with pytest.raises(ValueError, match=message):
        penstock.overlap(**{"device": "cpu", "item_bytes": 1 << 20, **keywords})


def test_limits_are_kept_and_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    quick = penstock.limits("cpu", quick=True, directory=tmp_path)
    assert quick["disk_read"] > 0 and "h2d" not in quick and not quick.cached
    assert "host_copy" in str(quick) and "GB/s" in quick._repr_html_()


def test_limits_of_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        penstock.limits("cpu", quick=True, fresh=True, directory=tmp_path / "gone")
    assert caught.value.filename == str(tmp_path / "gone")


def test_an_error_of_the_progress_function_ends_a_measurement():
    def progress(what, share):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        penstock.overlap("cpu", items=8, repeats=20, progress=progress)


def test_iterate_is_the_reference():
    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    expected = x.copy()
    for _ in range(7):
        expected = (expected.astype(np.float64) * 0.9990234375 + 0.0009765625).astype(np.float32)
    out = np.full_like(x, np.nan)
    penstock.iterate(x, out=out, rounds=7)
    assert (out == expected).all()
