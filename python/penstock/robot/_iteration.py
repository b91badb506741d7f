"""One pass through the batches, on a thread of its own."""

import atexit
import threading
import weakref
from collections.abc import Callable
from typing import Any


class _Closed(Exception):
    """Ends the run whose batches nobody wants any more."""


PATIENCE = 10.0  # seconds, for a thread that is stuck in somebody's code

_OPEN: "weakref.WeakSet[HandOver]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """At exit the package waits for its runs; one whose batches nobody takes would not end. What a
    run holds must be given back before the interpreter goes, so its thread ends first."""
    still_open = list(_OPEN)
    for over in still_open:
        over.close()
    for over in still_open:
        over.join(PATIENCE)


class HandOver:
    """What the run's thread gives and the caller takes, one at a time; either may end it."""

    def __init__(self) -> None:
        _OPEN.add(self)
        self._changed = threading.Condition()
        self._waiting: list[Any] = []
        self._failure: BaseException | None = None
        self._over = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[Callable[[Any], None]], None]) -> None:
        """Begins the thread; `work` is given the way to give."""
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True,
                                        name="penstock.robot loader")
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(timeout)

    def give(self, work: Any) -> None:
        """Waits until it was taken."""
        with self._changed:
            self._waiting.append(work)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or not self._waiting)
            if self._closed:
                raise _Closed

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

    def _run(self, work: Callable[[Callable[[Any], None]], None]) -> None:
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
