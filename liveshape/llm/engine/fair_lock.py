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

_LOOK = 0.05  # seconds between polls of a waiting thread: the one that should wake it may have been interrupted


class _Ticket:
    """A place in the queue. A waiting thread blocks on `gate`, which its predecessor releases."""

    __slots__ = ("gate", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.gate: threading.Lock | None = None

    def wait(self, line: deque[_Ticket]) -> None:
        """Block until this ticket is the head of the queue."""
        self.gate = gate = threading.Lock()
        gate.acquire()
        # No lost wakeup: an owner that released before the gate existed did so before this check.
        while line[0] is not self:
            gate.acquire(timeout=_LOOK)

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
        self._line: deque[_Ticket] = deque()
        self._left: deque[Callable[[], object]] = deque()  # deferred calls, for the next owner

    def leave(self, function: Callable[[], object]) -> None:
        """Defer a call to the lock's owner, without blocking; call it now if the lock is free.

        An interrupt may cause it to be called twice.

        Example: `model.turn.leave(stream.forget)`.
        """
        self._left.append(function)
        line = self._line
        if line or in_device_thread():
            return
        # An ordinary ticket that does not wait: whoever is the head runs the deferred calls.
        ticket = _Ticket(threading.get_ident())
        try:
            line.append(ticket)
            if line[0] is ticket:
                self._call_what_was_left()
        finally:
            try:  # noqa: SIM105
                line.remove(ticket)
            except ValueError:
                pass
            self._wake_first()

    def run(self, function: Callable[Arguments, Result], *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        """Acquire the lock, call a function, release the lock.

        Example: `model.turn.run(lambda: (model.reset(), model.prefill(ids)))`.
        """
        line, thread = self._line, threading.get_ident()
        first = self._first()
        if first is not None and first.thread == thread:
            if self._left:
                self._call_what_was_left()
            return function(*args, **named)
        ticket = _Ticket(thread)
        try:
            line.append(ticket)
            if line[0] is not ticket:
                if in_device_thread() or self._waits(thread, ticket):
                    raise InputError(
                        "a finalizer asked for a model in a thread that works for it or waits for it, and so would "
                        "wait for itself: use models in no finalizer but for close()"
                    )
                ticket.wait(line)
            if self._left:
                self._call_what_was_left()
            result = function(*args, **named)
            if self._left:
                self._call_what_was_left()
            return result
        finally:
            # First, and without `suppress`: an interrupt must not skip it.
            try:  # noqa: SIM105
                line.remove(ticket)
            except ValueError:  # interrupted before it was in the queue
                pass
            self._wake_first()

    def run_or_leave(self, function: Callable[[], object]) -> None:
        """`run`, or `leave` where waiting would deadlock: in a finalizer that interrupts a thread of the device, or one
        that waits for this lock.

        Example: `model.turn.run_or_leave(model.free)`.
        """
        thread = threading.get_ident()
        if in_device_thread() or self._waits(thread, self._first()):
            self.leave(function)
        else:
            self.run(function)

    def _waits(self, thread: int, besides: _Ticket | None) -> bool:
        """Whether a thread is in the queue already."""
        return any(ticket.thread == thread for ticket in list(self._line) if ticket is not besides)

    def _call_what_was_left(self) -> None:
        """Run the deferred calls. Each is removed only when done, so that an interrupt does not lose it; a finalizer in
        between may have run it, too."""
        left = self._left
        while left:
            try:
                function = left[0]
            except IndexError:
                return
            with contextlib.suppress(LiveshapeError):  # there is no caller left to tell
                function()
            with contextlib.suppress(ValueError):
                left.remove(function)

    def _wake_first(self) -> None:
        following = self._first()
        if following is not None:
            following.wake()

    def _first(self) -> _Ticket | None:
        line = self._line
        try:
            return line[0] if line else None
        except IndexError:  # removed between the two reads
            return None


class HasTurn(Protocol):
    """An object guarded by a FairLock."""

    @property
    def turn(self) -> FairLock: ...


Owner = TypeVar("Owner", bound=HasTurn)


def in_turn(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """Decorator: run a method while holding its object's lock.

    Example: `@in_turn` above `def prefill(self, ids): ...`.
    """

    @functools.wraps(method)
    def waiting(self: Owner, /, *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        return self.turn.run(method, self, *args, **named)

    return waiting
