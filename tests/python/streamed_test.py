"""Elementwise functions on what lies in host memory and in files; gpu_test.py has those on a GPU."""

import doctest
import inspect
import os
import textwrap
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock import transform
from penstock.transform import FileArray, Streamed

TYPES = ["f32", "f16", "bf16"]
MANY = 100_003  # elements: several pieces, the last one short

# How each function is called, of `transform` and of `Streamed` alike; and its inputs.
CALLS = {
    "scale": (1, lambda on, x, **more: on.scale(x, 1.5, **more)),
    "axpby": (2, lambda on, x, y, **more: on.axpby(x, y, 0.25, b=-3, **more)),
    "add": (3, lambda on, *x, **more: on.add(*x, **more)),
    "mul": (2, lambda on, x, y, **more: on.mul(x, y, **more)),
    "swiglu": (2, lambda on, gate, up, **more: on.swiglu(gate, up, **more)),
    "gelu": (1, lambda on, x, **more: on.gelu(x, **more)),
    "gelu_tanh": (1, lambda on, x, **more: on.gelu(x, approximate="tanh", **more)),
}


@pytest.fixture
def streamed():
    return Streamed("cpu")


def random(count, dtype="f32", seed=1):
    """An array of Penstock, which has all types."""
    values = np.random.default_rng(seed).normal(0, 2, count).astype(np.float32)
    room = penstock.empty(count, dtype, device="cpu")
    transform.cast(values, out=room)
    return room


def content(array):
    room = penstock.empty(array.nbytes, "u8", device="cpu")
    penstock.copy(room, array)
    return bytes(room)


class Where:
    """Arrays put into memory of Penstock, of NumPy (where it has the type) or into a file."""

    def __init__(self, kind, folder):
        self.kind, self.folder = kind, folder

    def put(self, array):
        if self.kind == "file":
            path = self.folder / f"in{len(list(self.folder.iterdir()))}"
            path.write_bytes(b"header!" + content(array) + b"trailer")
            return FileArray(path, array.dtype, offset=7, count=len(array))
        return array.numpy().copy() if self.kind == "numpy" and array.dtype != "bf16" else array

    def room(self, count, dtype):
        if self.kind == "file":
            return self.folder / "out"
        return self.put(random(count, dtype, seed=99))

    @staticmethod
    def get(out):
        return out.read_bytes() if hasattr(out, "read_bytes") else content(out)


@pytest.mark.parametrize("to", ["penstock", "numpy", "file"])
@pytest.mark.parametrize("source", ["penstock", "numpy", "file"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CALLS)
def test_the_same_bits_as_in_one_piece(streamed, tmp_path, name, dtype, source, to):
    count, call = CALLS[name]
    inputs = [random(MANY, dtype, seed) for seed in range(count)]
    wanted = call(transform, *inputs)
    out = Where(to, tmp_path).room(MANY, dtype)
    place = Where(source, tmp_path)
    report = call(streamed, *map(place.put, inputs), out=out)
    assert report.items > 8 and not report.cancelled
    assert report.stages["compute"] == report.items
    assert Where.get(out) == content(wanted)


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_cast(streamed, tmp_path, source, to):
    x = random(MANY, source)
    wanted = content(transform.cast(x, to))
    out = penstock.empty(MANY, to, device="cpu")
    streamed.cast(x, out=out)
    assert content(out) == wanted
    kept = tmp_path / "kept"
    streamed.cast(Where("file", tmp_path).put(x), to, out=kept)
    assert kept.read_bytes() == wanted
    again = tmp_path / "again"
    streamed.cast(FileArray(kept, to), out=FileArray(again, source))
    assert again.stat().st_size == x.nbytes


@settings(max_examples=25, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(count=st.integers(0, 20_000), offset=st.integers(0, 5000), dtype=st.sampled_from(TYPES))
def test_any_part_of_any_file(streamed, tmp_path, count, offset, dtype):
    x = random(count, dtype)
    (tmp_path / "in").write_bytes(bytes(offset) + content(x))
    streamed.mul(FileArray(tmp_path / "in", dtype, offset=offset), x, out=tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == content(transform.mul(x, x))


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097])
@pytest.mark.parametrize("kind", ["penstock", "numpy", "file"])
def test_odd_sizes(streamed, tmp_path, kind, count):
    x = random(count)
    place = Where(kind, tmp_path)
    out = place.room(count, "f32")
    reports = []
    report = Streamed("cpu", progress=lambda *now: reports.append(now)).scale(place.put(x), 3, out=out)
    assert Where.get(out) == content(transform.scale(x, 3))
    assert report.items == -(-count // 4096) and reports[-1] == (report.items, report.items)


def test_nothing_at_all(streamed, tmp_path):
    (tmp_path / "in").touch()
    (tmp_path / "out").write_bytes(b"what was there before")
    empty = np.empty((0, 4), np.float32)
    assert streamed.add(FileArray(tmp_path / "in", "f32"), empty, out=tmp_path / "out").items == 0
    assert (tmp_path / "out").read_bytes() == b""
    assert streamed.mul(empty, empty, out=empty).items == 0


def test_shapes_are_kept_apart_from_elements(streamed, tmp_path):
    x = random(60).numpy().reshape(3, 4, 5)
    out = np.zeros_like(x)
    streamed.add(x, FileArray(Where("file", tmp_path).put(random(60)).path, "f32", offset=7,
                              count=60), out=out)
    assert (out == x + random(60).numpy().reshape(3, 4, 5)).all()


@pytest.mark.parametrize("kind", ["penstock", "numpy"])
def test_in_place(streamed, kind):
    x, y = random(MANY), random(MANY, seed=2)
    wanted = content(transform.axpby(x, y, 2, 3))
    a, b = (Where(kind, None).put(each) for each in (x, y))
    streamed.axpby(a, b, 2, 3, out=b)
    assert content(b) == wanted


def test_a_mapped_file_is_memory(streamed, tmp_path):
    path = tmp_path / "mapped"
    path.write_bytes(content(random(MANY)))
    x = np.memmap(path, np.float32, "r+")
    streamed.scale(x, 2, out=x)
    assert path.read_bytes() == content(transform.scale(random(MANY), 2))
    with pytest.raises(ValueError, match="^out: expected another file than that of x"):
        streamed.scale(x, 2, out=path)  # which would empty it
    assert path.stat().st_size == 4 * MANY
    streamed.scale(np.memmap(path, np.float32, "r+")[:10], 0.5, out=tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == content(random(MANY))[:40]


class Foreign:
    """An array of a library that only speaks DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)


@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_of_other_libraries(streamed, dtype):
    x, out = random(MANY, dtype), random(MANY, dtype, seed=2)
    streamed.gelu(Foreign(x), out=Foreign(out))
    assert content(out) == content(transform.gelu(x))


@pytest.mark.parametrize("as_path", [str, lambda path: str(path).encode(), lambda path: path])
def test_paths_of_every_kind(streamed, tmp_path, as_path):
    path = tmp_path / "größer"
    streamed.scale(np.ones(10, np.float32), 2, out=as_path(path))
    array = FileArray(as_path(path), np.float32)
    assert (array.path, array.dtype, array.offset, array.count) == (str(path), "f32", 0, None)
    streamed.mul(array, array, out=as_path(tmp_path / "out"))
    assert (penstock.read_file(tmp_path / "out", dtype="f32") == 4).all()


def test_a_file_is_written_anew_and_flushed(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(bytes(1 << 20))
    Streamed("cpu", flush=True).scale(np.ones(10, np.float32), 2, out=path)
    assert path.stat().st_size == 40


def test_progress_timeline_and_report(tmp_path):
    reports, timeline = [], penstock.Timeline()
    streamed = Streamed("cpu", progress=lambda *now: reports.append(now), recorder=timeline,
                        after=penstock.Stream("cpu"))
    x = Where("file", tmp_path).put(random(MANY))
    report = streamed.gelu(x, out=tmp_path / "out")
    assert isinstance(report, penstock.RunReport) and report.seconds > 0
    assert report.stages == dict.fromkeys(("read", "compute", "write"), report.items)
    assert reports == sorted(reports) and reports[-1] == (report.items, report.items)
    assert timeline.busy_seconds("disk") > 0 and timeline.busy_seconds("compute") > 0
    assert streamed.device == penstock.Device.cpu() and "cpu" in repr(streamed)


def test_too_little_memory_is_refused():
    with pytest.raises(ValueError, match="^pinned_bytes: expected at least .* for pieces of 4096"):
        Streamed("cpu", pinned_bytes=1000).scale(np.ones(9, np.float32), 2, out="/nowhere/at/all")


def test_a_smaller_room_makes_smaller_pieces(tmp_path):
    x = Where("file", tmp_path).put(random(2_000_000, "f16"))
    items = [Streamed("cpu", pinned_bytes=room << 20).scale(x, 2, out=tmp_path / "out").items
             for room in (64, 1)]
    assert items[0] < items[1]


class OnGpu:
    """Looks like a GPU's memory; nobody may ask it for more."""

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **keywords):
        raise AssertionError("asked")


@pytest.mark.parametrize("call, says", [
    (lambda on, x, d: on.scale(x.astype(np.int32), 2, out=x), "^x: expected elements of type f32, f16"),
    (lambda on, x, d: on.scale(x, 2, out=x.astype(np.float16)),
     r"^out: expected elements of type f32, the type of x, given f16\[4\]"),
    (lambda on, x, d: on.mul(x, FileArray(d / "8", "f16"), out=x),
     "^y: expected elements of type f32, the type of x, given f16 in '.*8'"),
    (lambda on, x, d: on.cast(x, out=x.astype(np.int32)), "^out: expected elements of type f32, f16"),
    (lambda on, x, d: on.mul(x, x[:3], out=x), "^y: expected 4 elements, as many as x, given 3"),
    (lambda on, x, d: on.mul(x, x, out=x[:3]), "^out: expected 4 elements, as many as x, given 3"),
    (lambda on, x, d: on.swiglu(x, FileArray(d / "8", "f32"), out=x),
     "^up: expected 4 elements, as many as gate, given 2"),
    (lambda on, x, d: on.swiglu(FileArray(d / "8", "f32"), x, out=x),
     "^up: expected 2 elements, as many as gate, given 4"),
    (lambda on, x, d: on.mul(x, x, out=FileArray(d / "out", "f32", count=5)), "^out: expected 4 elem"),
    (lambda on, x, d: on.mul(x, x.reshape(2, 2), out=x), r"^y: expected the shape of x, f32\[4\]"),
    (lambda on, x, d: on.scale(x[::2], 2, out=x[:2]), "^x: expected a contiguous array"),
    (lambda on, x, d: on.scale(x[:2], 2, out=x[::2]), "^out: expected a contiguous array"),
    (lambda on, x, d: on.add(x[:3], x[1:], out=x[1:]),
     r"^out: expected the memory of inputs\[0\] with elements of the same size, or memory that does not overlap it"),
    (lambda on, x, d: on.add(x, out=x), "^inputs: expected two to four arrays, given 1"),
    (lambda on, x, d: on.add(x, x, 3, out=x), r"^inputs\[2\]: expected an array"),
    (lambda on, x, d: on.add(x, x, None, out=x), r"^inputs\[2\]: expected an array"),
    (lambda on, x, d: on.mul(x, x, out=None), "^out: expected an array"),
    (lambda on, x, d: on.mul(x, (d / "8", "f32"), out=x), "^y: expected an array"),
    (lambda on, x, d: on.mul(x, d / "8", out=x), "^y: expected an array, or a FileArray"),
    (lambda on, x, d: on.mul(x, OnGpu(), out=x), "^y: expected an array in host memory.*given .*cuda:0"),
    (lambda on, x, d: on.mul(x, x, out=OnGpu()), "^out: expected an array in host memory"),
    (lambda on, x, d: on.gelu(x, out=x, approximate="erf"), "^approximate: expected 'none' or 'tanh'"),
    (lambda on, x, d: on.cast(x, out=d / "out"), "^dtype: expected the dtype of the result"),
    (lambda on, x, d: on.cast(x, "f16", out=x),
     "^dtype: expected f32, the dtype of out, or None, given 'f16'"),
    (lambda on, x, d: on.cast(x, "i32", out=d / "out"), "^dtype: expected f32, f16 or bf16"),
    (lambda on, x, d: FileArray(d / "8", "u8"), "^dtype: expected f32, f16 or bf16, given 'u8'"),
    (lambda on, x, d: FileArray(d / "8", "f32", offset=-1), "^offset: expected 0 or more, given -1"),
    (lambda on, x, d: FileArray(d / "8", "f32", count=-1), "^count: expected 0 or more, given -1"),
    (lambda on, x, d: FileArray(None, "f32"), "path should be|expected str, bytes or os.PathLike"),
    (lambda on, x, d: on.scale(FileArray(d / "8", "f32", offset=9), 2, out=x),
     "^x.offset: expected at most 8, the size of the file, given 9"),
    (lambda on, x, d: on.scale(FileArray(d / "8", "f32", offset=1), 2, out=x),
     "^x.dtype: expected a type whose size divides the 7 bytes from offset 1 to the end, given f32"),
    (lambda on, x, d: on.scale(FileArray(d / "8", "f32", count=4), 2, out=x),
     "^x: expected at least 16 bytes, 4 of f32 from byte 0 on, given '.*8' with 8 bytes"),
    (lambda on, x, d: on.scale(FileArray(d / "8", "f32", count=1 << 62), 2, out=d / "out"), "^x"),
    (lambda on, x, d: on.scale(FileArray(d / "8", "f32", count=1 << 63), 2, out=d / "out"),
     "^x.count: "),
    (lambda on, x, d: on.scale(FileArray(d / "8", "f32"), 2, out=d / "8"),
     "^out: expected another file than x's, given '.*8'"),
    (lambda on, x, d: on.scale(x, 2, out=FileArray(d / "out", "f32", offset=4)),
     "^out.offset: expected 0, because the output file is replaced, given 4"),
    (lambda on, x, d: Streamed("tpu"), "^device: "),
    (lambda on, x, d: Streamed("cpu", device_bytes=-1), "^device_bytes: expected 0 or more"),
    (lambda on, x, d: Streamed("cpu", pinned_bytes=-1), "^pinned_bytes: expected 0 or more"),
    (lambda on, x, d: Streamed("cpu", progress=3), "^progress: expected a function of the pieces done"),
    (lambda on, x, d: Streamed("cpu", after="x").scale(x, 2, out=x), "^stream: "),
])
def test_errors_name_the_argument(streamed, tmp_path, call, says):
    x = np.ones(4, np.float32)
    (tmp_path / "8").write_bytes(b"12345678")
    with pytest.raises((ValueError, TypeError), match=says):
        call(streamed, x, tmp_path)
    assert (x == 1).all()
    assert [each.name for each in tmp_path.iterdir()] == ["8"]
    assert (tmp_path / "8").read_bytes() == b"12345678", "refused before it was emptied"


def test_what_may_not_be_written_is_refused(streamed):
    x, fixed = np.ones(4, np.float32), np.ones(4, np.float32)
    fixed.flags.writeable = False
    streamed.mul(fixed, fixed, out=x)
    with pytest.raises(ValueError, match="^out: "):
        streamed.mul(x, x, out=fixed)


@pytest.mark.parametrize("use", [
    lambda on, x, path: on.scale(FileArray(path, "f32"), 2, out=x),
    lambda on, x, path: on.mul(x, FileArray(path, "f32", count=4), out=x),
    lambda on, x, path: on.scale(x, 2, out=path),
    lambda on, x, path: on.mul(x, x, out=FileArray(path, "f32")),
], ids=["in", "in, counted", "out", "out, typed"])
class TestWhatTheSystemRefuses:
    def test_no_such_folder(self, streamed, use, tmp_path):
        path = tmp_path / "gone" / "file"
        with pytest.raises(FileNotFoundError) as caught:
            use(streamed, np.ones(4, np.float32), path)
        assert caught.value.filename == str(path) and caught.value.errno == 2

    def test_a_folder(self, streamed, use, tmp_path):
        with pytest.raises(IsADirectoryError) as caught:
            use(streamed, np.ones(4, np.float32), tmp_path)
        assert caught.value.filename == str(tmp_path)


def test_a_file_that_is_cut_meanwhile(tmp_path):
    """Of two that are read, the one that failed is named."""
    x, y = tmp_path / "x", tmp_path / "xy"
    x.write_bytes(bytes(32 << 20))
    y.write_bytes(bytes(32 << 20))

    def progress(done, pieces):  # first called when most is not read yet: the slots are small
        os.truncate(y, 8 << 20)

    streamed = Streamed("cpu", pinned_bytes=2 << 20, progress=progress)
    with pytest.raises(OSError, match="which ends at byte") as caught:
        streamed.add(FileArray(x, "f32"), FileArray(y, "f32"), out=tmp_path / "out")
    assert caught.value.filename == str(y)


def test_a_full_disk(streamed):
    with pytest.raises(OSError) as caught:
        streamed.scale(np.ones(MANY, np.float32), 2, out="/dev/full")
    assert caught.value.filename == "/dev/full"


class Thrown(Exception):
    pass


def test_a_failure_of_the_progress_function_ends_the_run(tmp_path):
    def progress(done, pieces):
        raise Thrown

    x = np.ones(MANY, np.float32)
    with pytest.raises(Thrown):
        Streamed("cpu", progress=progress).scale(x, 2, out=tmp_path / "out")
    Streamed("cpu").scale(x, 2, out=x)
    assert (x == 2).all()


LONG = """
import numpy, os, sys, tempfile, threading, time
import penstock
folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "in")
with open(path, "wb") as file:
    file.truncate(64 << 30)  # a hole: it takes no room
x = penstock.transform.FileArray(path, "f32")
began = threading.Event()
def progress(done, pieces):
    if not began.is_set():
        began.set()
        print("ready", flush=True)
out = numpy.memmap(os.path.join(folder.name, "out"), numpy.float16, "w+", shape=16 << 30)
streamed = penstock.transform.Streamed("cpu", progress=progress)
"""


def test_ctrl_c_ends_it_soon(interrupted):
    program = LONG + textwrap.dedent("""
        try:
            streamed.cast(x, out=out)
        except KeyboardInterrupt:
            ones = numpy.ones(10, numpy.float32)
            streamed.scale(ones, 2, out=ones)
            print("interrupted", ones.sum())
    """)
    assert interrupted(program, timeout=20) == "interrupted 20.0\n"


def test_the_interpreter_exits_in_the_middle_of_a_daemons_run(python):
    done = python(LONG + textwrap.dedent("""
        threading.Thread(target=lambda: streamed.cast(x, out=out), daemon=True).start()
        began.wait()
    """), timeout=60)
    assert done.stderr == ""


def test_a_forked_child_is_told(python):
    python("""
        import os, numpy, penstock
        x = numpy.ones(10, numpy.float32)
        streamed = penstock.transform.Streamed("cpu")
        streamed.scale(x, 2, out=x)
        child = os.fork()
        if child == 0:
            try:
                streamed.scale(x, 2, out=x)
            except RuntimeError as error:
                os._exit(0 if "do not survive a fork" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        streamed.scale(x, 2, out=x)
        assert x.sum() == 40
    """, timeout=30)


def test_others_run_meanwhile():
    """The interpreter is free during a call, and an object may serve several threads."""
    streamed = Streamed("cpu")
    x = np.ones(4_000_000, np.float32)
    outs = [np.zeros_like(x) for _ in range(3)]
    threads = [threading.Thread(target=streamed.scale, args=(x, i), kwargs={"out": out})
               for i, out in enumerate(outs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [float(out.mean()) for out in outs] == [0, 1, 2]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensors_of_torch(torch, streamed, tmp_path, dtype):
    element = getattr(torch, dtype)
    x, y = torch.randn(3, 50_001).to(element), torch.randn(3, 50_001).to(element)
    out = torch.zeros_like(x)
    streamed.mul(x, y, out=out)
    assert torch.equal(out, transform.mul(x, y))
    streamed.cast(x, torch.float32, out=tmp_path / "out")
    back = torch.zeros(3, 50_001, dtype=element)
    streamed.cast(FileArray(tmp_path / "out", torch.float32), out=back)
    assert torch.equal(back, x)
    with pytest.raises(ValueError, match="^x: expected an array that its library shares"):
        streamed.scale(torch.ones(4, requires_grad=True), 2, out=torch.ones(4))


EXAMPLES = {name: inspect.getdoc(value) for name, value in vars(Streamed).items()
            if inspect.isfunction(value) and not name.startswith("_")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, 0)
    assert test.examples
    runner = doctest.DocTestRunner()
    failures = []
    runner.run(test, out=failures.append)
    assert runner.failures == 0, "".join(failures)


def test_every_function_can_be_streamed():
    classes = {"FileArray", "Streamed"}
    assert set(EXAMPLES) == set(transform.__all__) - classes
