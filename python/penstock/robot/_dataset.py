"""Datasets on disk."""

import os
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray

from .._check import not_negative
from .._errors import InvalidArgument
from . import _arrow, _metadata, _times
from ._columns import as_array
from ._row_groups import RowGroups

TIMES = "timestamp"


class Dataset:
    """A LeRobot dataset in a folder, of layout version 2.0, 2.1 or 3.0.

    In version 3.0 a file holds many episodes; up to `cache_bytes` of decoded data are cached.

    >>> dataset = robot.Dataset(path)
    >>> dataset
    <penstock.robot.Dataset v2.1: 8 episodes, 960 samples, 30 fps>
    >>> list(dataset.features)[:3]
    ['observation.state', 'action', 'observation.gripper']
    """

    def __init__(self, path: str | os.PathLike[str], *, cache_bytes: int = 256 << 20) -> None:
        self.path = Path(path)
        _arrow.module()
        if not self.path.is_dir():
            raise InvalidArgument("path", "a folder that contains a dataset", str(path))
        self._info = _metadata.Info(self.path)
        self._cache_bytes = not_negative("cache_bytes", cache_bytes)
        self._groups = RowGroups(cache_bytes)
        self.features = self._info.features
        self.episodes = _metadata.read_episodes(self._info)
        self.tasks = _metadata.read_tasks(self._info)

    @property
    def version(self) -> str:
        """The version of the layout."""
        return self._info.version

    @property
    def fps(self) -> float:
        """Samples per second."""
        return self._info.fps

    def read(self, episode: int, columns: str | Iterable[str] | None = None
             ) -> dict[str, NDArray[Any]]:
        """Reads the samples of one episode: per column an array (S), or (S, D) if samples are lists.

        By default all numeric columns are read. The arrays are read-only, since they share the
        decoded data.

        >>> dataset = robot.Dataset(path)
        >>> {name: array.shape for name, array in dataset.read(2, ["action", "timestamp"]).items()}
        {'action': (120, 2), 'timestamp': (120,)}
        """
        return self.read_rows([self.episodes[self.episodes.place(episode)]], self._names(columns))

    def read_rows(self, episodes: Sequence[_metadata.Episode], names: list[str]
                  ) -> dict[str, NDArray[Any]]:
        """Reads the samples of several episodes, concatenated.

        If several are read, an error message may name the wrong one of them.
        """
        tables = ([self._file(episode, names) for episode in episodes] if self._info.episode_files
                  else [self._span(span, names) for span in _spans(episodes)])
        # One copy, made without the GIL, is cheaper than one array per table.
        table = (tables[0] if len(tables) == 1
                 else _arrow.module().concat_tables(tables).combine_chunks())
        return {name: self._array(table[name], name, episodes[0]) for name in names}

    def decoded_with(self, episode: _metadata.Episode) -> Hashable:
        """A key that is equal for episodes that are decoded together."""
        if self._info.episode_files:
            return episode.index
        return episode.path, self._groups.group_of(episode.path, episode.row)

    def video(self, episode: int, feature: str) -> tuple[Path, int]:
        """The video file of an episode, and the number of the episode's first frame in it.

        >>> path_, first = robot.Dataset(path).video(2, "observation.images.front")
        >>> path_.name, first
        ('episode_000002.mp4', 0)
        """
        self.check_video(feature)
        return self.episodes.video(episode, feature)

    def frames(self, episode: int, feature: str, at: ArrayLike, *, mode: str = "previous"
               ) -> NDArray[numpy.int64]:
        """The numbers of the frames in the video file at times `at`, in seconds from the start.

        `mode` is ``"previous"``, the frame that is visible at that time, or ``"nearest"``. The
        video is not decoded.

        >>> robot.Dataset(path).frames(2, "observation.images.front", [0, 0.05, 1, 100])
        array([  0,   1,  30, 119])
        """
        if mode not in ("previous", "nearest"):
            raise InvalidArgument("mode", "'previous' or 'nearest'", repr(mode))
        _, first = self.video(episode, feature)
        found = self.episodes[self.episodes.place(episode)]
        if found.length == 0:
            raise InvalidArgument("episode", "an episode with samples", f"{episode}, which has none")
        times = _times.of_episode(self.read(episode, [TIMES])[TIMES], self.features[TIMES], found)
        seconds = numpy.asarray(at, numpy.float64)
        if not numpy.isfinite(seconds).all():
            raise InvalidArgument("at", "finite times", "times that are not finite")
        wanted = _times.as_stored(seconds, self.features[TIMES])
        before = numpy.searchsorted(times, wanted, "right") - 1
        after = numpy.minimum(before + 1, len(times) - 1)
        before = numpy.maximum(before, 0)
        if mode == "nearest":
            before = numpy.where(times[after] - wanted < wanted - times[before], after, before)
        return numpy.asarray(first + before, numpy.int64)

    def check_video(self, feature: str) -> None:
        videos = [name for name, about in self.features.items() if about.dtype == "video"]
        if feature not in videos:
            raise InvalidArgument("feature", "the name of a video "
                                  f"({', '.join(videos) or 'there is none'})", repr(feature))

    def __repr__(self) -> str:
        samples = int(self.episodes.lengths.sum())
        return (f"<penstock.robot.Dataset {self.version}: {len(self.episodes)} episodes, "
                f"{samples} samples, {self.fps:g} fps>")

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.path, self._cache_bytes)

    def _names(self, columns: str | Iterable[str] | None) -> list[str]:
        if columns is None:
            return [name for name, feature in self.features.items() if feature.is_numeric]
        names = [columns] if isinstance(columns, str) else list(dict.fromkeys(columns))
        for name in names:
            if name not in self.features:
                raise InvalidArgument("columns", f"names from {', '.join(self.features)}", repr(name))
            if self.features[name].dtype == "video":
                raise InvalidArgument("columns", "numeric columns (for videos, use frames())",
                                      repr(name))
        return names

    def _file(self, episode: _metadata.Episode, names: list[str]) -> Any:
        table = _arrow.read_table(episode.path, names)
        if len(table) != episode.length:
            raise InvalidArgument(str(episode.path), f"{episode.length} rows, according to meta/",
                                  str(len(table)))
        return table

    def _span(self, episodes: Sequence[_metadata.Episode], names: list[str]) -> Any:
        first, last = episodes[0], episodes[-1]
        columns = tuple(dict.fromkeys([*names, "episode_index"]))
        table = self._groups.rows(first.path, columns, first.row, last.row + last.length)
        there = as_array(table["episode_index"], "episode_index", first.path)
        wanted = numpy.repeat([episode.index for episode in episodes],
                              [episode.length for episode in episodes])
        if (there != wanted).any():
            raise InvalidArgument(str(first.path), f"episode {first.index} at row {first.row}, "
                                  "according to meta/", f"episodes {numpy.unique(there).tolist()}")
        return table

    def _array(self, column: Any, name: str, episode: _metadata.Episode) -> NDArray[Any]:
        array = as_array(column, name, episode.path)
        if len(array) == 0 and _arrow.module().types.is_nested(column.type):
            array = array.reshape(0, *self.features[name].shape)  # the length of the lists is unknown
        return array


def _spans(episodes: Sequence[_metadata.Episode]) -> list[list[_metadata.Episode]]:
    """Groups episodes whose rows are adjacent in a file."""
    spans = [[episodes[0]]]
    for episode in episodes[1:]:
        before = spans[-1][-1]
        if (episode.path, episode.row) == (before.path, before.row + before.length):
            spans[-1].append(episode)
        else:
            spans.append([episode])
    return spans


def _unpickle(path: Path, cache_bytes: int) -> Dataset:
    return Dataset(path, cache_bytes=cache_bytes)
