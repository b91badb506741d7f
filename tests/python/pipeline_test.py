import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock


@settings(max_examples=30, deadline=None)
@given(items=st.integers(0, 40), depth=st.integers(1, 6), stages=st.integers(1, 4))
def test_every_stage_sees_every_item_in_order(items, depth, stages):
    pipeline = penstock.Pipeline("cpu", depth=depth)
    ring = pipeline.ring("ring", shape=8, dtype="i64")
    seen = [[] for _ in range(stages)]

    def make(stage):
        def work(item):
            values = item.slot(ring).numpy()
            if stage == 0:
                values[:] = item.index
            assert (values == item.index + stage * 100).all()
            values += 100
            seen[stage].append(item.index)

        return work

    after = ()
    for stage in range(stages):
        after = pipeline.host_stage(f"stage {stage}", make(stage), after=after, uses=ring)
    report = pipeline.run(items)
    assert report.items == items and not report.cancelled
    assert seen == [list(range(items))] * stages


def test_a_second_run_allocates_nothing(pipeline):
    pipeline.stage("work", lambda item: None, uses=pipeline.ring("ring", bytes=64))
    assert pipeline.run(5).allocations > 0
    assert pipeline.run(5).allocations == 0


def test_stages_overlap(pipeline):
    """The second stage's work on an item waits for the first stage's work on the next item."""
    both = threading.Barrier(2)
    first = pipeline.host_stage("first", lambda item: item.index > 0 and both.wait(60))
    pipeline.host_stage("second", lambda item: item.index < 9 and both.wait(60), after=first)
    assert pipeline.run(10).items == 10


def test_a_device_stage_on_the_cpu_runs_behind_its_inputs(pipeline):
    """The same program as on a GPU, where the device waits: here the function itself must."""
    source = np.arange(6, dtype=np.float32)
    result = np.zeros((5, 6), np.float32)
    slot = pipeline.ring("slot", shape=6, dtype="f32", memory="device")

    def upload(item):
        time.sleep(0.005)
        penstock.copy(item.slot(slot), source + item.index, item.stream)

    def compute(item):
        item.slot(slot).numpy()[:] *= 2

    def download(item):
        penstock.copy(result[item.index], item.slot(slot), item.stream)

    up = pipeline.stage("upload", upload, uses=slot, engine="upload")
    work = pipeline.stage("compute", compute, after=up, uses=slot)
    pipeline.stage("download", download, after=work, uses=slot, engine="download")
    timeline = penstock.Timeline()
    pipeline.run(5, recorder=timeline)
    assert (result == (source + np.arange(5)[:, None]) * 2).all()
    assert {e.engine for e in timeline.entries()} == {"upload", "compute", "download"}


def test_a_host_stage_has_no_stream(pipeline):
    failures = []

    def work(item):
        try:
            item.stream
        except ValueError as error:
            failures.append(str(error))

    pipeline.host_stage("work", work)
    pipeline.run(1)
    assert failures == ["stage: expected a device stage, given 'work', which runs on the host"]


def test_progress_ends_with_all(pipeline):
    pipeline.host_stage("work", lambda item: time.sleep(0.03))
    reports = []
    pipeline.run(10, progress=lambda done, items: reports.append((done, items)))
    assert reports[-1] == (10, 10) and len(reports) >= 3
    assert reports == sorted(reports)


def test_rings_and_stages_by_name(pipeline):
    pipeline.ring("ring", bytes=4)
    pipeline.host_stage("a", lambda item: item.slot("ring"), uses="ring")
    pipeline.host_stage("b", lambda item: item.slot("ring"), uses=["ring"], after=["a"])
    assert pipeline.run(3).stages == {"a": 3, "b": 3}


class Thrown(Exception):
    pass


class TestFailures:
    @pytest.mark.parametrize("kind", ["stage", "host_stage"])
    def test_the_exception_itself_is_the_cause(self, pipeline, kind):
        thrown = Thrown("what", 3)

        def work(item):
            if item.index == 4:
                raise thrown

        getattr(pipeline, kind)("work", work)
        with pytest.raises(penstock.PipelineError, match="stage 'work', item 4: .*Thrown") as caught:
            pipeline.run(9)
        assert caught.value.__cause__ is thrown
        assert (caught.value.stage, caught.value.item) == ("work", 4)
        assert isinstance(caught.value, RuntimeError)
        assert thrown.__traceback__.tb_frame.f_code.co_name == "work"

    def test_every_slot_is_back_and_it_runs_again(self, pipeline):
        fail = [True]
        ring = pipeline.ring("ring", bytes=8)

        def work(item):
            if fail[0] and item.index == 7:
                raise Thrown
        first = pipeline.host_stage("first", work, uses=ring)
        pipeline.host_stage("second", lambda item: item.slot(ring), after=first, uses=ring)
        for _ in range(20):
            fail[0] = True
            with pytest.raises(penstock.PipelineError):
                pipeline.run(20)
            fail[0] = False
            assert pipeline.run(20).items == 20

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
    def test_what_is_no_error_is_raised_as_it_is(self, pipeline, kind):
        def work(item):
            raise kind("mine")

        pipeline.host_stage("work", work)
        with pytest.raises(kind, match="mine"):
            pipeline.run(3)

    def test_of_the_progress_function(self, pipeline):
        def progress(done, items):
            raise Thrown

        pipeline.host_stage("work", lambda item: None)
        with pytest.raises(Thrown):
            pipeline.run(3, progress=progress)
        assert pipeline.run(3).items == 3

    def test_an_exception_that_cannot_be_printed(self, pipeline):
        class Mute(Exception):
            def __str__(self):
                raise ValueError

        def work(item):
            raise Mute

        pipeline.host_stage("work", work)
        with pytest.raises(penstock.PipelineError, match="Mute") as caught:
            pipeline.run(1)
        assert isinstance(caught.value.__cause__, Mute)

    def test_of_the_library_itself(self, pipeline):
        mine = pipeline.ring("mine", bytes=4)
        other = pipeline.ring("other", bytes=4)
        pipeline.host_stage("work", lambda item: item.slot(other), uses=mine)
        pipeline.host_stage("more", lambda item: None, uses=other)
        with pytest.raises(penstock.PipelineError) as caught:
            pipeline.run(1)
        assert isinstance(caught.value.__cause__, penstock.InvalidArgument)
        assert caught.value.__cause__.argument == "ring"


class TestRefusals:
    @pytest.mark.parametrize("build, message", [
        (lambda p: penstock.Pipeline("cpu", depth=0), "^depth: "),
        (lambda p: penstock.Pipeline("cpu", depth=-1), "^depth: expected 0 or more, given -1"),
        (lambda p: p.run(-1), "^items: expected 0 or more, given -1"),
        (lambda p: p.ring("r", bytes=-4), "^bytes: expected 0 or more, given -4"),
        (lambda p: penstock.Pipeline("tpu"), "^device: "),
        (lambda p: penstock.Pipeline(7), "^device: "),
        (lambda p: p.ring("r"), "^bytes, shape: expected exactly one of them, given neither"),
        (lambda p: p.ring("r", bytes=1, shape=1),
         "^bytes, shape: expected exactly one of them, given both"),
        (lambda p: p.ring("r", bytes=0), "^bytes: "),
        (lambda p: p.ring("r", bytes=3, dtype="f32"), "^bytes: expected a multiple of 4, the size of f32, given 3"),
        (lambda p: p.ring("r", shape=(2, -1)), "^shape: "),
        (lambda p: p.ring("r", bytes=1, memory="host"), "^memory: expected 'pinned' or 'device'"),
        (lambda p: p.ring("", bytes=1), "^name: "),
        (lambda p: p.host_stage("s", 3), "^function: expected a function of one item, given 3"),
        (lambda p: p.stage("s", None), "^function: "),
        (lambda p: p.host_stage("s", print, engine="steam"), "^engine: expected disk, .*'steam'"),
        (lambda p: p.host_stage("s", print, after="gone"), "^after: expected stages of this pipeline"),
        (lambda p: p.host_stage("s", print, uses="gone"), "^uses: expected a ring of this pipeline"),
        (lambda p: p.run(1), "^pipeline: expected at least one stage"),
        (lambda p: p.stage("s", print, stream="x"), "^stream: "),
    ])
    def test_names_the_argument(self, pipeline, build, message):
        with pytest.raises(ValueError, match=message):
            build(pipeline)

    def test_of_another_pipelines_parts(self, pipeline):
        other = penstock.Pipeline("cpu")
        ring, stage = other.ring("ring", bytes=4), other.host_stage("stage", print)
        pipeline.ring("ring", bytes=4)
        pipeline.host_stage("stage", print)
        with pytest.raises(ValueError, match="^uses: expected a ring of this pipeline"):
            pipeline.host_stage("work", print, uses=ring)
        with pytest.raises(ValueError, match="^after: expected stages of this pipeline"):
            pipeline.host_stage("work", print, after=stage)

    def test_of_a_run_inside_a_run(self, pipeline):
        refused = []

        def work(item):
            for use in (lambda: pipeline.run(1), lambda: pipeline.ring("new", bytes=1),
                        lambda: pipeline.host_stage("new", print)):
                with pytest.raises(ValueError, match="^pipeline: expected one that is not running"):
                    use()
                refused.append(item.index)

        pipeline.host_stage("work", work)
        pipeline.run(1)
        assert refused == [0, 0, 0]


def test_pipelines_of_several_threads(pipeline):
    """Each thread its own, all at once, and the interpreter stays free for others."""
    done = []

    def run():
        own = penstock.Pipeline("cpu", depth=2)
        ring = own.ring("ring", bytes=64)
        first = own.host_stage("first", lambda item: item.slot(ring).numpy().fill(1), uses=ring)
        own.host_stage("second", lambda item: item.slot(ring).numpy().sum(), after=first, uses=ring)
        done.append(own.run(200).items)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert done == [200] * 4


def test_objects_local_to_a_stages_thread_last(pipeline):
    local = threading.local()

    def work(item):
        local.count = getattr(local, "count", 0) + 1
        assert local.count == item.index + 1

    pipeline.host_stage("work", work)
    assert pipeline.run(50).items == 50
