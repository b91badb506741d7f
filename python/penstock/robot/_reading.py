"""Decodes the rows of a batch's episodes on several threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy
from numpy.typing import NDArray

from .._errors import InvalidArgument
from . import _arrow, _times
from ._dataset import Dataset
from ._metadata import Episode, Indices
from ._signals import Resolved

AT_ONCE = 8  # episodes per task, unless more are decoded together; they fit in the caches


@dataclass(frozen=True)
class Piece:
    """The rows of episodes that are adjacent in the batch: for each column an array (rows, width)."""

    first: int
    episodes: int
    columns: dict[str, NDArray[Any]]


Put = Callable[[Piece], None]


@dataclass(frozen=True)
class Reading:
    """A batch in reading."""

    episodes: list[Episode]
    begun: list[Future[None]]

    def wait(self) -> None:
        """Waits until all is read; raises what one of the threads raised."""
        for some in self.begun:
            some.result()


class Reader:
    """Reads columns and times, and checks what can be checked for each episode alone."""

    def __init__(self, dataset: Dataset, columns: list[Resolved], times: list[str],
                 threads: int) -> None:
        self._dataset, self._columns, self._times, self._threads = dataset, columns, times, threads
        stored = [column.name for column in columns if not column.video]
        self._names = list(dict.fromkeys([*stored, *times]))

    def episodes(self, indices: Indices) -> list[Episode]:
        every = self._dataset.episodes
        return [every[every.place(episode)] for episode in indices.tolist()]

    def begin(self, pool: ThreadPoolExecutor, episodes: list[Episode], put: Put) -> Reading:
        """Starts reading, with several episodes per task, since a task for each would cost too much.

        Episodes that are decoded together are in one task, as other threads would only wait for
        them. Each thread passes its pieces to `put`.
        """
        together: dict[Any, list[int]] = {}
        for place, episode in enumerate(episodes):
            together.setdefault(self._dataset.decoded_with(episode), []).append(place)
        enough = min(-(-len(episodes) // self._threads), AT_ONCE)
        shares: list[list[int]] = [[]]
        for places in together.values():
            if len(shares[-1]) >= enough:
                shares.append([])
            shares[-1] += places
        return Reading(episodes, [pool.submit(self._read, episodes, sorted(share), put)
                                  for share in shares])

    def _read(self, episodes: list[Episode], places: list[int], put: Put) -> None:
        """Runs on a thread of the pool. pyarrow releases the GIL."""
        for _, run in groupby(enumerate(places), lambda each: each[1] - each[0]):
            side_by_side = [place for _, place in run]
            first, end = side_by_side[0], side_by_side[-1] + 1
            for piece in self._run(first, episodes[first:end]):
                put(piece)

    def _run(self, first: int, episodes: list[Episode]) -> list[Piece]:
        if len(episodes) > 1:
            try:
                return [self._piece(first, episodes)]
            except (InvalidArgument, _arrow.module().ArrowException):
                pass  # types differ, which is allowed, or one is wrong: read each alone to name it
        return [self._piece(place, [episode]) for place, episode in enumerate(episodes, first)]

    def _piece(self, first: int, episodes: Sequence[Episode]) -> Piece:
        rows = sum(episode.length for episode in episodes)
        columns = {name: array.reshape(rows, -1)
                   for name, array in self._dataset.read_rows(episodes, self._names).items()}
        for column in self._columns:
            if column.video:
                columns[column.name] = self._frames(episodes, column.name)
            width = columns[column.name].shape[1]
            if width != column.width:
                raise InvalidArgument(f"{episodes[0].path}, column {column.name!r}",
                                      f"{column.width} values per row, according to meta/", str(width))
        for name in self._times:
            feature = self._dataset.features[name]
            if not _times.are_times(columns[name], feature):
                _times.refuse(columns[name], feature, episodes[0])
        return Piece(first, len(episodes), columns)

    def _frames(self, episodes: Sequence[Episode], name: str) -> NDArray[numpy.int64]:
        """The frame numbers in the video file."""
        begins = [self._dataset.video(episode.index, name)[1] for episode in episodes]
        return numpy.concatenate([numpy.arange(begin, begin + episode.length)
                                  for begin, episode in zip(begins, episodes, strict=True)])[:, None]
