"""A worker thread with a FIFO queue of calls: those that must not be interrupted, and those that overlap with the host.

Queueing and waiting may be interrupted between any two lines: a call is queued, or it is not. At interpreter exit, or
for a garbage-collected device, the thread may have been stopped already: then another is started or the caller runs it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from liveshape.device.protocol import DEVICE_THREADS
from liveshape.errors import DeviceError

_LOOK = 0.05  # seconds between polls of a second waiter, or of one whose wakeup was lost


class Job:
    """A queued call (a future); `over` once it has a result or an error."""

    __slots__ = ("_call", "_ending", "_line", "error", "over", "result")

    def __init__(self, call: Callable[[], Any], line: _Line) -> None:
        self._call: Callable[[], Any] | None = call
        self._line = line
        self._ending = threading.Lock()
        self._ending.acquire()
        self.result: Any = None
        self.error: Exception | None = None
        self.over = False

    def run(self) -> None:
        """Run the call and drop its references."""
        call, self._call = self._call, None
        try:
            if call is None:
                raise DeviceError("the process ended in the middle of a call of the device")
            self.result = call()
        except Exception as error:
            self.error = error
        del call
        self.over = True
        self._ending.release()

    def end(self) -> None:
        """Wait until it is over, without raising its error."""
        while not self.over:
            if not self._ending.acquire(timeout=_LOOK):
                self._line.look()

    def wait(self) -> Any:
        """Wait for the result, or raise the error."""
        self.end()
        if self.error is not None:
            raise self.error
        return self.result


class _Line:
    """The queue, shared by the thread and by waiters, who may outlive the worker."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()  # the first is running
        self.wake: SimpleQueue[bool] = SimpleQueue()
        self.thread: threading.Thread | None = None
        self.beginning, self.running = threading.Lock(), threading.Lock()

    def work(self) -> None:
        """Main loop of the thread."""
        ident = threading.get_ident()
        DEVICE_THREADS.add(ident)
        try:
            while self.wake.get():
                self.run()
        finally:
            DEVICE_THREADS.discard(ident)  # idents are reused

    def run(self) -> None:
        """Run all queued calls, one thread at a time; interpreter exit may have stopped a thread that held the lock."""
        with contextlib.nullcontext() if sys.is_finalizing() else self.running:
            while self.jobs:
                if not self.jobs[0].over:  # an interrupt may have come before it was popped
                    self.jobs[0].run()
                self.jobs.popleft()

    def look(self) -> None:
        """Called by a waiter: wake the thread, or run the calls if it has ended."""
        if sys.is_finalizing():
            self.run()
        else:
            self.wake.put(True)

    def stop(self) -> None:
        """Stop the thread with its owner or at exit; queued calls still run, since it was woken for them before."""
        thread, self.thread = self.thread, None
        if thread is not None:
            self.wake.put(False)
            if thread is not threading.current_thread():
                thread.join(timeout=1.0)


class Worker:
    """A worker thread, started at its first call and stopped with its owner.

    Example: `Worker("liveshape reader").start(read).wait()`.
    """

    def __init__(self, name: str) -> None:
        self._name, self._line = name, _Line()

    @property
    def busy(self) -> bool:
        """Whether a call is queued or running."""
        return bool(self._line.jobs)

    def start(self, call: Callable[[], Any]) -> Job:
        """Queue a call."""
        line = self._line
        if line.thread is None:
            self._begin()
        job = Job(call, line)
        line.jobs.append(job)
        line.wake.put(True)
        if line.thread is None:  # no thread can be started any more
            line.run()
        return job

    def drain(self) -> None:
        """Wait for all queued calls."""
        jobs = self._line.jobs
        while jobs:
            try:
                last = jobs[-1]
            except IndexError:
                return  # it was popped between the two lines
            last.end()

    def _begin(self) -> None:
        line = self._line
        with line.beginning:
            if line.thread is None and not sys.is_finalizing():
                # An interrupt here may leave two threads: only one at a time runs calls.
                thread = threading.Thread(target=line.work, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # interpreter exit: the caller runs the call itself
                    return
                weakref.finalize(self, line.stop)
                line.thread = thread
