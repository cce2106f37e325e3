"""One after the other: threads that share a model take turns at it, in the order in which they came.

The line itself says whose turn it is: its first ticket. So there is nothing that an interrupt could leave half done: a
ticket is put in and taken out by one call each, and whatever happens in between, it is taken out.

A finalizer must not wait for a turn: the collector runs it in any thread, between any two lines, and whoever has the
turn may be waiting for that thread, or be that thread. What it has to do is left to whoever has the turn next.
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

_LOOK = 0.05  # seconds until a waiting thread looks for itself: whoever should wake it may have been interrupted


class _Ticket:
    """A place in the line. Who has to wait has a gate, which opens when the one before it has left."""

    __slots__ = ("gate", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.gate: threading.Lock | None = None

    def wait(self, line: deque[_Ticket]) -> None:
        """Wait until this ticket is the first of its line."""
        self.gate = gate = threading.Lock()
        gate.acquire()
        # Whoever left before there was a gate did so before this is asked.
        while line[0] is not self:
            gate.acquire(timeout=_LOOK)

    def wake(self) -> None:
        """Let the thread that waits look whether it is first."""
        if self.gate is not None:
            with contextlib.suppress(RuntimeError):  # it is open already
                self.gate.release()


class FairLock:
    """A lock that is fair, that a thread may take again while it has it, and that survives Ctrl-C at any moment.

    It has no `with`: an interrupt at the beginning of a method `__exit__` would leave it locked for good.

    >>> FairLock().run(max, 1, 2)
    2
    """

    def __init__(self) -> None:
        self._line: deque[_Ticket] = deque()
        self._left: deque[Callable[[], object]] = deque()  # calls for whoever has the turn next

    def leave(self, function: Callable[[], object]) -> None:
        """Have a function called in a turn without waiting for one: at once if nobody has it, or else by its owner.

        It may be called twice, where an interrupt comes in between.

        Example: `model.turn.leave(stream.forget)`.
        """
        self._left.append(function)
        line = self._line
        if line or in_device_thread():
            return
        # A ticket as any other, but it does not wait: whoever is first calls what is left.
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
        """Call a function when it is this thread's turn.

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
            # Nothing may stand before this call, not even `suppress`: an interrupt must not skip it.
            try:  # noqa: SIM105
                line.remove(ticket)
            except ValueError:  # interrupted before it was in the line
                pass
            self._wake_first()

    def run_or_leave(self, function: Callable[[], object]) -> None:
        """Run a function, as `run` does, or leave it where waiting would have no end: in a finalizer that interrupts a
        thread of the device, or one that waits in this line.

        Example: `model.turn.run_or_leave(model.free)`.
        """
        thread = threading.get_ident()
        if in_device_thread() or self._waits(thread, self._first()):
            self.leave(function)
        else:
            self.run(function)

    def _waits(self, thread: int, besides: _Ticket | None) -> bool:
        """Whether a thread has a ticket in the line already."""
        return any(ticket.thread == thread for ticket in list(self._line) if ticket is not besides)

    def _call_what_was_left(self) -> None:
        """Removed when it is done: an interrupt must not lose it, and a finalizer in between may have done it, too."""
        left = self._left
        while left:
            try:
                function = left[0]
            except IndexError:
                return
            with contextlib.suppress(LiveshapeError):  # whoever left it is gone
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
        except IndexError:  # it left between the two questions
            return None


class HasTurn(Protocol):
    """What is used by one thread at a time."""

    @property
    def turn(self) -> FairLock: ...


Owner = TypeVar("Owner", bound=HasTurn)


def in_turn(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """A method that waits for its object's turn.

    Example: `@in_turn` above `def prefill(self, ids): ...`.
    """

    @functools.wraps(method)
    def waiting(self: Owner, /, *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        return self.turn.run(method, self, *args, **named)

    return waiting
