"""A worker thread that makes calls in order: those that must not be interrupted, and those that overlap with the host.

Whoever queues a call or waits for one may be interrupted between any two lines: a call is queued, or it is not. And it
may be one of the last of a process, or of a collected device, whose thread was told to end: then there is another.
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

_LOOK = 0.05  # seconds between looks of a second one who waits, or of one whose thread was not woken


class Job:
    """A call of the worker; `over` once there is its result or its error."""

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
        """Make the call; what it held is let go."""
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
        """Wait for the end of it, whatever that is."""
        while not self.over:
            if not self._ending.acquire(timeout=_LOOK):
                self._line.look()

    def wait(self) -> Any:
        """The result, once it is there; or the error."""
        self.end()
        if self.error is not None:
            raise self.error
        return self.result


class _Line:
    """The queue, shared by the thread and by those who wait, who may outlive the worker."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()  # the first of them is under way
        self.wake: SimpleQueue[bool] = SimpleQueue()
        self.thread: threading.Thread | None = None
        self.beginning, self.running = threading.Lock(), threading.Lock()

    def work(self) -> None:
        """The thread, until it is told to end."""
        ident = threading.get_ident()
        DEVICE_THREADS.add(ident)
        try:
            while self.wake.get():
                self.run()
        finally:
            DEVICE_THREADS.discard(ident)  # another thread may have it then

    def run(self) -> None:
        """Make every call, one thread at a time; the end of the interpreter may have caught one with the lock."""
        with contextlib.nullcontext() if sys.is_finalizing() else self.running:
            while self.jobs:
                if not self.jobs[0].over:  # an interrupt came before it left the line
                    self.jobs[0].run()
                self.jobs.popleft()

    def look(self) -> None:
        """By one who waits: wake the thread, or do what it can no longer do."""
        if sys.is_finalizing():
            self.run()
        else:
            self.wake.put(True)

    def stop(self) -> None:
        """With the owner or the process; what was put is still done, since it was woken for that before."""
        thread, self.thread = self.thread, None
        if thread is not None:
            self.wake.put(False)
            if thread is not threading.current_thread():
                thread.join(timeout=1.0)


class Worker:
    """The thread, from its first call on; it ends with whoever owns it.

    Example: `Worker("liveshape reader").start(read).wait()`.
    """

    def __init__(self, name: str) -> None:
        self._name, self._line = name, _Line()

    @property
    def busy(self) -> bool:
        """Whether a call is not over yet."""
        return bool(self._line.jobs)

    def start(self, call: Callable[[], Any]) -> Job:
        """Make a call after those before it."""
        line = self._line
        if line.thread is None:
            self._begin()
        job = Job(call, line)
        line.jobs.append(job)
        line.wake.put(True)
        if line.thread is None:  # and there cannot be one any more
            line.run()
        return job

    def drain(self) -> None:
        """Wait for the end of every call."""
        jobs = self._line.jobs
        while jobs:
            try:
                last = jobs[-1]
            except IndexError:
                return  # it ended between the two lines
            last.end()

    def _begin(self) -> None:
        line = self._line
        with line.beginning:
            if line.thread is None and not sys.is_finalizing():
                # Interrupted here, there may be two of them: one at a time makes calls.
                thread = threading.Thread(target=line.work, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the process is ending: whoever puts a call makes it
                    return
                weakref.finalize(self, line.stop)
                line.thread = thread
