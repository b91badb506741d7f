"""A progress line on a terminal; prints nothing into a pipe."""

import sys


class Progress:
    def __init__(self) -> None:
        self._shown = False

    def show(self, what: str) -> None:
        if sys.stderr.isatty():
            self._shown = True
            print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
