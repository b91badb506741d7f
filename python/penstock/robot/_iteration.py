"""One pass through the batches, on a thread of its own."""

import threading
from collections.abc import Callable
from typing import Any


class _Closed(Exception):
    """Ends the run whose batches nobody wants any more."""


class HandOver:
    """What the run's thread gives and the caller takes, one at a time; either may end it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[Any] = []
        self._failure: BaseException | None = None
        self._over = False
        self._closed = False

    def give(self, work: Any) -> None:
        """Waits until the one before was taken."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._waiting)
            if self._closed:
                raise _Closed
            self._waiting.append(work)
            self._changed.notify_all()

    def take(self) -> Any:
        """The next one; None behind the last."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._over)
            if self._waiting:
                work = self._waiting.pop()
                self._changed.notify_all()
                return work
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def run(self, work: Callable[[Callable[[Any], None]], None]) -> None:
        """The thread's whole life: `work` is given the way to give."""
        try:
            work(self.give)
        except _Closed:
            pass
        except BaseException as failure:  # whatever it is, it is the caller's
            with self._changed:
                self._failure = failure
        with self._changed:
            self._over = True
            self._changed.notify_all()
