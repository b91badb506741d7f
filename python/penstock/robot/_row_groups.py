"""Decoded parts of files that hold many episodes."""

import threading
from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy

from .._errors import InvalidArgument
from . import _arrow


class RowGroups:
    """Reads rows of files by row group, the smallest unit that can be decoded.

    The most recently used groups are cached, up to `limit` bytes. If two threads need the same
    group, one decodes it and the other waits.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Future[Any]] = OrderedDict()
        self._bytes = 0
        self._starts: dict[Path, Any] = {}

    def rows(self, path: Path, columns: tuple[str, ...], begin: int, end: int) -> Any:
        """The rows from `begin` to `end` of a file, as a table."""
        starts = self._starts_of(path)
        if end > starts[-1]:
            raise InvalidArgument(str(path), f"at least {end} rows, according to meta/",
                                  str(starts[-1]))
        # At least one group, even for no rows, since the table holds the types.
        first = self.group_of(path, begin)
        last = max(first + 1, int(numpy.searchsorted(starts, end, "left")))
        parts = [self._group(path, columns, group) for group in range(first, last)]
        whole = parts[0] if len(parts) == 1 else _arrow.module().concat_tables(parts)
        return whole.slice(begin - int(starts[first]), end - begin)

    def group_of(self, path: Path, row: int) -> int:
        """The index of the group that holds a row."""
        starts = self._starts_of(path)
        return max(0, min(int(numpy.searchsorted(starts, row, "right")) - 1, len(starts) - 2))

    def _group(self, path: Path, columns: tuple[str, ...], group: int) -> Any:
        return self._shared((path, columns, group),
                            lambda: _arrow.read_table(path, columns, group=group))

    def _shared(self, key: Any, make: Any) -> Any:
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
            else:
                mine = self._kept[key] = Future()
        if kept is not None:
            return kept.result()
        try:
            made = make()
        except BaseException as failure:
            with self._lock:
                del self._kept[key]
            mine.set_exception(failure)
            raise
        mine.set_result(made)
        self._count(key, made.nbytes)
        return made

    def _count(self, newest: Any, more: int) -> None:
        """Drops the oldest groups. The newest stays, however large: its other rows are read next."""
        with self._lock:
            self._bytes += more
            while self._bytes > self._limit:
                oldest = next((key for key, kept in self._kept.items()
                               if kept.done() and key != newest), None)
                if oldest is None:
                    break
                self._bytes -= self._kept.pop(oldest).result().nbytes

    def _starts_of(self, path: Path) -> Any:
        """The first row of every group, and the number of all rows."""
        if path not in self._starts:
            with _arrow.failures_of(path):
                metadata = _arrow.module("pyarrow.parquet").read_metadata(str(path))
            groups = range(metadata.num_row_groups)
            self._starts[path] = numpy.cumsum([0, *(metadata.row_group(group).num_rows
                                                    for group in groups)])
        return self._starts[path]
