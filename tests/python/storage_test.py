import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.integers(0, 20_000), data=st.data())
def test_any_part_of_any_file(path, size, data):
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    penstock.write_file(path, content)
    assert path.read_bytes() == content.tobytes()
    offset = data.draw(st.integers(0, size))
    count = data.draw(st.integers(0, size - offset))
    assert (penstock.read_file(path, offset=offset, count=count)
            == content[offset:offset + count]).all()
    assert (penstock.read_file(path, offset=offset) == content[offset:]).all()


@pytest.mark.parametrize("dtype", [np.float32, "f64", "<i2", np.complex128, "datetime64[s]", "bool"])
def test_elements_of_any_plain_type(path, dtype):
    element = np.dtype({"f64": "f8"}.get(dtype, dtype))
    content = np.arange(24).astype(element)
    path.write_bytes(content.tobytes())
    got = penstock.read_file(path, dtype=dtype)
    assert got.dtype == element and (got == content).all()
    assert got.flags.writeable


@pytest.mark.parametrize("source", [
    b"12345678", bytearray(b"12345678"), memoryview(b"12345678"),
    np.frombuffer(b"12345678", np.int16), np.frombuffer(b"12345678", np.float64)])
def test_anything_with_bytes_can_be_written(path, source):
    penstock.write_file(path, source, flush=True)
    assert path.read_bytes() == b"12345678"


@pytest.mark.parametrize("source", ["text", 5, None, np.array([object()]), np.zeros((4, 4))[:, 1]])
def test_what_has_none_is_refused_by_name(path, source):
    with pytest.raises((TypeError, ValueError), match="^source: expected"):
        penstock.write_file(path, source)


def test_into_the_callers_array(path):
    path.write_bytes(bytes(range(100)))
    out = np.zeros((5, 4), np.uint8)
    assert penstock.read_file(path, offset=10, out=out) is out
    assert (out.ravel() == np.arange(10, 30)).all()


def test_refusals_name_the_argument(path):
    path.write_bytes(bytes(10))
    frozen = np.zeros(4, np.uint8)
    frozen.flags.writeable = False
    for message, keywords in [
        ("^out: expected writable contiguous memory", {"out": frozen}),
        ("^out: expected writable contiguous memory", {"out": np.zeros((4, 4), np.uint8)[:, ::2]}),
        ("^dtype: expected a type whose size divides the 10 bytes", {"dtype": "f32"}),
        ("^dtype: expected a type without Python objects", {"dtype": object}),
        ("^offset: expected at most 10, the size of the file, given 11", {"offset": 11}),
        ("^offset: expected 0 or more, given -1", {"offset": -1}),
        ("^count: expected 0 or more, given -1", {"count": -1}),
        ("^like: expected 'numpy', 'torch' or 'penstock', given 'list'", {"like": "list"}),
        ("^device: ", {"device": "cuda:99"}),
        ("^device: expected None, as `out`", {"device": "cpu", "out": np.zeros(4, np.uint8)}),
    ]:
        with pytest.raises(ValueError, match=message):
            penstock.read_file(path, **keywords)


@pytest.mark.parametrize("use", [penstock.read_file, penstock.File,
                                 lambda path: penstock.write_file(path, b"x")])
class TestWhatTheSystemRefuses:
    def test_no_such_folder(self, use, tmp_path):
        path = tmp_path / "gone" / "file"
        with pytest.raises(FileNotFoundError) as caught:
            use(path)
        assert caught.value.filename == str(path) and caught.value.errno == 2

    def test_a_folder(self, use, tmp_path):
        with pytest.raises(IsADirectoryError) as caught:
            use(tmp_path)
        assert caught.value.filename == str(tmp_path)

    def test_no_permission(self, use, path):
        path.touch(0o000)
        me = os.geteuid()
        if me == 0:
            os.seteuid(65534)  # root may open everything
        try:
            with pytest.raises(PermissionError) as caught:
                use(path)
        finally:
            os.seteuid(me)
        assert caught.value.filename == str(path)


def test_reading_past_the_end(path):
    path.write_bytes(b"12345")
    with pytest.raises(OSError, match="which ends at byte 5, 5 bytes too early") as caught:
        penstock.read_file(path, count=10)
    assert caught.value.filename == str(path)


def test_a_closed_file_says_so(path):
    path.write_bytes(b"12345")
    with penstock.File(path) as file:
        assert file.size == 5 and not file.closed
        assert file.engine in ("io_uring", "threads")
    assert file.closed and "closed" in repr(file)
    with pytest.raises(ValueError, match="^file: expected an open file, given .*which is closed"):
        file.read(bytearray(1))


def test_a_file_opened_to_read_is_not_written(path):
    path.write_bytes(b"12345")
    with pytest.raises(ValueError, match="^mode: "):
        penstock.File(path).write(b"1")


@pytest.mark.parametrize("keywords, message", [
    ({"mode": "rw"}, "^mode: expected 'r' or 'w'"),
    ({"engine": "steam"}, "^engine: expected 'best', 'io_uring' or 'threads'"),
    ({"in_flight": 0}, "^in_flight: "),
])
def test_options_are_checked(path, keywords, message):
    path.touch()
    with pytest.raises(ValueError, match=message):
        penstock.File(path, **keywords)


@pytest.mark.parametrize("size", [1, 4096, 100_000, 65_536 * 3])
def test_a_pipeline_from_file_to_file(pipeline, tmp_path, size):
    content = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    (tmp_path / "in").write_bytes(content.tobytes())
    slot = pipeline.ring("slot", bytes=65_536)
    read = pipeline.read_stage("read", penstock.File(tmp_path / "in"), into=slot)

    def turn(item):
        np.bitwise_not(item.slot(slot).numpy(), out=item.slot(slot).numpy())

    work = pipeline.host_stage("turn", turn, after=read, uses=slot)
    pipeline.write_stage("write", penstock.File(tmp_path / "out", "w"), source=slot, size=size,
                         after=work)
    timeline = penstock.Timeline()
    pipeline.run(-(-size // slot.bytes), recorder=timeline)
    assert (tmp_path / "out").read_bytes() == (~content).tobytes()
    assert timeline.busy_seconds("disk") > 0


def test_a_stage_that_reads_past_the_end(pipeline, path):
    path.write_bytes(bytes(100))
    slot = pipeline.ring("slot", bytes=64)
    pipeline.read_stage("read", penstock.File(path), into=slot)
    assert pipeline.run(2).items == 2
    with pytest.raises(penstock.PipelineError) as caught:
        pipeline.run(3)
    assert (caught.value.stage, caught.value.item) == ("read", 2)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.filename == str(path)


def test_a_stage_writes_no_file_opened_to_read(pipeline, path):
    path.touch()
    slot = pipeline.ring("slot", bytes=64)
    with pytest.raises(ValueError, match="^file: expected a file opened with mode 'w'"):
        pipeline.write_stage("write", penstock.File(path), source=slot)
