"""Datasets laid out as LeRobot does, and the loader over them."""

import doctest
import gc
import importlib.util
import inspect
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed here")
import pyarrow.parquet as pq  # noqa: E402

from penstock import robot  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
LAYOUTS = ["v2.1", "v3.0"]
FPS = 30
FRONT = "observation.images.front"
FEATURES = {
    "observation.state": {"dtype": "float32", "shape": [3], "names": {"motors": ["a", "b", "c"]}},
    "action": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
    "observation.gripper": {"dtype": "bool", "shape": [1], "names": None},
    "observation.pose": {"dtype": "float64", "shape": [7], "names": None},
    FRONT: {"dtype": "video", "shape": [480, 640, 3], "names": ["height", "width", "channel"],
            "info": {"video.fps": 30.0}},
}


def load_writer():
    """The example makes datasets; it is the writer of these tests, too."""
    spec = importlib.util.spec_from_file_location("example", ROOT / "examples/python/robot.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example.write_dataset


write_dataset = load_writer()


def an_episode(length, seed=0, jitter=0.0):
    random = np.random.default_rng([seed, length])
    times = np.arange(length) / FPS + jitter * np.sort(random.random(length))
    pose = random.normal(size=(length, 7))
    pose[:, 3:] /= np.linalg.norm(pose[:, 3:], axis=1, keepdims=True)
    return {"observation.state": random.random((length, 3)).astype("f4"),
            "action": random.random((length, 2)).astype("f4"),
            "observation.gripper": random.random(length) > 0.5,
            "observation.pose": pose,
            "timestamp": (times - (times[0] if length else 0)).astype("f4")}


@pytest.fixture
def make(tmp_path):
    def make(layout="v2.1", lengths=(20, 7, 33, 12, 5), features=FEATURES, change=None, jitter=0.5,
             **more):
        episodes = [an_episode(length, number, jitter) for number, length in enumerate(lengths)]
        for episode in episodes if change else ():
            change(episode)
        folder = tmp_path / f"data{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        write_dataset(folder, layout, episodes, features, **more)
        return robot.Dataset(folder), episodes

    return make


@pytest.fixture(autouse=True)
def no_thread_stays():
    before = set(threading.enumerate())
    yield
    gc.collect()
    end = time.monotonic() + 10
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.01)
    assert set(threading.enumerate()) <= before


def loader(dataset, columns="action", **more):
    return robot.Loader(dataset, columns, **({"at": 50, "steps": 10, "batch": 2, "device": "cpu",
                                              "like": "numpy"} | more))


def linear(episode, name, at):
    times, values = episode["timestamp"].astype("f8"), episode[name]
    return np.stack([np.interp(at, times, column) for column in values.T], axis=-1)


def previous(episode, name, at):
    place = np.searchsorted(episode["timestamp"].astype("f8"), at, "right") - 1
    return episode[name][np.maximum(place, 0)]


def stored(at):
    return np.asarray(at).astype("f4").astype("f8")


class TestDataset:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_what_the_metadata_says(self, make, layout):
        dataset, episodes = make(layout)
        assert dataset.version == layout and dataset.fps == 30
        state = dataset.features["observation.state"]
        assert (state.dtype, state.shape, state.names, state.fps) == (
            "float32", (3,), ("a", "b", "c"), 30)
        assert dataset.features["action"].names == ("x", "y")
        assert [e.length for e in dataset.episodes] == [20, 7, 33, 12, 5]
        assert dataset.episodes[-1].index == 4 and dataset.episodes[0].tasks == ("reach",)
        assert [e.index for e in dataset.episodes[1:3]] == [1, 2]
        assert dataset.tasks == {0: "reach"}
        assert repr(dataset) == (f"<penstock.robot.Dataset {layout}: 5 episodes, 77 samples, "
                                 "30 fps>")
        with pytest.raises(IndexError):
            dataset.episodes[5]

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_episodes_are_read(self, make, layout):
        dataset, episodes = make(layout)
        for number, episode in enumerate(episodes):
            got = dataset.read(number)
            assert set(got) == set(dataset.features) - {FRONT}
            for name, values in episode.items():
                assert got[name].dtype == values.dtype and (got[name] == values).all(), name
            assert (got["episode_index"] == number).all()
        assert list(dataset.read(1, "action")) == ["action"]

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_lists_are_shared_and_not_copied(self, make, layout):
        dataset, _ = make(layout)
        state = dataset.read(2, "observation.state")["observation.state"]
        assert not state.flags.writeable and not state.flags.owndata and state.flags.c_contiguous

    @pytest.mark.parametrize("rows", [1, 4, 13, 1000])
    @pytest.mark.parametrize("cache", [0, 1 << 30])
    def test_episodes_across_row_groups(self, make, rows, cache):
        dataset, episodes = make("v3.0")
        for path in dataset.path.glob("data/*/*.parquet"):
            pq.write_table(pq.read_table(path), path, row_group_size=rows)
        dataset = robot.Dataset(dataset.path, cache_bytes=cache)
        for number in [3, 0, 4, 2, 1, 3]:
            for name, values in dataset.read(number, ["action", "observation.gripper"]).items():
                assert (values == episodes[number][name]).all()

    def test_many_threads_read_one_file(self, make):
        dataset, episodes = make("v3.0", lengths=[10] * 30, episodes_per_file=30)
        decoded = []
        failures = []

        def read(seed):
            for number in np.random.default_rng(seed).permutation(30):
                if not (dataset.read(number, "action")["action"] == episodes[number]["action"]).all():
                    failures.append(number)
            decoded.append(seed)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(decoded) == [0, 1, 2, 3] and failures == []

    @pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float32()),
                                      pa.list_(pa.float32(), 2)], ids=str)
    def test_every_kind_of_list(self, make, kind):
        dataset, episodes = make(lengths=[6])
        path = dataset.episodes[0].path
        table = pq.read_table(path)
        place = table.column_names.index("action")
        pq.write_table(table.set_column(place, "action", table["action"].cast(kind)), path)
        assert (dataset.read(0, "action")["action"] == episodes[0]["action"]).all()

    def test_lists_of_lists(self, make):
        dataset, _ = make(lengths=[4], jitter=0, features=FEATURES | {
            "grid": {"dtype": "int16", "shape": [2, 3], "names": None}})
        path, grid = dataset.episodes[0].path, np.arange(24, dtype="i2").reshape(4, 2, 3)
        table = pq.read_table(path).append_column(
            "grid", pa.array(grid.tolist(), pa.list_(pa.list_(pa.int16()))))
        pq.write_table(table, path)
        assert (dataset.read(0, "grid")["grid"] == grid).all()
        (batch,) = loader(dataset, "grid", at=FPS, steps=4, batch=1)
        assert batch["grid"].dtype == np.int32
        assert (batch["grid"].reshape(4, 2, 3) == grid).all()

    def test_a_column_whose_name_begins_like_anothers(self, make):
        dataset, episodes = make(lengths=[4], features=FEATURES | {
            "action.more": {"dtype": "float32", "shape": [1], "names": None}},
            change=lambda e: e.update({"action.more": np.zeros(4, "f4")}))
        assert (dataset.read(0, ["action"])["action"] == episodes[0]["action"]).all()

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_an_episode_of_length_0(self, make, layout):
        dataset, _ = make(layout, lengths=[3, 0, 2])
        assert {name: array.shape for name, array in dataset.read(
            1, ["action", "timestamp", "observation.gripper"]).items()} == {
            "action": (0, 2), "timestamp": (0,), "observation.gripper": (0,)}
        with pytest.raises(ValueError, match="^episodes: expected some that have samples, "
                                             "given 1, of length 0"):
            loader(dataset)
        assert [list(b.episodes) for b in loader(dataset, episodes=[2, 0])] == [[2, 0]]
        with pytest.raises(ValueError, match="^episode: .*of length 0"):
            dataset.frames(1, FRONT, [0])

    def test_episodes_are_known_by_their_numbers(self, make):
        """Where some were left out."""
        dataset, episodes = make("v2.1")
        lines = (dataset.path / "meta/episodes.jsonl").read_text().splitlines()
        (dataset.path / "meta/episodes.jsonl").write_text("\n".join([lines[4], lines[1]]))
        dataset = robot.Dataset(dataset.path)
        assert [episode.index for episode in dataset.episodes] == [4, 1]
        assert (dataset.read(4)["action"] == episodes[4]["action"]).all()
        with pytest.raises(ValueError, match="^episode: expected one of 2.*given 0"):
            dataset.read(0)

    def test_tasks_as_pandas_stores_them(self, make):
        dataset, _ = make("v3.0")
        pq.write_table(pa.table({"task_index": [0, 1], "__index_level_0__": ["reach", "grasp"]}),
                       dataset.path / "meta/tasks.parquet")
        assert robot.Dataset(dataset.path).tasks == {0: "reach", 1: "grasp"}

    def test_columns_of_no_numbers_are_left_out(self, make):
        dataset, _ = make(features=FEATURES | {
            "text": {"dtype": "string", "shape": [1], "names": None},
            "spoken": {"dtype": "language", "shape": [1], "names": None}})
        assert not {"text", "spoken", FRONT} & set(dataset.read(0))

    def test_it_can_be_pickled(self, make):
        dataset, episodes = make("v3.0")
        again = pickle.loads(pickle.dumps(dataset))
        assert (again.read(1)["action"] == episodes[1]["action"]).all()


class TestFrames:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_the_frame_on_show(self, make, layout):
        dataset, episodes = make(layout, jitter=0)
        path, first = dataset.video(1, FRONT)
        assert first == {"v2.1": 0, "v3.0": 20}[layout]
        assert path.name == {"v2.1": "episode_000001.mp4", "v3.0": "file-000.mp4"}[layout]
        at = np.arange(7) / FPS
        assert (dataset.frames(1, FRONT, at) == first + np.arange(7)).all()
        assert dataset.frames(1, FRONT, at + 0.03).tolist() == [first + i for i in range(7)]
        assert dataset.frames(1, FRONT, at + 0.03, mode="nearest").tolist() == [
            first + min(i + 1, 6) for i in range(7)]
        assert dataset.frames(1, FRONT, [-1, 99]).tolist() == [first, first + 6]

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("mode", ["previous", "nearest"])
    def test_the_loader_says_the_same(self, make, layout, mode):
        dataset, _ = make(layout)
        for batch in loader(dataset, {FRONT: mode}, steps=40):
            assert batch[FRONT].dtype == np.int64 and batch[FRONT].shape[1:] == (40, 1)
            for episode, frames in zip(batch.episodes, batch[FRONT]):
                assert (frames[:, 0] == dataset.frames(episode, FRONT, batch.times, mode=mode)).all()

    def test_what_is_no_video(self, make):
        dataset, _ = make()
        for call in (dataset.video, lambda *a: dataset.frames(*a, [0])):
            with pytest.raises(ValueError, match=f"^feature: expected a video .*{FRONT}"):
                call(0, "action")
        with pytest.raises(ValueError, match="^mode: "):
            dataset.frames(0, FRONT, [0], mode="linear")
        with pytest.raises(ValueError, match="^at: "):
            dataset.frames(0, FRONT, [np.nan])
        with pytest.raises(ValueError, match="^columns: .*frames"):
            dataset.read(0, FRONT)


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
        with pytest.raises(ValueError, match="^dtype: expected a type for all .* bool, f32"):
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

    def test_two_passes_at_once(self, make):
        dataset, _ = make(lengths=[5] * 10)
        one = loader(dataset)
        pairs = [(list(a.episodes), list(b.episodes)) for a, b in zip(one, one, strict=True)]
        assert len(pairs) == 5 and all(a == b for a, b in pairs)

    def test_no_more_than_prefetch_are_made_ahead(self, make, monkeypatch):
        dataset, _ = make(lengths=[5] * 20)
        read = []
        plain = dataset.read
        monkeypatch.setattr(dataset, "read", lambda *a: read.append(a[0]) or plain(*a))
        with iter(loader(dataset, batch=1, prefetch=2, threads=1)) as batches:
            next(batches)
            time.sleep(0.3)
            assert len(read) <= 6  # one taken, two made, two decoded, one read
            read_before = len(read)
            assert len(list(batches)) == 19 and read_before < len(read) == 20

    def test_a_timeline(self, make):
        dataset, _ = make()
        timeline = penstock.Timeline()
        assert len(list(loader(dataset).batches(recorder=timeline))) == 3
        assert {entry.stage for entry in timeline.entries()} == {"decode", "resample", "hand over"}

    def test_a_path_does(self, make):
        dataset, _ = make()
        one = loader(str(dataset.path))
        assert repr(one) == "<penstock.robot.Loader of action on 'cpu': 3 batches>"


class TestEnds:
    def test_closed_early(self, make):
        dataset, _ = make(lengths=[5] * 40)
        one = loader(dataset, batch=1)
        for taken in (0, 1, 3):
            batches = iter(one)
            for _ in range(taken):
                next(batches)
            batches.close()
            batches.close()
            assert not [t for t in threading.enumerate() if "penstock.robot" in t.name]
            with pytest.raises(StopIteration):
                next(batches)
        assert len(list(one)) == 40

    def test_dropped_early(self, make):
        dataset, _ = make(lengths=[5] * 40)
        for _ in loader(dataset, batch=1):
            break  # the fixture sees the threads end

    def test_the_caller_fails(self, make):
        dataset, _ = make(lengths=[5] * 40)
        with pytest.raises(ZeroDivisionError), iter(loader(dataset, batch=1)) as batches:
            for _ in batches:
                1 / 0

    def test_a_failure_in_decode_arrives_as_it_is(self, make, monkeypatch):
        dataset, _ = make(lengths=[5] * 10)
        plain = dataset.read

        class Thrown(Exception):
            pass

        def read(number, *args):
            if number == 6:
                raise Thrown("here")
            return plain(number, *args)

        monkeypatch.setattr(dataset, "read", read)
        one = loader(dataset, batch=2)
        seen = []
        with pytest.raises(Thrown, match="here"):
            for batch in one:
                seen += batch.episodes.tolist()
        assert seen == list(range(len(seen))) and len(seen) <= 6
        assert not [t for t in threading.enumerate() if "penstock.robot" in t.name]
        monkeypatch.undo()
        assert len(list(one)) == 5

    def test_a_million_passes_or_so(self, make):
        dataset, _ = make(lengths=[3])
        one = loader(dataset)
        for _ in range(50):
            assert len(list(one)) == 1
        assert len(one._idle) == 1


def damaged(make, layout, damage, lengths=(8, 6, 9), **more):
    dataset, _ = make(layout, lengths=lengths, **more)
    path = dataset.episodes[1].path
    damage(path)
    return robot.Dataset(dataset.path), path


def change_column(path, name, values):
    table = pq.read_table(path)
    if values is None:
        pq.write_table(table.drop_columns([name]), path)
    else:
        place = table.column_names.index(name)
        pq.write_table(table.set_column(place, name, values(table[name])), path)


def spoil_pages(path, name):
    group = pq.read_metadata(path).row_group(0)
    column = next(group.column(i) for i in range(group.num_columns)
                  if group.column(i).path_in_schema.startswith(name))
    begin = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[begin:begin + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)


def ragged(column):
    rows = column.to_pylist()
    rows[3] = rows[3][:1]
    return pa.array(rows, pa.list_(pa.float32()))


def spoiled(value, row):
    def spoil(column):
        values = column.to_pylist()
        values[row] = value
        return pa.array(values, column.type)

    return spoil


DAMAGE = {
    "truncated": (lambda p: p.write_bytes(p.read_bytes()[:-100]), "a Parquet file that is whole"),
    "cut in half": (lambda p: p.write_bytes(p.read_bytes()[:200]), "a Parquet file that is whole"),
    "empty": (lambda p: p.write_bytes(b""), "a Parquet file that is whole"),
    "another file": (lambda p: p.write_bytes(b"hello " * 1000), "a Parquet file that is whole"),
    "spoiled pages": (lambda p: spoil_pages(p, "action"), "a Parquet file that is whole"),
    "no column": (lambda p: change_column(p, "action", None), "a column 'action'"),
    "texts": (lambda p: change_column(p, "action", lambda c: pa.array(["a"] * len(c))),
              "column 'action': expected numbers, or lists of numbers, given string"),
    "ragged lists": (lambda p: change_column(p, "action", ragged),
                     "column 'action': expected lists of one length, 2 .*, given 1 in row 3"),
    "wider lists": (lambda p: change_column(p, "action", lambda c: pa.array(
        [[1.0, 2.0, 3.0]] * len(c))), "column 'action': expected 2 numbers a row"),
    "no value": (lambda p: change_column(p, "action", spoiled(None, 2)),
                 "column 'action': expected a value in every row, given 1 without one"),
    "NaN": (lambda p: change_column(p, "timestamp", spoiled(float("nan"), 2)),
            "column 'timestamp' of episode .*: expected finite times, given nan in row 2"),
    "infinite": (lambda p: change_column(p, "timestamp", spoiled(float("inf"), 2)),
                 "expected finite times, given inf in row 2"),
    "backwards": (lambda p: change_column(p, "timestamp", spoiled(-1.0, 2)),
                  "column 'timestamp' of episode .*: expected times that do not decrease, given "
                  "-1.0 after .* in row 2"),
    "whole times": (lambda p: change_column(p, "timestamp", lambda c: pa.array(range(len(c)))),
                    "expected float32, as meta/ says, given int64"),
}


class TestDamage:
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("kind", DAMAGE)
    def test_names_the_file(self, make, layout, kind):
        damage, expected = DAMAGE[kind]
        dataset, path = damaged(make, layout, damage)
        with pytest.raises(penstock.InvalidArgument, match=expected) as caught:
            list(loader(dataset, batch=1))
        assert str(caught.value).startswith(str(path))

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_a_file_that_is_gone(self, make, layout):
        dataset, path = damaged(make, layout, Path.unlink)
        with pytest.raises(FileNotFoundError) as caught:
            list(loader(dataset))
        assert caught.value.filename == str(path) and caught.value.errno == 2

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_a_folder_instead(self, make, layout):
        dataset, path = damaged(make, layout, lambda p: (p.unlink(), p.mkdir()))
        with pytest.raises((OSError, ValueError), match=re.escape(str(path))):
            list(loader(dataset))

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_rows_that_are_missing(self, make, layout):
        dataset, path = damaged(make, layout,
                                lambda p: pq.write_table(pq.read_table(p).slice(0, 5), p))
        with pytest.raises(ValueError, match=r"rows, as meta/ says, given 5") as caught:
            list(loader(dataset))
        assert str(path) in str(caught.value)

    def test_rows_of_another_episode(self, make):
        dataset, path = damaged(make, "v3.0",
                                lambda p: pq.write_table(pq.read_table(p).slice(2), p),
                                lengths=(8, 6, 9, 4))
        with pytest.raises(ValueError, match=r"episode 0 from row 0 on, .*given episodes \[0, 1\]"):
            list(loader(dataset, episodes=[0]))

    def test_a_file_that_ends_while_it_is_read(self, make):
        dataset, _ = make(lengths=[300] * 30)
        with pytest.raises((ValueError, OSError), match="parquet"):
            for batch in loader(dataset, batch=1, prefetch=1):
                if batch.episodes[0] == 2:
                    os.truncate(dataset.episodes[20].path, 1000)

    @pytest.mark.parametrize("name, text, expected", [
        ("info.json", "{", "expected JSON"),
        ("info.json", "[]", "expected a JSON object"),
        ("info.json", "{}", "expected a text 'codebase_version', given None"),
        ("episodes.jsonl", "{}", "line 1: expected episode_index and length"),
        ("tasks.jsonl", "no", "expected JSON"),
    ])
    def test_metadata(self, make, name, text, expected):
        dataset, _ = make()
        (dataset.path / "meta" / name).write_text(text)
        with pytest.raises(ValueError, match=expected) as caught:
            robot.Dataset(dataset.path)
        assert str(dataset.path / "meta" / name) in str(caught.value)

    @pytest.mark.parametrize("key, value, expected", [
        ("codebase_version", "v1.6", "v2.0, v2.1 or v3.0, given v1.6"),
        ("codebase_version", "v4.0", "v2.0, v2.1 or v3.0, given v4.0"),
        ("fps", 0, "a number 'fps' above 0, given 0"),
        ("fps", "30", "a number 'fps' above 0, given '30'"),
        ("chunks_size", None, "a number 'chunks_size' above 0"),
        ("features", [], "an object 'features'"),
        ("features", {"x": {}}, "feature 'x': expected a dtype and a shape"),
    ])
    def test_info(self, make, key, value, expected):
        dataset, _ = make()
        path = dataset.path / "meta/info.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
        with pytest.raises(ValueError, match=expected) as caught:
            robot.Dataset(dataset.path)
        assert str(path) in str(caught.value)

    @pytest.mark.parametrize("template, expected", [
        ("../{episode_index}.parquet", "a path inside the dataset"),
        ("/etc/{episode_index}", "a path inside the dataset"),
        ("{nothing}.parquet", "a path made of episode_chunk, episode_index"),
        ("{", "a path made of"),
    ])
    def test_paths(self, make, template, expected):
        dataset, _ = make()
        path = dataset.path / "meta/info.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"data_path": template}))
        with pytest.raises(ValueError, match=expected):
            robot.Dataset(dataset.path).read(0)

    def test_tables_of_episodes(self, make):
        dataset, _ = make("v3.0")
        path = dataset.path / "meta/episodes/chunk-000/file-000.parquet"
        pq.write_table(pq.read_table(path).drop_columns(["length"]), path)
        with pytest.raises(ValueError, match="given none of length"):
            robot.Dataset(dataset.path)
        path.unlink()
        with pytest.raises(ValueError, match="meta/episodes: expected Parquet files, given none"):
            robot.Dataset(dataset.path)

    def test_no_dataset(self, tmp_path):
        with pytest.raises(ValueError, match="^path: expected a folder"):
            robot.Dataset(tmp_path / "gone")
        with pytest.raises(FileNotFoundError) as caught:
            robot.Dataset(tmp_path)
        assert caught.value.filename == str(tmp_path / "meta/info.json")


@pytest.mark.parametrize("arguments, expected", [
    ({"columns": []}, "columns: expected some columns, each once"),
    ({"columns": ["action", "action"]}, "columns: expected some columns, each once"),
    ({"columns": "actoin"}, "columns: expected some of observation.state, .*given 'actoin'"),
    ({"columns": robot.Signal("action", times="when")}, "columns: expected some of .*'when'"),
    ({"columns": {"action": "cubic"}}, "columns, mode of 'action': expected linear, .*'cubic'"),
    ({"columns": {"observation.gripper": "linear"}},
     "columns, mode of 'observation.gripper': expected nearest, previous, next, given 'linear'"),
    ({"columns": {FRONT: "linear"}}, f"columns, mode of '{FRONT}'"),
    ({"columns": "text"}, "columns: expected columns of numbers, given 'text', of string"),
    ({"columns": ["action", "observation.state"], "fused": True, "dtype": "i64"}, "dtype: "),
    ({"at": 0}, "at: expected a rate above 0"),
    ({"at": float("nan")}, "at: "),
    ({"at": [[1.0]]}, "at: expected a rate, or finite times"),
    ({"at": [float("inf")], "steps": None}, "at: "),
    ({"at": [1.0]}, "seconds, steps: expected neither"),
    ({"seconds": 1}, "seconds, steps: expected one of the two"),
    ({"steps": -1}, "steps: expected 0 or more"),
    ({"steps": None, "seconds": float("inf")}, "seconds: "),
    ({"batch": 0}, "batch: expected 1 or more"),
    ({"prefetch": 0}, "prefetch: expected 1 or more"),
    ({"threads": -1}, "threads: expected 1 or more"),
    ({"episodes": [77]}, "episode: expected one of 5, by episode_index, given 77"),
    ({"outside": "error"}, "outside: "),
    ({"like": "jax"}, "like: expected 'numpy', 'torch' or 'penstock'"),
    ({"dtype": "i32"}, "dtype: expected f64, f32, f16 or bf16"),
    ({"device": "tpu"}, "device"),
])
def test_arguments_are_refused_by_name(make, arguments, expected):
    dataset, _ = make(features=FEATURES | {"text": {"dtype": "string", "shape": [1], "names": None}})
    with pytest.raises(ValueError, match=f"^{expected}"):
        loader(dataset, **({"columns": "action"} | arguments))


def test_ranges_are_refused_by_name(make):
    dataset, _ = make()
    wrong = robot.Signal("observation.pose", columns=[(3, 7, "slerp")])
    for more in ({}, {"fused": True, "dtype": "f32"}):
        with pytest.raises(ValueError, match="columns"):
            list(loader(dataset, [wrong, "action"], **more))


PROGRAM = """
import os, sys, threading, time
from penstock import robot
loader = robot.Loader({path!r}, "action", at=50, steps=10, batch=1, threads=1, device="cpu",
                      like="numpy")
"""


class TestProcesses:
    def test_importing_it_leaves_others_alone(self, python):
        python("""
            import sys
            import penstock.robot
            assert not {"pyarrow", "torch"} & set(sys.modules)
        """)

    def test_without_pyarrow(self, make, python):
        dataset, _ = make()
        done = python(f"""
            import sys
            sys.modules["pyarrow"] = None
            from penstock import robot
            try:
                robot.Dataset({str(dataset.path)!r})
            except NotImplementedError as error:
                print(error)
        """)
        assert done.stdout == "reading Parquet files needs pyarrow: pip install pyarrow\n"

    def test_exit_in_the_middle_of_a_pass(self, make, python):
        dataset, _ = make(lengths=[5] * 50)
        for wait in (0, 0.05):
            done = python(PROGRAM.format(path=str(dataset.path)) + textwrap.dedent(f"""
                batches = iter(loader)
                next(batches)
                time.sleep({wait})
            """), timeout=30)
            assert done.stderr == ""

    def test_a_forked_child_is_told(self, make, python):
        dataset, _ = make()
        python(PROGRAM.format(path=str(dataset.path)) + textwrap.dedent("""
            next(iter(loader))
            child = os.fork()
            if child == 0:
                try:
                    next(iter(loader))
                except NotImplementedError as error:
                    os._exit(0 if "num_workers=0" in str(error) else 2)
                os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            assert len(list(loader)) == 5
        """), timeout=30)

    def test_ctrl_c(self, make):
        dataset, _ = make()
        program = PROGRAM.format(path=str(dataset.path)) + textwrap.dedent("""
            begun = threading.Event()
            def read(*args):
                begun.wait()
                time.sleep(0.5)  # until the caller waits
                print("ready", flush=True)
                time.sleep(3)  # until it was interrupted, on a busy machine too
                raise RuntimeError("too late")
            loader.dataset.read = read
            batches = iter(loader)
            try:
                begun.set()
                next(batches)
            except KeyboardInterrupt:
                print("interrupted", threading.active_count())
        """)
        child = subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", program],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with child:
            try:
                assert child.stdout.readline() == "ready\n"
                child.send_signal(signal.SIGINT)
                said, _ = child.communicate(timeout=60)
            finally:
                child.kill()
        assert said.splitlines()[-1] == "interrupted 1" and child.returncode == 0


class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch", reason="torch is not installed here")

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
    def test_tensors(self, make, torch, dtype):
        dataset, episodes = make(lengths=[20])
        (batch,) = loader(dataset, dtype=getattr(torch, dtype), like=None, steps=15)
        assert batch["action"].dtype == getattr(torch, dtype) and batch.valid.dtype == torch.bool
        np.testing.assert_allclose(batch["action"][0].double().numpy(), linear(
            episodes[0], "action", stored(batch.times)), atol=1e-2)

    def test_in_a_data_loader(self, make, torch):
        dataset, _ = make()
        given = torch.utils.data.DataLoader(loader(dataset, like="torch").torch(), batch_size=None)
        assert isinstance(given.dataset, torch.utils.data.IterableDataset) and len(given) == 3
        for _ in range(2):
            batches = list(given)
            assert [list(batch.episodes) for batch in batches] == [[0, 1], [2, 3], [4]]
            assert batches[0]["action"].shape == (2, 10, 2) and batches[0].valid.shape == (2, 10)

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_a_worker_is_told(self, make, torch, method):
        dataset, _ = make()
        given = torch.utils.data.DataLoader(loader(dataset, like="torch").torch(), batch_size=None,
                                            num_workers=1, multiprocessing_context=method)
        with pytest.raises(NotImplementedError, match="threads of its own.*num_workers=0"):
            next(iter(given))


def test_torch_where_it_is_missing(make, python):
    dataset, _ = make()
    done = python(f"""
        import sys
        sys.modules["torch"] = None
        from penstock import robot
        loader = robot.Loader({str(dataset.path)!r}, "action", at=50, steps=10, batch=1, device="cpu",
                              like="numpy")
        try:
            loader.torch()
        except NotImplementedError as error:
            print(error)
    """)
    assert done.stdout == "torch() needs torch: pip install torch\n"


EVERYTHING = {
    "apart": ({"action": "linear", "observation.gripper": "previous", FRONT: "nearest"}, {}),
    "rows": (["observation.state", "action"], {"fused": True}),
    "bf16": (["action", "observation.state"], {"dtype": "bf16", "like": "penstock"}),
    "longest": (["action"], {"steps": None}),
}


def bits(array):
    """As bytes on the host, whosever they are."""
    if isinstance(array, np.ndarray):
        return array.tobytes()
    if not isinstance(array, penstock.Array):  # a tensor of torch
        return array.cpu().numpy().tobytes()
    room = penstock.empty(array.nbytes, "u8")
    stream = penstock.Stream(array.place if array.place.startswith("cuda") else "cpu")
    penstock.copy(room, array, stream)
    stream.synchronize()
    return bytes(room)


def passes(dataset, what, count=2, **more):
    columns, told = EVERYTHING[what]
    one = loader(dataset, columns, **({"steps": 40, "prefetch": 2} | told | more))
    return [(list(batch.episodes), bits(batch.valid),
             {name: bits(array) for name, array in batch.items()})
            for _ in range(count) for batch in one]


@pytest.mark.parametrize("what", EVERYTHING)
def test_memory_of_the_devices_own(make, monkeypatch, what):
    """The way of a GPU, where slots are uploaded: the CPU takes it when told so."""
    dataset, _ = make(lengths=[20, 7, 33, 12, 5] * 3)
    expected = passes(dataset, what)
    monkeypatch.setattr(robot._engine, "has_memory_of_its_own", lambda device: True)
    assert passes(dataset, what) == expected


@pytest.mark.gpu
@pytest.mark.skipif(bool(penstock.Device.why_no_gpu()), reason="no GPU")
class TestGpu:
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("what", EVERYTHING)
    def test_the_same_bits_as_on_the_cpu(self, make, layout, what):
        dataset, _ = make(layout, lengths=[20, 7, 33, 12, 5] * 6)
        assert passes(dataset, what, device="cuda", like="penstock") == passes(dataset, what)

    @pytest.mark.parametrize("what", ["apart", "rows", "longest"])
    def test_tensors(self, make, what):
        torch = pytest.importorskip("torch", reason="torch is not installed here")
        dataset, _ = make(lengths=[20, 7, 33, 12, 5] * 6)
        assert passes(dataset, what, device="cuda", like="torch") == passes(dataset, what)
        columns, told = EVERYTHING[what]
        batch = next(iter(loader(dataset, columns, device="cuda", **(told | {"like": None}))))
        assert all(isinstance(array, torch.Tensor) and array.is_cuda for array in batch.values())

    def test_memory_is_used_again_only_when_it_was_read(self, make):
        """The caller's work on a batch is still under way when the batch is dropped."""
        torch = pytest.importorskip("torch", reason="torch is not installed here")
        dataset, _ = make(lengths=[20] * 64)
        expected = [batch["action"].copy() for batch in loader(dataset)]
        got = []
        for batch in loader(dataset, device="cuda", like="torch"):
            torch.cuda._sleep(5_000_000)
            got.append(batch["action"].clone())
        assert all((a.cpu().numpy() == b).all() for a, b in zip(got, expected, strict=True))

    def test_numpy_is_refused(self, make):
        dataset, _ = make()
        with pytest.raises(ValueError, match="^like: expected 'torch' or 'penstock' on cuda:0"):
            loader(dataset, device="cuda")


@pytest.fixture
def documented(make):
    """What the examples of the documentation call `path`."""
    dataset, _ = make(lengths=[120] * 8, jitter=0)
    return {"robot": robot, "penstock": penstock, "numpy": np, "path": str(dataset.path)}


def run_examples(text, names, name):
    test = doctest.DocTestParser().get_doctest(text, dict(names), name, None, 0)
    assert test.examples
    runner = doctest.DocTestRunner()
    failures = []
    runner.run(test, out=failures.append)
    assert runner.failures == 0, "".join(failures)


DOCUMENTED = {name: inspect.getdoc(thing) for name, thing in [
    ("robot", robot), *((name, getattr(robot, name)) for name in robot.__all__),
    *((f"Dataset.{name}", getattr(robot.Dataset, name)) for name in ("read", "video", "frames"))]}


@pytest.mark.parametrize("name", [name for name, text in DOCUMENTED.items() if ">>>" in text])
def test_example(documented, name):
    run_examples(DOCUMENTED[name], documented, name)


def test_everything_public_says_what_it_is():
    assert all(DOCUMENTED.values())


def test_the_documentation(documented):
    text = (ROOT / "docs/robot.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    run_examples("\n".join(blocks), documented, "docs/robot.md")
