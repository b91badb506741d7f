"""Reads the files in `meta/`, of both layouts."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy
from numpy.typing import NDArray

from .._errors import InvalidArgument
from . import _arrow

Indices = NDArray[numpy.int64]


@dataclass(frozen=True)
class Feature:
    """A column or a video of a dataset.

    >>> robot.Dataset(path).features["action"]
    Feature(name='action', dtype='float32', shape=(2,), names=('x', 'y'), fps=30.0)
    """

    name: str
    dtype: str  # a NumPy dtype, or 'video', 'image' or 'string'
    shape: tuple[int, ...]
    names: tuple[str, ...] | None  # of the numbers in a row, if known
    fps: float

    @property
    def width(self) -> int:
        """The number of values in a row."""
        return int(numpy.prod(self.shape, dtype=numpy.int64))

    @property
    def is_numeric(self) -> bool:
        """Whether it is a column of numbers or booleans."""
        try:
            return numpy.dtype(self.dtype).kind in "biuf"
        except TypeError:
            return False


@dataclass(frozen=True)
class Episode:
    """One episode: its index, number of samples, tasks, and the file and row at which it begins."""

    index: int
    length: int
    tasks: tuple[str, ...]
    path: Path
    row: int


class Episodes(Sequence[Episode]):
    """All episodes, in the order of the metadata.

    >>> episodes = robot.Dataset(path).episodes
    >>> len(episodes), episodes[0].length, episodes[0].tasks
    (8, 120, ('reach',))
    """

    def __init__(self, info: "Info", table: Mapping[str, Any]) -> None:
        self.indices: Indices = table["episode_index"]
        self.lengths: Indices = table["length"]
        self._info, self._table = info, table
        self._rows = None if info.episode_files else _first_rows(table)
        self._places = {int(index): place for place, index in enumerate(self.indices)}
        if len(self._places) != len(self.indices):
            raise InvalidArgument(str(info.root / "meta"), "a different episode_index for every "
                                  "episode", "duplicates")

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, place: int) -> Episode: ...
    @overload
    def __getitem__(self, place: slice) -> list[Episode]: ...

    def __getitem__(self, place: int | slice) -> Episode | list[Episode]:
        if isinstance(place, slice):
            return [self._at(i) for i in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(f"episodes: expected an index below {len(self)}, given {place}")
        return self._at(place % len(self))

    def place(self, index: int) -> int:
        """The position of the episode with this `episode_index`."""
        if index not in self._places:
            raise InvalidArgument("episode", f"the episode_index of one of {len(self)} episodes",
                                  str(index))
        return self._places[index]

    def video(self, index: int, feature: str) -> tuple[Path, int]:
        """The video file of an episode, and the number of the episode's first frame in it."""
        info, place = self._info, self.place(index)
        if info.video_path is None:
            raise InvalidArgument(str(info.path), "a video_path", "none")
        if info.episode_files:
            return info.file(info.video_path, episode_chunk=index // info.chunks_size,
                             episode_index=index, video_key=feature), 0
        try:
            chunk, file, begin = (self._table[f"videos/{feature}/{key}"][place]
                                  for key in ("chunk_index", "file_index", "from_timestamp"))
        except KeyError as missing:
            raise InvalidArgument(str(info.root / "meta/episodes"), f"a column {missing}",
                                  "none") from missing
        fps = info.features[feature].fps
        return (info.file(info.video_path, video_key=feature, chunk_index=int(chunk),
                          file_index=int(file)), round(float(begin) * fps))

    def _at(self, place: int) -> Episode:
        index, info = int(self.indices[place]), self._info
        if self._rows is None:
            path = info.file(info.data_path, episode_chunk=index // info.chunks_size,
                             episode_index=index)
        else:
            path = info.file(info.data_path,
                             chunk_index=int(self._table["data/chunk_index"][place]),
                             file_index=int(self._table["data/file_index"][place]))
        return Episode(index, int(self.lengths[place]), tuple(self._table["tasks"][place]), path,
                       0 if self._rows is None else int(self._rows[place]))


def _first_rows(table: Mapping[str, Any]) -> Indices:
    """The first row of each episode in its file. The metadata counts rows through all files."""
    files = numpy.stack([table["data/chunk_index"], table["data/file_index"]])
    _, file = numpy.unique(files, axis=1, return_inverse=True)
    file, begins = file.reshape(-1), table["dataset_from_index"]
    first = numpy.full(file.max(initial=-1) + 1, numpy.iinfo(numpy.int64).max)
    numpy.minimum.at(first, file, begins)
    rows: Indices = begins - first[file]
    return rows


class Info:
    """`meta/info.json`."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / "meta/info.json"
        content = _json(self.path, self.path.read_text(encoding="utf-8"))
        self.version = self._text(content, "codebase_version")
        numbers = re.fullmatch(r"v?(\d+)\.(\d+)(\.\d+)?", self.version)
        if numbers is None or numbers[1] not in ("2", "3"):
            raise InvalidArgument(str(self.path), "a codebase_version of v2.0, v2.1 or v3.0",
                                  self.version)
        self.episode_files = numbers[1] == "2"  # one file per episode
        self.fps = self._positive(content, "fps")
        self.chunks_size = int(self._positive(content, "chunks_size"))
        self.data_path = self._text(content, "data_path")
        self.video_path: str | None = content.get("video_path")
        features = content.get("features")
        if not isinstance(features, dict):
            raise InvalidArgument(str(self.path), "an object 'features'", repr(features)[:40])
        self.features = {name: self._feature(name, given) for name, given in features.items()}

    def file(self, template: str, **numbers: Any) -> Path:
        try:
            path = template.format(**numbers)
        except (KeyError, IndexError, ValueError, AttributeError) as wrong:
            raise InvalidArgument(str(self.path), f"a path template with {', '.join(numbers)}",
                                  template) from wrong
        if path.startswith("/") or ".." in path.split("/"):
            raise InvalidArgument(str(self.path), "a path inside the dataset", path)
        return self.root / path

    def _feature(self, name: str, given: Any) -> Feature:
        try:
            more = given.get("info") or given.get("video_info") or {}
            fps = given.get("fps") or more.get("video.fps") or self.fps
            shape = tuple(int(extent) for extent in given.get("shape") or (1,))
            return Feature(name, str(given["dtype"]), shape, _names(given.get("names")), float(fps))
        except (AttributeError, KeyError, TypeError, ValueError) as wrong:
            raise InvalidArgument(f"{self.path}, feature {name!r}", "a dtype and a shape",
                                  repr(given)[:80]) from wrong

    def _text(self, content: dict[str, Any], key: str) -> str:
        if not isinstance(content.get(key), str):
            raise InvalidArgument(str(self.path), f"a string {key!r}", repr(content.get(key)))
        return str(content[key])

    def _positive(self, content: dict[str, Any], key: str) -> float:
        value = content.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise InvalidArgument(str(self.path), f"a number {key!r} above 0", repr(value))
        return float(value)


def read_episodes(info: Info) -> Episodes:
    return Episodes(info, _from_lines(info) if info.episode_files else _from_tables(info))


def read_tasks(info: Info) -> dict[int, str]:
    """The tasks by `task_index`; empty if the dataset has no list of them."""
    lines, table = info.root / "meta/tasks.jsonl", info.root / "meta/tasks.parquet"
    if table.is_file():
        read = _arrow.read_table(table)
        # pandas stores an unnamed index under this name.
        task = next((name for name in ("task", "__index_level_0__") if name in read.column_names), "")
        if "task_index" not in read.column_names or not task:
            raise InvalidArgument(str(table), "the columns task_index and task",
                                  ", ".join(read.column_names))
        return dict(zip(read["task_index"].to_pylist(), read[task].to_pylist(), strict=True))
    if lines.is_file():
        return {int(task["task_index"]): str(task["task"])
                for task in _lines(lines, ("task_index", "task"))}
    return {}


def _from_lines(info: Info) -> dict[str, Any]:
    lines = list(_lines(info.root / "meta/episodes.jsonl", ("episode_index", "length")))
    return {
        "episode_index": numpy.array([line["episode_index"] for line in lines], numpy.int64),
        "length": numpy.array([line["length"] for line in lines], numpy.int64),
        "tasks": [line.get("tasks") or () for line in lines],
    }


NEEDED = ("episode_index", "length", "dataset_from_index", "data/chunk_index", "data/file_index")


def _from_tables(info: Info) -> dict[str, Any]:
    folder = info.root / "meta/episodes"
    paths = sorted(folder.glob("*/*.parquet"))
    if not paths:
        raise InvalidArgument(str(folder), "Parquet files", "none")
    videos = [f"videos/{feature.name}/{key}" for feature in info.features.values()
              if feature.dtype == "video" for key in ("chunk_index", "file_index",
                                                      "from_timestamp")]
    tables = []
    for path in paths:  # the other columns hold statistics
        tables.append(_arrow.read_table(path, [*NEEDED, *videos, "tasks"], optional=True))
        missing = [name for name in NEEDED if name not in tables[-1].column_names]
        if missing:
            raise InvalidArgument(str(path), f"the columns {', '.join(NEEDED)}",
                                  f"a file without {', '.join(missing)}")
    table = _arrow.module().concat_tables(tables, promote_options="permissive")
    found = {name: table[name].to_numpy() for name in table.column_names if name != "tasks"}
    for name in NEEDED:
        found[name] = found[name].astype(numpy.int64)
    found["tasks"] = (table["tasks"].to_pylist() if "tasks" in table.column_names
                      else [()] * len(table))
    return found


def _lines(path: Path, keys: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            content = _json(path, line)
            if not all(key in content for key in keys):
                raise InvalidArgument(f"{path}, line {number}", f"{' and '.join(keys)}",
                                      line.strip()[:80])
            yield content


def _json(path: Path, text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as wrong:
        raise InvalidArgument(str(path), "JSON", str(wrong)) from wrong
    if not isinstance(content, dict):
        raise InvalidArgument(str(path), "a JSON object", text.strip()[:40])
    return content


def _names(given: Any) -> tuple[str, ...] | None:
    """Names are given as a list, as an object with one list, or as an object from name to position."""
    if isinstance(given, dict):
        if all(isinstance(value, int) for value in given.values()):
            given = sorted(given, key=lambda name: given[name])
        elif len(given) == 1:
            given = next(iter(given.values()))
    return tuple(map(str, given)) if isinstance(given, list) and given else None
