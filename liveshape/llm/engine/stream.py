"""The decode loop, asynchronous: each step is submitted while the sampled token of the previous one is still on the
device. On a GPU with short steps several are in flight, so that it has work however late the host is.

In speculative decoding a step that may have draft tokens waits for its token instead, and verifies them with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from liveshape.errors import InputError
from liveshape.llm.engine.common_prefix import common_prefix
from liveshape.llm.engine.engine import logits_of, tokens_of
from liveshape.llm.engine.fair_lock import FairLock, synchronized
from liveshape.llm.engine.session import Session
from liveshape.llm.engine.speculative import Lookahead
from liveshape.llm.engine.step_period import StepPeriod
from liveshape.llm.sampling_settings import Sampling
from liveshape.run.pending import Pending


class _Step(NamedTuple):
    """The step whose token is read next, how many tokens remain, and the length of the sequence without it.

    A step with draft tokens samples one token per row, of which `row` is next. One without may have steps
    `in_flight` after it.
    """

    pending: Pending
    remaining: int | None
    position: int
    draft: tuple[int, ...] = ()
    row: int = 0
    in_flight: tuple[Pending, ...] = ()

    @property
    def left(self) -> int | None:
        """How many tokens remain after this one."""
        return None if self.remaining is None else self.remaining - 1


class Stream(Iterator[int]):
    """Iterator of generated tokens. The stop token is included; `finish_reason` is "stop" or "length".

    A yielded token is in the KV cache, but for the last one. After an interrupt the token is yielded again, or it is in
    the KV cache already. It is an async iterator, too: the event loop runs while the device works.

    Example: `for token in model.stream(ids, Sampling(), max_tokens=50): print(token)`.
    """

    def __init__(
        self,
        session: Session,
        first: Pending | None,
        sampling: Sampling,
        max_tokens: int | None,
        stop_ids: frozenset[int],
        lookahead: Lookahead | None = None,
        first_logits: Any = None,
    ) -> None:
        self._session, self._sampling, self._stop_ids = session, sampling, stop_ids
        self._lookahead = lookahead
        self._next = None if first is None else _Step(first, max_tokens, session.position)
        self._version = session.version
        self._first_logits = first_logits
        self._with_logits = first_logits is not None
        self._closed = False
        self._period = StepPeriod(session.engine.device.latency)
        self.logits: Any = None  # of the last token, [V], if `first_logits` is given
        self.finish_reason: Literal["stop", "length"] | None = "length" if first is None else None

    @property
    def lock(self) -> FairLock:
        """The lock of the engine."""
        return self._session.lock

    @synchronized
    def __next__(self) -> int:
        step, session = self._next, self._session
        if step is None or self._closed:
            raise StopIteration
        if session.version is not self._version:
            self._next = None
            raise InputError("the model was used otherwise since the last token of this stream; begin a new one")
        session.check_open()
        session.rollback(step.position)
        remaining = step.left
        goes_on = self._has_room(step)
        # Submitted before this token is read, so that the device never waits for the host.
        ahead = self._submit_ahead(step) if goes_on else ()
        chosen = tokens_of(step.pending)
        self._period.tick()
        token = chosen[step.row]
        if self._with_logits:
            rows = logits_of(step.pending, len(step.draft) + 1)
            self.logits = self._first_logits if rows is None else rows[step.row]
        if self._lookahead is not None and step.draft and step.row == 0:
            accepted = common_prefix(step.draft, chosen)
            self._lookahead.record(step.position, len(step.draft), accepted)
        if token in self._stop_ids:
            self._finish("stop")
        elif not goes_on:
            self._finish("length")
        elif step.draft[step.row : step.row + 1] == (token,) and session.holds(step.pending):
            row = step.row + 1
            session.accept(token, last=row == len(step.draft))
            self._next = step._replace(remaining=remaining, position=step.position + 1, row=row)
        else:
            draft = () if ahead else self._draft(token, remaining)
            if not ahead and self._lookahead is not None:
                ahead = (session.verify([token, *draft], self._sampling, self._with_logits),)
            ahead = ahead or (session.submit_next(step.pending, self._sampling, self._with_logits),)
            session.accept(token, last=not draft and len(ahead) == 1)
            # Last, and one assignment: if interrupted before it, the step is run again.
            self._next = _Step(ahead[0], remaining, step.position + 1, draft, in_flight=ahead[1:])
        return token

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> int:
        await self.arrive()
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None

    async def arrive(self) -> None:
        """Await the next token: then `next` does not wait for the device.

        Example: `await stream.arrive(); token = next(stream)`.
        """
        step = self._begin_next()
        if step is not None:
            await step.pending.result_async()

    @synchronized
    def _begin_next(self) -> _Step | None:
        """The step whose token is next, with steps ahead; None where `next` raises."""
        step, session = self._next, self._session
        if step is None or self._closed or session.version is not self._version:
            return None
        session.check_open()
        session.rollback(step.position)
        if self._has_room(step):
            step = self._next = step._replace(in_flight=self._submit_ahead(step))
        return step

    def _submit_ahead(self, step: _Step) -> tuple[Pending, ...]:
        """Submit steps ahead of the one whose token is read, up to the device's limit, unless a draft may follow it."""
        session = self._session
        if not session.can_rollback or step.draft or self._may_draft(step.left):
            return ()
        # They are not in the sequence: another use of the model may have overwritten their rows.
        ahead = step.in_flight if step.in_flight and session.holds(step.in_flight[-1]) else ()
        most = self._period.steps_ahead(session.steps_ahead if self._lookahead is None else 1)
        while len(ahead) < most and self._has_room(step, len(ahead)):
            last = ahead[-1] if ahead else step.pending
            ahead = (*ahead, session.submit_next(last, self._sampling, self._with_logits, in_flight=len(ahead)))
        return ahead

    def _has_room(self, step: _Step, in_flight: int = 0) -> bool:
        """Whether another token may follow that of a step, or of the one `in_flight` steps after it."""
        wanted = step.remaining is None or step.remaining > 1 + in_flight
        return wanted and step.position + in_flight < self._session.description.max_context

    def _may_draft(self, remaining: int | None) -> bool:
        """Whether the next step may have draft tokens, and so has to wait for its token."""
        return self._lookahead is not None and remaining != 1 and self._lookahead.may_draft(self._session.tokens_view)

    def _draft(self, token: int, remaining: int | None) -> tuple[int, ...]:
        """Draft tokens after the sequence and a token, limited by the context and `max_tokens`."""
        if self._lookahead is None:
            return ()
        session = self._session
        room = session.description.max_context - session.position - 1
        return self._lookahead.draft(
            session.tokens_view, token, room if remaining is None else min(room, remaining - 1)
        )

    @property
    def proposed(self) -> int:
        """The number of draft tokens proposed."""
        return 0 if self._lookahead is None else self._lookahead.proposed

    @property
    def accepted(self) -> int:
        """The number of draft tokens accepted."""
        return 0 if self._lookahead is None else self._lookahead.accepted

    def _finish(self, reason: Literal["stop", "length"]) -> None:
        self.finish_reason = reason
        self._next = None

    def close(self) -> None:
        """Stop the stream and discard steps ahead. Never blocks, since a finalizer may call it anywhere."""
        self._closed = True
        self.lock.defer(self._discard)

    def _discard(self) -> None:
        step = self._next
        if step is not None and self._session.version is self._version and self._session.can_rollback:
            self._session.rollback(step.position)
        # Last: after an interrupt this is called again.
        self._next = None
