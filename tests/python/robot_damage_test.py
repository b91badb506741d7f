"""Files that are not as they should be, and arguments: refused by name."""

import json
import os
import re
from pathlib import Path

import pytest

import penstock
from penstock import robot
from robot_support import FEATURES, FRONT, LAYOUTS, loader

import pyarrow as pa
import pyarrow.parquet as pq

pytestmark = pytest.mark.usefixtures("no_thread_stays")


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


def spoiled(value, row, kind=None):
    def spoil(column):
        values = column.to_pylist()
        values[row] = value
        return pa.array(values, kind or column.type)

    return spoil


DAMAGE = {
    "truncated": (lambda p: p.write_bytes(p.read_bytes()[:-100]), "a complete Parquet file"),
    "cut in half": (lambda p: p.write_bytes(p.read_bytes()[:200]), "a complete Parquet file"),
    "empty": (lambda p: p.write_bytes(b""), "a complete Parquet file"),
    "another file": (lambda p: p.write_bytes(b"hello " * 1000), "a complete Parquet file"),
    "spoiled pages": (lambda p: spoil_pages(p, "action"), "a complete Parquet file"),
    "no column": (lambda p: change_column(p, "action", None), "a column 'action'"),
    "texts": (lambda p: change_column(p, "action", lambda c: pa.array(["a"] * len(c))),
              "column 'action': expected numbers or lists of numbers, given string"),
    "ragged lists": (lambda p: change_column(p, "action", ragged),
                     "column 'action': expected lists of the same length, 2 .*, given 1 in row 3"),
    "wider lists": (lambda p: change_column(p, "action", lambda c: pa.array(
        [[1.0, 2.0, 3.0]] * len(c))), "column 'action': expected 2 values per row"),
    # Not of fixed size, which older pyarrow does not write.
    "no value": (lambda p: change_column(p, "action", spoiled(None, 2, pa.list_(pa.float32()))),
                 "column 'action': expected a value in every row, given 1 missing"),
    "NaN": (lambda p: change_column(p, "timestamp", spoiled(float("nan"), 2)),
            "column 'timestamp' of episode .*: expected finite times, given nan in row 2"),
    "infinite": (lambda p: change_column(p, "timestamp", spoiled(float("inf"), 2)),
                 "expected finite times, given inf in row 2"),
    "backwards": (lambda p: change_column(p, "timestamp", spoiled(-1.0, 2)),
                  "column 'timestamp' of episode .*: expected non-decreasing timestamps, given "
                  "-1.0 after .* in row 2"),
    "whole times": (lambda p: change_column(p, "timestamp", lambda c: pa.array(range(len(c)))),
                    "expected float32, according to meta/, given int64"),
}


class TestDamage:
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("kind", DAMAGE)
    @pytest.mark.parametrize("batch", [1, 3])
    def test_names_the_file(self, make, layout, kind, batch):
        damage, expected = DAMAGE[kind]
        dataset, path = damaged(make, layout, damage)
        with pytest.raises(penstock.InvalidArgument, match=expected) as caught:
            list(loader(dataset, batch=batch, threads=1))
        assert str(caught.value).startswith(str(path))

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_no_value_where_pyarrow_does_not_read_on(self, make, layout, monkeypatch):
        """As older versions do with lists of fixed size."""
        damage, expected = DAMAGE["no value"]
        dataset, path = damaged(make, layout, damage)

        def read(self, *args, **more):
            raise pa.ArrowInvalid("Expected all lists to be of size=2 but index 3 had size=0")

        monkeypatch.setattr(pq.ParquetFile, "read_row_groups", read)
        with pytest.raises(penstock.InvalidArgument, match=expected) as caught:
            dataset.read(1, "action")
        assert str(caught.value).startswith(str(path))
        with pytest.raises(penstock.InvalidArgument, match="Parquet file, given Expected all lists"):
            dataset.read(1, "observation.state")

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
        with pytest.raises(ValueError, match=r"rows, according to meta/, given 5") as caught:
            list(loader(dataset))
        assert str(path) in str(caught.value)

    def test_rows_of_another_episode(self, make):
        dataset, path = damaged(make, "v3.0",
                                lambda p: pq.write_table(pq.read_table(p).slice(2), p),
                                lengths=(8, 6, 9, 4))
        with pytest.raises(ValueError, match=r"episode 0 at row 0, .*given episodes \[0, 1\]"):
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
        ("info.json", "{}", "expected a string 'codebase_version', given None"),
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
        ("{nothing}.parquet", "a path template with episode_chunk, episode_index"),
        ("{", "a path template with"),
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
        with pytest.raises(ValueError, match="given a file without length"):
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
    ({"columns": []}, "columns: expected at least one column"),
    ({"columns": ["action", "action"]}, "columns: expected .* each only once"),
    ({"columns": "actoin"}, "columns: expected names from observation.state, .*given 'actoin'"),
    ({"columns": robot.Signal("action", times="when")}, "columns: expected names from .*'when'"),
    ({"columns": {"action": "cubic"}}, "columns, mode of 'action': expected linear, .*'cubic'"),
    ({"columns": {"observation.gripper": "linear"}},
     "columns, mode of 'observation.gripper': expected nearest, previous, next, given 'linear'"),
    ({"columns": {FRONT: "linear"}}, f"columns, mode of '{FRONT}'"),
    ({"columns": "text"}, "columns: expected numeric columns, given 'text' of dtype string"),
    ({"columns": ["action", "observation.state"], "fused": True, "dtype": "i64"}, "dtype: "),
    ({"at": 0}, "at: expected a rate above 0"),
    ({"at": float("nan")}, "at: "),
    ({"at": [[1.0]]}, "at: expected a rate or a list of finite times"),
    ({"at": [float("inf")], "steps": None}, "at: "),
    ({"at": [1.0]}, "seconds, steps: expected neither"),
    ({"seconds": 1}, "seconds, steps: expected at most one of them"),
    ({"steps": -1}, "steps: expected 0 or more"),
    ({"steps": None, "seconds": float("inf")}, "seconds: "),
    ({"batch": 0}, "batch: expected 1 or more"),
    ({"prefetch": 0}, "prefetch: expected 1 or more"),
    ({"threads": -1}, "threads: expected 1 or more"),
    ({"episodes": [77]}, "episode: expected the episode_index of one of 5 episodes, given 77"),
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
