"""A thread that makes calls one after the other, for what must not be interrupted and for what can be done meanwhile.

Whoever puts a call or waits for one may be interrupted between any two lines: a call is there, or it is not.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_LOOK = 0.05  # seconds between looks of a second one who waits, or of one whose thread was not woken
_THREADS: set[int] = set()  # the idents of such threads


def in_worker() -> bool:
    """Whether this is such a thread. Finalizers may run in it, since the collector runs anywhere: they must not wait
    for anybody who may wait for the thread.

    >>> in_worker()
    False
    """
    return threading.get_ident() in _THREADS


class Job:
    """A call of the thread; `over` once there is its result or its error."""

    __slots__ = ("_call", "_ending", "_wake", "error", "over", "result")

    def __init__(self, call: Callable[[], Any], wake: SimpleQueue[bool]) -> None:
        self._call: Callable[[], Any] | None = call
        self._wake = wake
        self._ending = threading.Lock()
        self._ending.acquire()
        self.result: Any = None
        self.error: Exception | None = None
        self.over = False

    def run(self) -> None:
        """Make the call; what it held is let go."""
        assert self._call is not None
        try:
            self.result = self._call()
        except Exception as error:
            self.error = error
        self._call = None
        self.over = True
        self._ending.release()

    def end(self) -> None:
        """Wait for the end of it, whatever that is."""
        while not self.over:
            if not self._ending.acquire(timeout=_LOOK):
                self._wake.put(True)

    def wait(self) -> Any:
        """The result, once it is there; or the error."""
        self.end()
        if self.error is not None:
            raise self.error
        return self.result


class Worker:
    """The thread, from its first call on; it ends with whoever owns it.

    Example: `Worker("liveshape reader").start(read).wait()`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[Job] = deque()  # the first of them is under way
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._beginning, self._running = threading.Lock(), threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether a call is not over yet."""
        return bool(self._jobs)

    def start(self, call: Callable[[], Any]) -> Job:
        """Make a call after those before it."""
        if self._thread is None:
            self._begin()
        job = Job(call, self._wake)
        self._jobs.append(job)
        self._wake.put(True)
        return job

    def drain(self) -> None:
        """Wait for the end of every call."""
        while self._jobs:
            try:
                last = self._jobs[-1]
            except IndexError:
                return  # it ended between the two lines
            last.end()

    def _begin(self) -> None:
        with self._beginning:
            if self._thread is None:
                # Interrupted here, there may be two of them: one at a time makes calls.
                given = (self._jobs, self._wake, self._running)
                thread = threading.Thread(target=_work, args=given, name=self._name, daemon=True)
                thread.start()
                weakref.finalize(self, _stop, self._wake, thread)
                self._thread = thread


def _work(jobs: deque[Job], wake: SimpleQueue[bool], running: threading.Lock) -> None:
    ident = threading.get_ident()
    _THREADS.add(ident)
    try:
        while wake.get():
            with running:
                while jobs:
                    jobs[0].run()
                    jobs.popleft()
    finally:
        _THREADS.discard(ident)  # another thread may have it then


def _stop(wake: SimpleQueue[bool], thread: threading.Thread) -> None:
    """With the owner or the process; what was put is still done, since it was woken for that before."""
    wake.put(False)
    if thread is not threading.current_thread():
        thread.join(timeout=1.0)
