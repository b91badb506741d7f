"""Datasets: what their metadata says, and what is read from them."""

import pickle
import threading

import numpy as np
import pytest

from penstock import robot
from robot_support import FEATURES, FPS, FRONT, LAYOUTS, loader

import pyarrow as pa
import pyarrow.parquet as pq

pytestmark = pytest.mark.usefixtures("no_thread_stays")


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
    def test_a_video_has_a_rate_of_its_own(self, make, layout):
        dataset, _ = make(layout, features=FEATURES | {
            FRONT: FEATURES[FRONT] | {"info": {"video.fps": 15.0}}})
        assert dataset.features[FRONT].fps == 15 and dataset.features["action"].fps == 30

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
        with pytest.raises(ValueError, match="^episodes: expected episodes with samples, "
                                             "given 1, which has none"):
            loader(dataset)
        assert [list(b.episodes) for b in loader(dataset, episodes=[2, 0])] == [[2, 0]]
        with pytest.raises(ValueError, match="^episode: .*which has none"):
            dataset.frames(1, FRONT, [0])

    def test_episodes_are_known_by_their_numbers(self, make):
        """Where some were left out."""
        dataset, episodes = make("v2.1")
        lines = (dataset.path / "meta/episodes.jsonl").read_text().splitlines()
        (dataset.path / "meta/episodes.jsonl").write_text("\n".join([lines[4], lines[1]]))
        dataset = robot.Dataset(dataset.path)
        assert [episode.index for episode in dataset.episodes] == [4, 1]
        assert (dataset.read(4)["action"] == episodes[4]["action"]).all()
        with pytest.raises(ValueError, match="^episode: expected the episode_index of one of 2.*given 0"):
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
        assert first == (20 if layout == "v3.0" else 0)
        assert path.name == ("file-000.mp4" if layout == "v3.0" else "episode_000001.mp4")
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
            with pytest.raises(ValueError, match=f"^feature: expected the name of a video .*{FRONT}"):
                call(0, "action")
        with pytest.raises(ValueError, match="^mode: "):
            dataset.frames(0, FRONT, [0], mode="linear")
        with pytest.raises(ValueError, match="^at: "):
            dataset.frames(0, FRONT, [np.nan])
        with pytest.raises(ValueError, match="^columns: .*frames"):
            dataset.read(0, FRONT)
