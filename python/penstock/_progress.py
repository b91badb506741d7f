"""Shows how many bytes of a long task are done: as a bar if tqdm is installed, else as lines on
stderr."""

import sys
from typing import Any, Self

_STEP = 10  # percent between two lines


class ByteProgress:
    def __init__(self, what: str, total: int, shown: bool) -> None:
        self._what, self._total, self._shown = what, total, shown
        self._done = self._said = 0
        self._bar: Any = None

    def __enter__(self) -> Self:
        if self._shown:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                pass
            else:
                self._bar = tqdm(desc=self._what, total=self._total, unit="B", unit_scale=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def add(self, nbytes: int) -> None:
        self._done += nbytes
        if self._bar is not None:
            self._bar.update(nbytes)
            return
        percent = 100 * self._done // max(self._total, 1)
        if self._shown and percent >= self._said + _STEP:
            self._said = percent - percent % _STEP
            print(f"{self._what}: {percent} % of {self._total / 2**30:.1f} GiB", file=sys.stderr,
                  flush=True)
