"""One pass over the batches, on its own thread."""

import atexit
import threading
import weakref
from collections.abc import Callable
from typing import Any


class _Closed(Exception):
    """Stops a run whose remaining batches are not wanted."""


PATIENCE = 10.0  # seconds to wait at exit for a thread that is stuck

_OPEN: "weakref.WeakSet[HandOver]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes all runs at exit. A run whose batches nobody takes would never end, and its memory
    must be released before the interpreter shuts down."""
    still_open = list(_OPEN)
    for over in still_open:
        over.close()
    for over in still_open:
        over.join(PATIENCE)


class HandOver:
    """Passes batches from the thread of the run to the caller, one at a time. Either may end it."""

    def __init__(self) -> None:
        _OPEN.add(self)
        self._changed = threading.Condition()
        self._waiting: list[Any] = []
        self._failure: BaseException | None = None
        self._over = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[Callable[[Any], None]], None]) -> None:
        """Starts the thread, which calls `work` with the function to pass a batch."""
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True,
                                        name="penstock.robot loader")
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(timeout)

    def give(self, work: Any) -> None:
        """Passes a batch and waits until it is taken."""
        with self._changed:
            self._waiting.append(work)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or not self._waiting)
            if self._closed:
                raise _Closed

    def take(self) -> Any:
        """Returns the next batch; None after the last."""
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
        except BaseException as failure:  # raised again in the caller
            with self._changed:
                self._failure = failure
        with self._changed:
            self._over = True
            self._changed.notify_all()
