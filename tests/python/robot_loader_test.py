"""The loader: columns of many episodes on one clock, in batches."""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock import robot
from robot_support import (EVERYTHING, FEATURES, FPS, FRONT, LAYOUTS, linear, loader, passes,
                           previous, stored)

import pyarrow as pa
import pyarrow.parquet as pq

pytestmark = pytest.mark.usefixtures("no_thread_stays")


class TestLoader:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_columns_on_one_clock(self, make, layout):
        dataset, episodes = make(layout)
        seen = []
        for batch in loader(dataset, {"observation.state": "linear", "action": "previous",
                                      "observation.gripper": None}, steps=60, batch=3):
            seen += batch.episodes.tolist()
            assert batch["observation.state"].shape == (len(batch.episodes), 60, 3)
            assert batch["observation.gripper"].dtype == bool
            assert (batch.times == np.arange(60) / 50).all()
            at = stored(batch.times)
            for place, number in enumerate(batch.episodes):
                episode = episodes[number]
                np.testing.assert_allclose(batch["observation.state"][place],
                                           linear(episode, "observation.state", at), atol=1e-6)
                for name in ("action", "observation.gripper"):
                    assert (batch[name][place] == previous(episode, name, at).reshape(60, -1)).all()
                assert (batch.valid[place] == (at <= episode["timestamp"][-1])).all()
        assert seen == [0, 1, 2, 3, 4]

    @settings(max_examples=25, deadline=None,
              suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=9), batch=st.integers(1, 5),
           prefetch=st.integers(1, 4), threads=st.integers(1, 3), layout=st.sampled_from(LAYOUTS),
           rate=st.sampled_from([7, 30, 100]))
    def test_any_lengths(self, make, lengths, batch, prefetch, threads, layout, rate):
        dataset, episodes = make(layout, lengths=lengths)
        whole = loader(dataset, at=rate, steps=None, batch=batch, prefetch=prefetch, threads=threads)
        seen = []
        for got in whole:
            longest = max(float(episodes[number]["timestamp"][-1]) for number in got.episodes)
            at = stored(got.times)
            assert at[-1] <= longest < stored((len(at)) / rate)
            for place, number in enumerate(got.episodes):
                seen.append(number)
                np.testing.assert_allclose(got["action"][place],
                                           linear(episodes[number], "action", at), atol=1e-6)
        assert seen == list(range(len(lengths))) and len(whole) == -(-len(lengths) // batch)

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_the_datasets_own_rate_gives_its_own_samples(self, make, layout):
        """Times in f32 lie a little off those in f64; 'previous' must not slip by a sample."""
        dataset, episodes = make(layout, lengths=[300], jitter=0)
        (batch,) = loader(dataset, {"action": "previous", FRONT: "previous"}, at=FPS, steps=None,
                          batch=1)
        assert (batch["action"][0] == episodes[0]["action"]).all()
        assert (batch[FRONT][0, :, 0] == np.arange(300)).all() and batch.valid.all()

    def test_times_in_nanoseconds(self, make):
        base = 1_700_000_000_000_000_000

        def change(episode):
            episode["stamp"] = base + np.rint(np.arange(300) / FPS * 1e9).astype("i8")

        dataset, episodes = make(lengths=[300], change=change, features=FEATURES | {
            "stamp": {"dtype": "int64", "shape": [1], "names": None}})
        (batch,) = loader(dataset, robot.Signal("action", "previous", times="stamp"), at=FPS,
                          steps=None, batch=1)
        assert (batch["action"][0] == episodes[0]["action"]).all() and batch.valid.all()

    def test_times_given(self, make):
        dataset, episodes = make(lengths=[20])
        at = np.array([0.3, 0.1, 5.0, -1.0])
        (batch,) = loader(dataset, at=at, steps=None, batch=1)
        np.testing.assert_allclose(batch["action"][0], linear(episodes[0], "action", at), atol=1e-6)
        assert batch.valid.tolist() == [[True, True, False, False]]
        assert (batch.times == at).all()

    def test_seconds_and_no_steps(self, make):
        dataset, _ = make(lengths=[20])
        (batch,) = loader(dataset, steps=None, seconds=0.5)
        assert batch["action"].shape == (1, 25, 2)
        (batch,) = loader(dataset, steps=0)
        assert batch["action"].shape == (1, 0, 2) and batch.valid.shape == (1, 0)

    def test_outside(self, make):
        dataset, _ = make(lengths=[5], jitter=0)
        (batch,) = loader(dataset, steps=20, outside="fill", fill=-7)
        assert (batch["action"][~batch.valid] == -7).all() and not batch.valid.all()

    def test_an_episode_begins_at_0_whatever_its_times(self, make):
        dataset, episodes = make(lengths=[20], features=FEATURES | {
            "timestamp": {"dtype": "float64", "shape": [1], "names": None}},
            change=lambda e: e.update(timestamp=e["timestamp"].astype("f8") + 1.7e9))
        (batch,) = loader(dataset, steps=None, batch=1)
        assert batch.valid.all() and (batch["action"][0, 0] == episodes[0]["action"][0]).all()

    @pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
    def test_types_of_results(self, make, dtype):
        dataset, episodes = make(lengths=[20])
        (batch,) = loader(dataset, ["action", "observation.gripper"], dtype=dtype, steps=15)
        assert penstock._dtypes.dtype_name(batch["action"].dtype) == dtype
        assert batch["observation.gripper"].dtype == bool
        np.testing.assert_allclose(batch["action"][0], linear(
            episodes[0], "action", stored(batch.times)), atol=1e-3)

    def test_bf16_as_memory_of_penstock(self, make):
        dataset, _ = make(lengths=[20])
        (batch,) = loader(dataset, dtype="bf16", like="penstock")
        assert batch["action"].dtype == "bf16" and batch["action"].shape == (1, 10, 2)
        assert batch.valid.dtype == "bool"
        with pytest.raises(ValueError, match="^like: .*bf16"):
            loader(dataset, dtype="bf16")

    def test_rows_of_all_columns(self, make):
        dataset, _ = make()
        columns = {"observation.state": "linear", "observation.pose": None, "action": "previous",
                   FRONT: "nearest"}
        columns = [robot.Signal(name, mode) for name, mode in columns.items()]
        columns[1] = robot.Signal("observation.pose", "nearest", columns=[((3, 7), "slerp")])
        apart = loader(dataset, columns, dtype="f32", steps=30)
        fused = loader(dataset, columns, dtype="f32", steps=30, fused=True)
        assert list(fused.slices.values()) == [slice(0, 3), slice(3, 10), slice(10, 12),
                                               slice(12, 13)]
        for one, all_ in zip(apart, fused, strict=True):
            assert list(all_) == ["rows"] and all_["rows"].shape[2] == 13
            assert (all_.valid == one.valid).all()
            for name, place in fused.slices.items():
                assert (all_["rows"][..., place] == one[name]).all(), name

    def test_a_row_needs_one_type(self, make):
        dataset, _ = make()
        with pytest.raises(ValueError, match="^dtype: expected a dtype for the fused columns.* bool, f32"):
            loader(dataset, ["action", "observation.gripper"], fused=True)

    def test_columns_with_times_of_their_own(self, make):
        def change(episode):
            episode["late"] = episode["timestamp"] + np.float32(0.25)

        dataset, episodes = make(lengths=[30, 20], change=change, features=FEATURES | {
            "late": {"dtype": "float32", "shape": [1], "names": None}})
        columns = ["action", robot.Signal("observation.state", times="late")]
        (batch,) = loader(dataset, columns, steps=50)
        at = stored(batch.times)
        for place, episode in enumerate(episodes):
            moved = episode | {"timestamp": episode["late"]}
            np.testing.assert_allclose(batch["observation.state"][place],
                                       linear(moved, "observation.state", at), atol=1e-6)
            assert (batch.valid["action"][place] == (at <= episode["timestamp"][-1])).all()
            assert (batch.valid["observation.state"][place] == (
                (at >= moved["timestamp"][0]) & (at <= moved["timestamp"][-1]))).all()
        (rows,) = loader(dataset, columns, steps=50, fused=True)
        assert rows.valid.shape == (2, 50, 2)
        assert (rows.valid[..., 1] == batch.valid["observation.state"]).all()
        assert (rows["rows"][..., 2:] == batch["observation.state"]).all()

    def test_shuffled_alike_from_one_seed(self, make):
        dataset, _ = make(lengths=[5] * 10)

        def orders(**more):
            one = loader(dataset, batch=3, shuffle=True, **more)
            return [[list(batch.episodes) for batch in one] for _ in range(2)]

        first, second = orders(seed=3)
        assert orders(seed=3) == [first, second] and first != second
        assert orders(seed=4) != [first, second]
        assert sorted(sum(first, [])) == list(range(10)) and [len(b) for b in first] == [3, 3, 3, 1]
        again = loader(dataset, batch=3, shuffle=True, seed=3)
        again.epoch = 1
        assert [list(batch.episodes) for batch in again] == second

    def test_a_short_last_batch_is_dropped(self, make):
        dataset, _ = make(lengths=[5] * 10)
        one = loader(dataset, batch=4, drop_last=True)
        assert len(one) == 2 and [len(batch.episodes) for batch in one] == [4, 4]
        assert len(loader(dataset, batch=4)) == 3

    def test_no_episodes(self, make):
        dataset, _ = make()
        assert list(loader(dataset, episodes=[])) == []

    def test_batches_keep_what_they_hold(self, make):
        """Slots are used again; what was handed out is not."""
        dataset, episodes = make(lengths=[9] * 20)
        batches = list(loader(dataset, steps=12, prefetch=1))
        at = stored(batches[0].times)
        for batch in batches:
            for place, number in enumerate(batch.episodes):
                np.testing.assert_allclose(batch["action"][place],
                                           linear(episodes[number], "action", at), atol=1e-6)

    def test_files_of_different_types_in_a_batch(self, make):
        """What cannot be read together is read alone."""
        dataset, episodes = make(lengths=[30] * 4)
        path = dataset.episodes[2].path
        table = pq.read_table(path)
        wide = pa.array(episodes[2]["action"].tolist(), pa.list_(pa.float64()))
        pq.write_table(table.set_column(table.column_names.index("action"), "action", wide), path)
        batch, = loader(dataset, batch=4, threads=1)
        for place, episode in enumerate(episodes):
            np.testing.assert_allclose(batch["action"][place],
                                       linear(episode, "action", stored(batch.times)), atol=1e-6)

    @pytest.mark.parametrize("rows", [10, 45, 1000])
    def test_episodes_that_share_row_groups(self, make, rows):
        """In order and out of order, in one group or across several."""
        dataset, episodes = make("v3.0", lengths=[30, 8, 20, 25, 12, 9, 31], episodes_per_file=4)
        for path in {episode.path for episode in dataset.episodes}:
            pq.write_table(pq.read_table(path), path, row_group_size=rows)
        for shuffle in (False, True):
            for batch in loader(dataset, ["action", FRONT], batch=5, shuffle=shuffle, threads=2):
                for place, number in enumerate(batch.episodes):
                    at = stored(batch.times)
                    np.testing.assert_allclose(batch["action"][place],
                                               linear(episodes[number], "action", at), atol=1e-6)
                    assert batch[FRONT][place, 0, 0] == dataset.video(number, FRONT)[1]

    def test_two_passes_at_once(self, make):
        dataset, _ = make(lengths=[5] * 10)
        one = loader(dataset)
        pairs = [(list(a.episodes), list(b.episodes)) for a, b in zip(one, one, strict=True)]
        assert len(pairs) == 5 and all(a == b for a, b in pairs)

    def test_no_more_than_prefetch_are_made_ahead(self, make, monkeypatch):
        dataset, _ = make(lengths=[5] * 20)
        read = []
        plain = dataset.read_rows
        monkeypatch.setattr(dataset, "read_rows", lambda *a: read.append(a[0]) or plain(*a))
        with iter(loader(dataset, batch=1, prefetch=2, threads=1)) as batches:
            next(batches)
            time.sleep(0.3)
            assert len(read) <= 7  # one taken, two made, two decoded, two read
            read_before = len(read)
            assert len(list(batches)) == 19 and read_before < len(read) == 20

    def test_a_timeline(self, make):
        dataset, _ = make()
        timeline = penstock.Timeline()
        assert len(list(loader(dataset).batches(recorder=timeline))) == 3
        assert {entry.stage for entry in timeline.entries()} == {
            "read", "decode", "resample", "hand over"}

    def test_a_path_does(self, make):
        dataset, _ = make()
        one = loader(str(dataset.path))
        assert repr(one) == "<penstock.robot.Loader of action on 'cpu': 3 batches>"


@pytest.mark.parametrize("what", EVERYTHING)
def test_memory_of_the_devices_own(make, monkeypatch, what):
    """The way of a GPU, where slots are uploaded: the CPU takes it when told so."""
    dataset, _ = make(lengths=[20, 7, 33, 12, 5] * 3)
    expected = passes(dataset, what)
    monkeypatch.setattr(robot._engine, "has_memory_of_its_own", lambda device: True)
    assert passes(dataset, what) == expected
