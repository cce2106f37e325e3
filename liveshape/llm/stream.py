"""Token after token without waiting: each step is submitted with the token of the one before it still on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from liveshape.errors import InputError
from liveshape.llm.engine import token_of
from liveshape.llm.sampling import Sampling
from liveshape.llm.session import Session
from liveshape.llm.turns import Turn, in_turn
from liveshape.run.executor import Pending


class _Next(NamedTuple):
    """The step whose token comes next, how many may come, and how long the text is without it."""

    pending: Pending
    left: int | None
    position: int


class Stream(Iterator[int]):
    """The tokens after a text. The token that ends it comes, too, and with it the reason: "stop" or "length".

    A token is in the cache when it comes, but for the last one. If an interrupt kept it from its reader, then it comes
    again, or it is in the cache already.

    Example: `for token in model.stream(ids, Sampling(), max_tokens=50): print(token)`.
    """

    def __init__(
        self,
        session: Session,
        first: Pending | None,
        sampling: Sampling,
        max_tokens: int | None,
        stop_ids: frozenset[int],
    ) -> None:
        self._session, self._sampling, self._stop_ids = session, sampling, stop_ids
        self._next = None if first is None else _Next(first, max_tokens, session.position)
        self._mark = session.mark
        self.finish_reason: Literal["stop", "length"] | None = "length" if first is None else None

    @property
    def turn(self) -> Turn:
        """The turn at the model."""
        return self._session.turn

    @in_turn
    def __next__(self) -> int:
        step, session = self._next, self._session
        if step is None:
            raise StopIteration
        if session.mark is not self._mark:
            self._next = None
            raise InputError("the model was used otherwise since the last token of this stream; begin a new one")
        session.check_open()
        session.back_to(step.position)
        left = None if step.left is None else step.left - 1
        goes_on = left != 0 and step.position < session.description.max_context
        # The next step is on its way before this token is read, so that the device never waits for the host.
        ahead = session.follow(step.pending, self._sampling) if goes_on and session.looks_ahead else None
        token = token_of(step.pending)
        if token in self._stop_ids:
            self._finish("stop")
        elif not goes_on:
            self._finish("length")
        else:
            ahead = ahead or session.follow(step.pending, self._sampling)
            session.accept(token)
            # Last, and at once: a step that ends before this line has not been.
            self._next = _Next(ahead, left, step.position + 1)
        return token

    def _finish(self, reason: Literal["stop", "length"]) -> None:
        self.finish_reason = reason
        self._next = None

    @in_turn
    def close(self) -> None:
        """End here: the step that was ahead is forgotten."""
        step, self._next = self._next, None
        if step is not None and self._session.mark is self._mark and self._session.looks_ahead:
            self._session.back_to(step.position)
