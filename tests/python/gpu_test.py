"""On a GPU: memory, streams and DLPack's rules about them. torch's part needs torch."""

import numpy as np
import pytest

import penstock
from gpu_support import pinned

if penstock.Device.why_no_gpu():
    pytest.skip(f"no GPU: {penstock.Device.why_no_gpu()}", allow_module_level=True)

pytestmark = pytest.mark.gpu
LEGACY, PER_THREAD, NO_SYNC = 1, 2, -1
SIZE = 1 << 20


@pytest.fixture
def pipeline():
    return penstock.Pipeline("cuda", depth=3)


@pytest.fixture
def slow():
    """Rounds of the yardstick that keep the GPU busy for some milliseconds."""
    return 200_000


@pytest.fixture
def torch(torch):
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


def chain(pipeline, chunks=12, rounds=50):
    """Upload, compute, download; returns (source, result)."""
    source = pinned(np.random.default_rng(1).random((chunks, SIZE), np.float32))
    result = pinned(np.full((chunks, SIZE), np.nan, np.float32))
    work = pipeline.ring("work", shape=SIZE, dtype="f32", memory="device")
    up = pipeline.stage("upload", lambda item: penstock.copy(
        item.slot(work), source[item.index], item.stream), uses=work, engine="upload")
    mid = pipeline.stage("compute", lambda item: penstock.iterate(
        item.slot(work), rounds=rounds, stream=item.stream), after=up, uses=work)
    pipeline.stage("download", lambda item: penstock.copy(
        result[item.index], item.slot(work), item.stream), after=mid, uses=work, engine="download")
    return source.numpy(), result.numpy()


def iterated(x, rounds):
    out = np.empty_like(x)
    penstock.iterate(np.ascontiguousarray(x), out=out, rounds=rounds)
    return out


def test_a_pipeline(pipeline):
    source, result = chain(pipeline)
    timeline = penstock.Timeline()
    pipeline.run(12, recorder=timeline)
    assert (result == iterated(source, 50)).all()
    assert {e.engine for e in timeline.entries()} == {"upload", "compute", "download"}
    result[:] = np.nan
    assert pipeline.run(12).allocations == 0
    assert (result == iterated(source, 50)).all()


def test_device_memory_is_no_buffer_and_says_so():
    room = penstock.empty(4, memory="device")
    assert room.place == "cuda:0" and room.__dlpack_device__() == (2, 0)
    for use in (np.asarray, memoryview, penstock.Array.numpy):
        with pytest.raises(BufferError, match="the array is in GPU memory"):
            use(room)


def test_a_stream_must_be_given():
    room = penstock.empty(4, memory="device")
    with pytest.raises(ValueError, match="^stream: expected a stream, as the memory is on a GPU"):
        penstock.copy(room, penstock.empty(4))


def test_pageable_memory_is_refused_unless_allowed():
    stream = penstock.Stream("cuda")
    room, values = penstock.empty(4, memory="device"), np.arange(4, dtype=np.float32)
    with pytest.raises(ValueError, match="^src: expected page-locked or device memory"):
        penstock.copy(room, values, stream)
    penstock.copy(room, values, stream, allow_pageable=True)
    back = penstock.empty(4)
    penstock.copy(back, room, stream)
    stream.synchronize()
    assert (back.numpy() == values).all()


@pytest.mark.parametrize("size", [0, 1, 4096, (20 << 20) + 3])
def test_a_file_into_device_memory(tmp_path, size):
    content = np.random.default_rng(2).integers(0, 256, size, np.uint8)
    penstock.write_file(tmp_path / "file", content)
    room = penstock.read_file(tmp_path / "file", device="cuda", like="penstock")
    assert room.place == "cuda:0" and room.nbytes == size
    if size:
        stream, back = penstock.Stream("cuda"), penstock.empty(size, "u8")
        penstock.copy(back, room, stream)
        stream.synchronize()
        assert (back.numpy() == content).all()


def test_a_short_file_into_device_memory(tmp_path):
    (tmp_path / "file").write_bytes(b"123")
    with pytest.raises(OSError, match="bytes too early") as caught:
        penstock.read_file(tmp_path / "file", count=6, device="cuda", like="penstock")
    assert caught.value.filename == str(tmp_path / "file")


def test_numpy_has_no_arrays_on_the_device(tmp_path):
    (tmp_path / "file").write_bytes(b"1234")
    with pytest.raises(ValueError, match="^like: expected 'torch' or 'penstock' on cuda:0"):
        penstock.read_file(tmp_path / "file", device="cuda")


class TestStreamed:
    COUNT = 3_000_017

    @pytest.mark.parametrize("to", ["pinned", "pageable", "file"])
    @pytest.mark.parametrize("source", ["pinned", "pageable", "file"])
    def test_from_everywhere_to_everywhere(self, tmp_path, source, to):
        values = np.random.default_rng(1).random(self.COUNT, np.float32)
        y = np.random.default_rng(2).random(self.COUNT, np.float32)
        x = pinned(values) if source == "pinned" else values
        if source == "file":
            penstock.write_file(tmp_path / "in", values)
            x = penstock.transform.FileArray(tmp_path / "in", "f32")
        out = np.full_like(values, np.nan)
        if to != "pageable":
            out = pinned(out) if to == "pinned" else tmp_path / "out"
        timeline = penstock.Timeline()
        streamed = penstock.transform.Streamed("cuda", device_bytes=8 << 20, recorder=timeline)
        report = streamed.axpby(x, y, 0.25, -3, out=out)
        assert report.items > 8 and report.stages["compute"] == report.items
        engines = {"upload", "compute", "download", "host"}  # y is always pageable
        if "file" in (source, to):
            engines.add("disk")
        assert {e.engine for e in timeline.entries()} == engines
        got = penstock.read_file(out, dtype="f32") if to == "file" else np.asarray(out)
        assert (got == penstock.transform.axpby(values, y, 0.25, -3)).all()

    def test_page_locked_memory_goes_through_no_slots(self):
        x = pinned(np.arange(self.COUNT, dtype=np.float32))
        report = penstock.transform.Streamed("cuda").scale(x, 2, out=x)
        assert set(report.stages) == {"upload", "compute", "download"}
        assert (x.numpy() == 2 * np.arange(self.COUNT, dtype=np.float32)).all()

    def test_what_is_on_the_gpu_is_refused(self):
        x = penstock.empty(4, memory="device", device="cuda")
        with pytest.raises(ValueError, match="^x: expected an array in host memory.*given .*cuda:0"):
            penstock.transform.Streamed("cuda").scale(x, 2, out=np.ones(4, np.float32))

    def test_torchs_page_locked_memory_is_page_locked(self, torch):
        x = torch.arange(float(SIZE)).pin_memory()
        out = torch.zeros(SIZE).pin_memory()
        report = penstock.transform.Streamed("cuda").scale(x, 2, out=out)
        assert set(report.stages) == {"upload", "compute", "download"}
        assert torch.equal(out, 2 * x)


class TestTransformOfTorch:
    def test_the_current_stream_is_used(self, torch):
        late, more = torch.zeros(SIZE, device="cuda"), torch.rand(SIZE, device="cuda")
        torch.cuda.synchronize()
        own = torch.cuda.Stream()
        with torch.cuda.stream(own):
            torch.cuda._sleep(50_000_000)
            late.fill_(3)
            out = penstock.transform.mul(late, more)
            assert not own.query()  # the call did not wait
        own.synchronize()
        assert torch.equal(out, 3 * more)

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_as_on_the_cpu(self, torch, dtype):
        x = torch.randn(3, 1001).to(getattr(torch, dtype))
        for call in (penstock.transform.gelu, lambda x: penstock.transform.scale(x, 0.3),
                     lambda x: penstock.transform.add(x, x, x)):
            torch.testing.assert_close(call(x.cuda()).cpu(), call(x))
        for to in (torch.float16, np.float16):
            assert torch.equal(penstock.transform.cast(x.cuda(), to).cpu(), x.to(torch.float16))

    def test_captured(self, torch):
        x = torch.rand(SIZE, device="cuda")
        penstock.transform.scale(x, 2)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = penstock.transform.scale(x, 2)
        x.fill_(4)
        graph.replay()
        assert (out == 8).all()

    def test_arrays_of_penstock_need_a_stream(self):
        x = penstock.empty(4, memory="device")
        with pytest.raises(ValueError, match="^stream: expected"):
            penstock.transform.scale(x, 2)


class TestTorch:
    def test_stages_in_torch(self, torch, pipeline):
        chunks = 12
        source = torch.rand(chunks, SIZE).pin_memory()
        result = torch.full((chunks, SIZE), float("nan")).pin_memory()
        work = pipeline.ring("work", shape=SIZE, dtype=torch.float32, memory="device")

        def upload(item):
            with torch.cuda.stream(item.stream.torch()):
                torch.from_dlpack(item.slot(work)).copy_(source[item.index], non_blocking=True)

        def compute(item):
            with torch.cuda.stream(item.stream.torch()):
                torch.from_dlpack(item.slot(work)).mul_(3).add_(1)

        def download(item):
            with torch.cuda.stream(item.stream.torch()):
                result[item.index].copy_(torch.from_dlpack(item.slot(work)), non_blocking=True)

        up = pipeline.stage("upload", upload, uses=work, engine="upload")
        mid = pipeline.stage("compute", compute, after=up, uses=work)
        pipeline.stage("download", download, after=mid, uses=work, engine="download")
        for _ in range(3):
            result.fill_(float("nan"))
            pipeline.run(chunks)
            assert torch.equal(result, source * 3 + 1)

    @pytest.mark.parametrize("number", [LEGACY, PER_THREAD, None, "pointer"])
    def test_a_consumers_stream_waits_for_the_producer(self, torch, pipeline, slow, number):
        """The slot is being written on the stage's stream when torch gets it on another."""
        own = torch.cuda.Stream()
        streams = {LEGACY: torch.cuda.default_stream(), None: torch.cuda.default_stream(),
                   PER_THREAD: torch.cuda.ExternalStream(PER_THREAD), "pointer": own}
        consumer = streams[number]
        slot = pipeline.ring("slot", shape=SIZE, dtype="f32", memory="device")
        got = []

        def work(item):
            with torch.cuda.stream(item.stream.torch()):
                mine = torch.from_dlpack(item.slot(slot)).zero_()
                penstock.iterate(mine, rounds=slow, stream=item.stream)
                mine.fill_(7)
            capsule = item.slot(slot).__dlpack__(
                stream=own.cuda_stream if number == "pointer" else number)
            with torch.cuda.stream(consumer):
                got.append(torch.utils.dlpack.from_dlpack(capsule).clone())

        pipeline.stage("work", work, uses=slot)
        pipeline.run(1)
        consumer.synchronize()
        assert (got[0] == 7).all()

    def test_no_sync_returns_at_once_and_waits_for_nothing(self, torch, pipeline, slow):
        slot = pipeline.ring("slot", shape=SIZE, dtype="f32", memory="device")
        free = []

        def work(item):
            penstock.iterate(item.slot(slot), rounds=slow, stream=item.stream)
            own = torch.cuda.Stream()
            item.slot(slot).__dlpack__(stream=NO_SYNC)
            own.synchronize()
            free.append(not item.stream.done)

        pipeline.stage("work", work, uses=slot)
        pipeline.run(1)
        assert free == [True]

    @pytest.mark.parametrize("number", [0, -2, -100])
    def test_numbers_that_mean_no_stream_are_refused(self, torch, pipeline, number):
        slot = pipeline.ring("slot", bytes=16, memory="device")
        pipeline.stage("work", lambda item: item.slot(slot).__dlpack__(stream=number), uses=slot)
        with pytest.raises(penstock.PipelineError) as caught:
            pipeline.run(1)
        assert caught.value.__cause__.argument == "stream"

    @pytest.mark.parametrize("number", [LEGACY, PER_THREAD, "pointer"])
    def test_as_a_consumer_it_names_its_stream(self, torch, slow, number):
        """The tensor is being written on torch's stream when penstock copies it on its own."""
        asked = []
        tensor = torch.zeros(SIZE, device="cuda")

        class Producer:
            def __dlpack_device__(self):
                return tensor.__dlpack_device__()

            def __dlpack__(self, **keywords):
                asked.append(keywords.get("stream"))
                return tensor.__dlpack__(**keywords)

        stream = penstock.Stream("cuda") if number == "pointer" else penstock.Stream.borrow(number)
        producer = torch.cuda.Stream()
        result = penstock.empty(SIZE, "f32")
        with torch.cuda.stream(producer):
            torch.cuda._sleep(50_000_000)
            tensor.fill_(5)
            penstock.copy(result, Producer(), stream)
        stream.synchronize()
        assert (result.numpy() == 5).all()
        # torch refuses the per-thread stream, and is then asked by way of another one.
        assert asked[0] == (stream.native if number == "pointer" else number)
        assert len(asked) == (2 if number == PER_THREAD else 1)

    def test_torchs_page_locked_memory_is_page_locked(self, torch):
        source = torch.arange(float(SIZE)).pin_memory()
        room, result = penstock.empty(SIZE, memory="device"), torch.zeros(SIZE).pin_memory()
        stream = torch.cuda.Stream()
        penstock.copy(room, source, stream)
        penstock.copy(result, room, stream)
        stream.synchronize()
        assert torch.equal(result, source)

    def test_torchs_streams_are_taken_as_they_are(self, torch):
        own = torch.cuda.Stream()
        assert penstock.Stream.borrow(own).native == own.cuda_stream
        assert penstock.Stream.borrow(torch.cuda.default_stream()).native == LEGACY
        mine = penstock.Stream("cuda")
        assert mine.torch().cuda_stream == mine.native

    def test_a_run_behind_torchs_work(self, torch, pipeline):
        class Shared:
            """Without torch's own wait: the run's `after` is all there is."""

            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack_device__(self):
                return self.tensor.__dlpack_device__()

            def __dlpack__(self, **keywords):
                return self.tensor.__dlpack__(**{**keywords, "stream": NO_SYNC})

        source = torch.zeros(SIZE, device="cuda")
        result = penstock.empty(SIZE, "f32")
        pipeline.stage("download", lambda item: penstock.copy(
            result, Shared(source), item.stream), uses=())
        own = torch.cuda.Stream()

        torch.cuda.synchronize()
        with torch.cuda.stream(own):
            torch.cuda._sleep(50_000_000)
            source.fill_(3)
        pipeline.run(1, after=own)
        assert (result.numpy() == 3).all()

    def test_tensors_of_the_other_place_are_refused(self, torch):
        with pytest.raises(ValueError):
            penstock.iterate(torch.ones(4, device="cuda"), out=np.ones(4, np.float32),
                             stream=penstock.Stream("cuda"))

    def test_memory_that_torch_still_holds_outlives_the_pipeline(self, torch):
        pipeline = penstock.Pipeline("cuda")
        slot = pipeline.ring("slot", shape=SIZE, dtype="f32", memory="device")
        kept = []
        pipeline.stage("work", lambda item: kept.append(torch.from_dlpack(item.slot(slot))), uses=slot)
        pipeline.run(4)
        del pipeline
        for number, tensor in enumerate(kept):
            tensor.fill_(number)
        torch.cuda.synchronize()
        assert [float(tensor[-1]) for tensor in kept] == [0, 1, 2, 3]

    def test_a_file_into_a_tensor(self, torch, tmp_path):
        content = torch.arange(5_000_000, dtype=torch.int32)
        penstock.write_file(tmp_path / "file", content)
        got = penstock.read_file(tmp_path / "file", dtype=torch.int32, device="cuda", like="torch")
        assert got.is_cuda and torch.equal(got.cpu(), content)
        out = torch.zeros_like(got)
        assert penstock.read_file(tmp_path / "file", out=out) is out
        assert torch.equal(out, got)


def test_ctrl_c_in_the_middle_of_device_work(python):
    done = python("""
        import os, signal, threading, time
        import penstock
        pipeline = penstock.Pipeline("cuda")
        slot = pipeline.ring("slot", shape=1 << 20, dtype="f32", memory="device")
        pipeline.stage("work", lambda item: penstock.iterate(item.slot(slot), rounds=1000,
                                                             stream=item.stream), uses=slot)
        pipeline.run(10)
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        try:
            pipeline.run(10 ** 9)
        except KeyboardInterrupt:
            print(time.monotonic() - begin, pipeline.run(5).items)
    """)
    seconds, items = done.stdout.split()
    assert float(seconds) < 20 and items == "5"


def test_the_interpreter_exits_in_the_middle_of_a_daemons_run(python):
    done = python("""
        import threading, time
        import penstock
        pipeline = penstock.Pipeline("cuda")
        slot = pipeline.ring("slot", shape=1 << 20, dtype="f32", memory="device")
        began = threading.Event()
        def work(item):
            began.set()
            penstock.iterate(item.slot(slot), rounds=100, stream=item.stream)
        pipeline.stage("work", work, uses=slot)
        threading.Thread(target=lambda: pipeline.run(10 ** 9), daemon=True).start()
        began.wait()
        time.sleep(0.1)
    """)
    assert done.stderr == ""
