"""The rows of a batch's episodes, decoded by several threads."""

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

AT_ONCE = 8  # episodes of a thread's turn, if no more are decoded together: its caches hold them


@dataclass(frozen=True)
class Piece:
    """Rows of episodes that stand side by side in the batch: (rows, width) by column."""

    first: int
    episodes: int
    columns: dict[str, NDArray[Any]]


Put = Callable[[Piece], None]


@dataclass(frozen=True)
class Reading:
    """A batch that is being read."""

    episodes: list[Episode]
    begun: list[Future[None]]

    def wait(self) -> None:
        """Raises what one of the threads raised."""
        for some in self.begun:
            some.result()


class Reader:
    """Reads columns and columns of times, and checks them as far as they do not need the batch."""

    def __init__(self, dataset: Dataset, columns: list[Resolved], times: list[str],
                 threads: int) -> None:
        self._dataset, self._columns, self._times, self._threads = dataset, columns, times, threads
        stored = [column.name for column in columns if not column.video]
        self._names = list(dict.fromkeys([*stored, *times]))

    def episodes(self, indices: Indices) -> list[Episode]:
        every = self._dataset.episodes
        return [every[every.place(episode)] for episode in indices.tolist()]

    def begin(self, pool: ThreadPoolExecutor, episodes: list[Episode], put: Put) -> Reading:
        """Has them read, some by each thread: to ask for one alone takes too long.

        Those that are decoded together are one thread's: others would only wait for it, and decode
        something else instead. Each thread puts its own pieces.
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
        """On a thread of the pool: pyarrow lets the others run."""
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
                pass  # of different types, which is allowed; or one is wrong, and is to say so itself
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
                                      f"{column.width} numbers a row, as meta/ says", str(width))
        for name in self._times:
            feature = self._dataset.features[name]
            if not _times.are_times(columns[name], feature):
                _times.refuse(columns[name], feature, episodes[0])
        return Piece(first, len(episodes), columns)

    def _frames(self, episodes: Sequence[Episode], name: str) -> NDArray[numpy.int64]:
        """The numbers of a video's frames."""
        begins = [self._dataset.video(episode.index, name)[1] for episode in episodes]
        return numpy.concatenate([numpy.arange(begin, begin + episode.length)
                                  for begin, episode in zip(begins, episodes, strict=True)])[:, None]
