"""One after the other: threads that share a model take turns at it, in the order in which they came.

The line itself says whose turn it is: its first ticket. So there is nothing that an interrupt could leave half done: a
ticket is put in and taken out by one call each, and whatever happens in between, it is taken out.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

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


class Turn:
    """A lock that is fair, that a thread may take again while it has it, and that survives Ctrl-C at any moment.

    It has no `with`: an interrupt at the beginning of a method `__exit__` would leave it locked for good.

    >>> Turn().run(max, 1, 2)
    2
    """

    def __init__(self) -> None:
        self._line: deque[_Ticket] = deque()

    def run(self, function: Callable[Arguments, Result], *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        """Call a function when it is this thread's turn.

        Example: `model.turn.run(lambda: (model.reset(), model.prefill(ids)))`.
        """
        line, thread = self._line, threading.get_ident()
        first = self._first()
        if first is not None and first.thread == thread:
            return function(*args, **named)
        ticket = _Ticket(thread)
        try:
            line.append(ticket)
            if line[0] is not ticket:
                ticket.wait(line)
            return function(*args, **named)
        finally:
            # Nothing may stand before this call, not even `suppress`: an interrupt must not skip it.
            try:  # noqa: SIM105
                line.remove(ticket)
            except ValueError:  # interrupted before it was in the line
                pass
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
    def turn(self) -> Turn: ...


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
