import gc
import weakref

import numpy as np
import pytest

import penstock

TYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "i64": np.int64, "i32": np.int32,
         "u8": np.uint8, "bool": np.bool_}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("share", [np.asarray, np.from_dlpack, penstock.Array.numpy])
def test_numpy_sees_the_same_bytes(dtype, share):
    room = penstock.empty((3, 5), dtype, device="cpu")
    view = share(room)
    assert view.dtype == TYPES[dtype] and view.shape == (3, 5)
    view[...] = 1
    assert (room.numpy() == 1).all()


@pytest.mark.parametrize("given", ["f32", "float32", np.float32, np.dtype("f4"), np.dtype("float32")])
def test_element_types_by_any_name(given):
    assert penstock.empty(1, given).dtype == "f32"


@pytest.mark.parametrize("given", ["int7", np.int16, np.complex64, object, 3])
def test_other_element_types_are_refused(given):
    with pytest.raises(ValueError, match="^dtype: expected f64, f32, .*, given"):
        penstock.empty(1, given)


def test_a_view_keeps_the_memory():
    view = penstock.empty(1 << 20, "u8").numpy()
    view[:] = 5
    gc.collect()
    assert (view == 5).all()


@pytest.mark.parametrize("range_", [slice(1, 4), slice(None), slice(-2, None), slice(3, 1),
                                    slice(2, 100), slice(5, 5)])
def test_ranges_share_the_bytes(range_):
    room = penstock.empty((5, 3), "i32", device="cpu")
    room.numpy()[:] = np.arange(15).reshape(5, 3)
    assert (room[range_].numpy() == room.numpy()[range_]).all()
    assert room[range_].shape == room.numpy()[range_].shape
    room[range_].numpy()[...] = -1
    assert (room.numpy()[range_] == -1).all()
    copied = penstock.empty(room[range_].shape, "i32", device="cpu")
    penstock.copy(copied, room[range_])
    assert (copied.numpy() == -1).all()


def test_ranges_have_no_steps():
    with pytest.raises(ValueError, match="^step: expected 1, given 2"):
        penstock.empty(4)[::2]


@pytest.mark.parametrize("shape", [0, (0,), (3, 0, 2)])
def test_nothing_is_an_array_too(shape):
    room = penstock.empty(shape)
    assert room.nbytes == 0
    assert np.from_dlpack(room).size == 0


@pytest.mark.parametrize("shape", [-1, (2, -3)])
def test_negative_extents_are_refused(shape):
    with pytest.raises(ValueError, match="shape"):
        penstock.empty(shape)


def test_other_memory_is_refused():
    with pytest.raises(ValueError, match="^memory: expected 'pinned' or 'device', given 'sand'"):
        penstock.empty(1, memory="sand")


def test_numpy_has_no_bf16_and_is_told_so():
    room = penstock.empty(4, "bf16")
    with pytest.raises(BufferError, match="no bf16"):
        np.asarray(room)


class TestSlots:
    """What a stage was given, after the stage."""

    @pytest.fixture
    def kept(self, pipeline):
        ring = pipeline.ring("ring", shape=4, dtype="f32")
        kept = []

        def work(item):
            slot = item.slot(ring)
            slot.numpy()[:] = item.index
            kept.append((item, slot, ring, slot.numpy(), slot.__dlpack__()))

        pipeline.host_stage("work", work, uses=ring)
        pipeline.run(3)
        return kept

    def test_the_item_says_that_it_is_over(self, kept):
        item, _, ring = kept[0][:3]
        for use in (lambda: item.slot(ring), lambda: item.stopping, lambda: item.stream):
            with pytest.raises(RuntimeError, match="the item is over"):
                use()
        assert item.index == 0 and "over" in repr(item)

    @pytest.mark.parametrize("use", [
        penstock.Array.numpy, np.asarray, np.from_dlpack, lambda slot: penstock.copy(slot, b"x" * 16),
        lambda slot: penstock.iterate(slot)])
    def test_the_slot_says_that_it_is_back(self, kept, use):
        with pytest.raises(RuntimeError, match="the slot was returned to its ring"):
            use(kept[0][1])

    def test_its_buffer_is_refused(self, kept):
        with pytest.raises(BufferError, match="the slot was returned to its ring"):
            memoryview(kept[0][1])

    def test_views_outlive_the_pipeline(self):
        pipeline = penstock.Pipeline("cpu")
        ring = pipeline.ring("ring", bytes=1 << 20)
        views = []
        pipeline.host_stage("work", lambda item: views.append(item.slot(ring).numpy()), uses=ring)
        pipeline.run(4)
        gone = weakref.ref(pipeline)
        del pipeline
        gc.collect()
        assert gone() is None
        for number, view in enumerate(views):
            view[:] = number
        assert [int(view[-1]) for view in views] == [0, 1, 2, 3]


def test_a_pipeline_that_its_own_stages_hold_is_collected():
    class Holder:
        pass

    def make():
        holder = Holder()
        holder.pipeline = penstock.Pipeline("cpu")
        holder.ring = holder.pipeline.ring("ring", bytes=16)
        holder.views = []

        def work(item):
            holder.views.append((item, item.slot(holder.ring), item.slot(holder.ring).numpy()))

        holder.pipeline.host_stage("work", work, uses=holder.ring)
        holder.pipeline.run(3)
        return weakref.ref(holder.pipeline)

    gone = make()
    gc.collect()
    assert gone() is None
