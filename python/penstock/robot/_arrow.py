"""Access to pyarrow, with its errors turned into those of this package."""

import os
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from .._errors import InvalidArgument, Unsupported


@cache
def module(name: str = "pyarrow") -> Any:
    """pyarrow or one of its modules. It is imported when first needed, as importing it is slow."""
    try:
        return import_module(name)
    except ImportError as missing:
        raise Unsupported("reading Parquet files needs pyarrow: pip install pyarrow") from missing


class failures_of:
    """Adds the file name to the exceptions of pyarrow."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, failure: BaseException | None, trace: Any) -> None:
        if isinstance(failure, MemoryError) or not isinstance(failure, (module().ArrowException,
                                                                        OSError)):
            return
        code = getattr(failure, "errno", None)
        if code:
            raise OSError(code, os.strerror(code), str(self._path)) from failure
        said = str(failure).partition("\n")[0].rstrip(".")
        raise InvalidArgument(str(self._path), "a complete Parquet file", said) from failure


def read_table(path: Path, columns: Iterable[str] | None = None, *, group: int | None = None,
               optional: bool = False) -> Any:
    """Reads a file, or a row group of it: all columns, or `columns`, which must exist unless
    `optional`."""
    wanted = None if columns is None else list(columns)
    # Given a path, pyarrow inspects the file, its file system and its schema, with the GIL held, which
    # takes much of the time of reading a short file.
    with failures_of(path), module().OSFile(str(path)) as source:
        file = module("pyarrow.parquet").ParquetFile(source)
        groups = list(range(file.num_row_groups)) if group is None else [group]
        try:
            table = file.read_row_groups(groups, columns=wanted, use_threads=False)
        except module().ArrowException:
            _refuse_gaps(path, map(file.metadata.row_group, groups),
                         file.schema_arrow.names if wanted is None else wanted)
            raise
        there = table.schema.names
        if wanted is None or wanted == there:
            return table
        missing = [name for name in wanted if name not in there]
        if missing and not optional:
            raise InvalidArgument(str(path), f"a column {missing[0]!r}",
                                  ", ".join(file.schema_arrow.names))
        # pyarrow matches prefixes: "a.b" also reads "a.b.c", which select() drops.
        return table.select([name for name in wanted if name in there])


def _refuse_gaps(path: Path, groups: Iterable[Any], wanted: Iterable[str]) -> None:
    """Names a column with missing values: older pyarrow cannot read fixed-size lists with nulls."""
    gaps = dict.fromkeys(wanted, 0)
    for group in groups:
        for column in map(group.column, range(group.num_columns)):
            name = next((name for name in gaps if column.path_in_schema == name
                         or column.path_in_schema.startswith(f"{name}.list.")), None)
            statistics = column.statistics
            if name is not None and statistics is not None and statistics.has_null_count:
                gaps[name] += statistics.null_count
    for name, count in gaps.items():
        if count:
            raise InvalidArgument(f"{path}, column {name!r}", "a value in every row",
                                  f"{count} missing")
