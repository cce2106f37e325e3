"""Fair, reentrant, interrupt-safe lock (a FIFO ticket lock) for the threads that share a model.

The head of the queue owns the lock, and there is no other state that an interrupt could leave inconsistent: a ticket is
appended and removed by one call each, and removed whatever happens in between.

A finalizer must not wait for the lock: the garbage collector runs it in any thread, between any two lines, and the
owner may be waiting for that thread, or be that thread. Its work is deferred to the next owner.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from liveshape.device.protocol import in_device_thread
from liveshape.errors import InputError, LiveshapeError

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_POLL_SECONDS = 0.05  # of a waiting thread: the one that should wake it may have been interrupted


class _Ticket:
    """A place in the queue. A waiting thread blocks on `gate`, which its predecessor releases."""

    __slots__ = ("gate", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.gate: threading.Lock | None = None

    def wait(self, queue: deque[_Ticket], is_hopeless: Callable[[], bool] | None) -> bool:
        """Block until this ticket is the head of the queue; False when that is hopeless."""
        self.gate = gate = threading.Lock()
        gate.acquire()
        # No lost wakeup: an owner that released before the gate existed did so before this check.
        while queue[0] is not self:
            if is_hopeless is not None and is_hopeless():
                return False
            gate.acquire(timeout=_POLL_SECONDS)
        return True

    def wake(self) -> None:
        """Wake the waiting thread, to check whether it is the head."""
        if self.gate is not None:
            with contextlib.suppress(RuntimeError):  # released already
                self.gate.release()


class FairLock:
    """A fair (FIFO), reentrant lock that survives Ctrl-C at any moment.

    It has no `with`: an interrupt at the beginning of a method `__exit__` would leave it locked for good.

    >>> FairLock().run(max, 1, 2)
    2
    """

    def __init__(self) -> None:
        self._queue: deque[_Ticket] = deque()
        self._deferred: deque[Callable[[], object]] = deque()  # calls for the next owner

    def defer(self, function: Callable[[], object]) -> None:
        """Defer a call to the lock's owner, without blocking; call it now if the lock is free.

        An interrupt may cause it to be called twice.

        Example: `model.lock.defer(stream.discard)`.
        """
        self._deferred.append(function)
        queue = self._queue
        if queue or in_device_thread():
            return
        # An ordinary ticket that does not wait: whoever is the head runs the deferred calls.
        ticket = _Ticket(threading.get_ident())
        try:
            queue.append(ticket)
            if queue[0] is ticket:
                self._run_deferred()
        finally:
            try:  # noqa: SIM105
                queue.remove(ticket)
            except ValueError:
                pass
            self._wake_head()

    def run(self, function: Callable[Arguments, Result], *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        """Acquire the lock, call a function, release the lock.

        Example: `model.lock.run(lambda: (model.reset(), model.prefill(ids)))`.
        """
        return self._run(None, function, *args, **named)

    def run_or_else(
        self,
        otherwise: Callable[[], Result],
        function: Callable[Arguments, Result],
        *args: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """`run`; but where threads wait for each other's locks in a circle, this one calls `otherwise` without it.

        Example: `draft_model.lock.run_or_else(list, draft, tokens)`.
        """
        return self._run(otherwise, function, *args, **named)

    def _run(
        self,
        otherwise: Callable[[], Result] | None,
        function: Callable[Arguments, Result],
        *args: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        queue, thread = self._queue, threading.get_ident()
        head = self._head()
        if head is not None and head.thread == thread:
            if self._deferred:
                self._run_deferred()
            return function(*args, **named)
        ticket = _Ticket(thread)
        try:
            queue.append(ticket)
            if queue[0] is not ticket:
                if in_device_thread() or self._is_queued(thread, ticket):
                    raise InputError(
                        "a finalizer asked for a model in a thread that works for it or waits for it, and so would "
                        "wait for itself: use models in no finalizer but for close()"
                    )
                if not self._wait(ticket, None if otherwise is None else self._is_circle) and otherwise is not None:
                    return otherwise()
            if self._deferred:
                self._run_deferred()
            result = function(*args, **named)
            if self._deferred:
                self._run_deferred()
            return result
        finally:
            # First, and without `suppress`: an interrupt must not skip it.
            try:  # noqa: SIM105
                queue.remove(ticket)
            except ValueError:  # interrupted before it was in the queue
                pass
            self._wake_head()

    def run_or_defer(self, function: Callable[[], object]) -> None:
        """`run`, or `defer` where waiting would deadlock: in a finalizer that interrupts a thread of the device, or one
        that waits for this lock.

        Example: `model.lock.run_or_defer(model.free)`.
        """
        thread = threading.get_ident()
        if in_device_thread() or self._is_queued(thread, self._head()):
            self.defer(function)
        else:
            self.run(function)

    def _wait(self, ticket: _Ticket, is_hopeless: Callable[[], bool] | None) -> bool:
        thread = ticket.thread
        before = _awaited.get(thread)  # where a finalizer waits in the middle of another wait
        try:
            _awaited[thread] = self
            return ticket.wait(self._queue, is_hopeless)
        finally:
            if before is None:
                _awaited.pop(thread, None)
            else:
                _awaited[thread] = before

    def _is_circle(self) -> bool:
        """Whether the owner of this lock waits, over others or at once, for a lock of this thread."""
        thread, lock, seen = threading.get_ident(), self, set[int]()
        while (head := lock._head()) is not None and head.thread not in seen:
            if head.thread == thread:
                return lock is not self
            seen.add(head.thread)
            following = _awaited.get(head.thread)
            if following is None:
                return False
            lock = following
        return False

    def _is_queued(self, thread: int, excluding: _Ticket | None) -> bool:
        """Whether a thread is in the queue already."""
        return any(ticket.thread == thread for ticket in list(self._queue) if ticket is not excluding)

    def _run_deferred(self) -> None:
        """Run the deferred calls. Each is removed only when done, so that an interrupt does not lose it; a finalizer in
        between may have run it, too."""
        deferred = self._deferred
        while deferred:
            try:
                function = deferred[0]
            except IndexError:
                return
            with contextlib.suppress(LiveshapeError):  # there is no caller left to tell
                function()
            with contextlib.suppress(ValueError):
                deferred.remove(function)

    def _wake_head(self) -> None:
        following = self._head()
        if following is not None:
            following.wake()

    def _head(self) -> _Ticket | None:
        queue = self._queue
        try:
            return queue[0] if queue else None
        except IndexError:  # removed between the two reads
            return None


_awaited: dict[int, FairLock] = {}  # by the thread that waits


class HasLock(Protocol):
    """An object guarded by a FairLock."""

    @property
    def lock(self) -> FairLock: ...


Owner = TypeVar("Owner", bound=HasLock)


def synchronized(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """Decorator: run a method while holding its object's lock.

    Example: `@synchronized` above `def prefill(self, ids): ...`.
    """

    @functools.wraps(method)
    def wrapper(self: Owner, /, *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        return self.lock.run(method, self, *args, **named)

    return wrapper
