"""Speculative decoding: draft tokens are verified by the target model, all in one call.

The target model samples a token after every draft token as in plain decoding, with the same random draw at the same
position, and a draft token is accepted if it is the one sampled. So the output and its distribution are those of plain
decoding, whatever the draft is, up to the rounding of logits; only the number of calls differs.

Rounding: kernels for several rows sum in another order than those for one (as prefill in other chunk sizes does), so
where two logits are closer than that the other token may be sampled. With float32 this is about 1e-6 of the largest
logit, and outputs are equal but for ties. With int8 activations a last bit now and then moves a value to the next
quantization step, which later layers amplify: on the shipped model, logits of rows verified together differ by up to
0.2 from those of one row, and two outputs of four diverge within 60 tokens, each as likely as the other.

Draft tokens come from the sequence itself (prompt lookup: what followed an earlier occurrence of the last n-gram) or
from a smaller draft model (draft_model.py), which samples with the same random draws as the target model: where their
distributions agree, they sample the same token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from liveshape.errors import UnsupportedError
from liveshape.llm.arguments import draft_limit
from liveshape.llm.engine.session import Session

NGRAM = "ngram"

_SIZES = (4, 3, 2)  # n of the n-grams, the longest match first
_FAILURES = 3  # drafts in a row with nothing accepted, until drafting pauses
_PAUSE, _LONGEST_PAUSE = 8, 64  # tokens


class Drafter(Protocol):
    """Proposes draft tokens after a sequence and one more token that is not yet part of it."""

    def may_draft(self, tokens: Sequence[int]) -> bool:
        """Whether there may be draft tokens after the next token."""

    def draft(self, tokens: Sequence[int], token: int, most: int) -> list[int]:
        """Up to `most` draft tokens."""


class Ngrams:
    """Prompt lookup decoding: drafts what followed the last n-gram before. Each token is indexed once.

    >>> Ngrams().draft([5, 6, 7, 8, 9, 5], 6, 3)
    [7, 8, 9]
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._next: dict[tuple[int, ...], int] = {}  # n-gram to the index after its last occurrence

    def may_draft(self, tokens: Sequence[int]) -> bool:
        """Whether the last n-gram occurred before."""
        self._index(tokens)
        return self._match() is not None

    def draft(self, tokens: Sequence[int], token: int, most: int) -> list[int]:
        """The tokens after the earlier occurrence, repeated cyclically where they reach the end of the sequence."""
        self._index(tokens)
        self._append(token)
        begin, end = self._match(), len(self._tokens)
        if begin is None:
            return []
        found = self._tokens[begin : begin + most]
        while len(found) < most:
            found.append(found[len(found) - (end - begin)])
        return found

    def _index(self, tokens: Sequence[int]) -> None:
        # After a truncate the index is stale, which costs acceptance, not correctness.
        del self._tokens[len(tokens) :]
        for token in tokens[len(self._tokens) :]:
            self._append(token)

    def _append(self, token: int) -> None:
        tokens = self._tokens
        for size in _SIZES:
            if len(tokens) >= size:
                self._next[tuple(tokens[-size:])] = len(tokens)
        tokens.append(token)

    def _match(self) -> int | None:
        tokens = self._tokens
        found = (self._next.get(tuple(tokens[-size:])) for size in _SIZES if len(tokens) >= size)
        return next((place for place in found if place is not None and place < len(tokens)), None)


class ForcedDrafts:
    """Drafts the tokens that an answer must begin with, which follow a prompt of `start` tokens, as many as fit.

    >>> ForcedDrafts([7, 8, 9], 2).draft([1, 2, 7], 8, 4)
    (9,)
    """

    def __init__(self, forced: Sequence[int], start: int) -> None:
        self._forced, self._start = forced, start

    def may_draft(self, tokens: Sequence[int]) -> bool:
        """Whether there are draft tokens after the next token."""
        return len(tokens) + 1 - self._start < len(self._forced)

    def draft(self, tokens: Sequence[int], token: int, room: int) -> tuple[int, ...]:
        """Up to `room` draft tokens after the sequence and a token."""
        place = len(tokens) + 1 - self._start
        return tuple(self._forced[place : place + max(room, 0)])

    def record(self, position: int, proposed: int, accepted: int) -> None:
        """All of them are accepted."""


class Lookahead:
    """Adaptive draft length, pauses in drafting, and the acceptance counts.

    All accepted: the next draft is twice as long. None accepted: half as long, and after some failures a pause.
    """

    def __init__(self, drafter: Drafter, most: int) -> None:
        self._drafter, self._most = drafter, most
        self._length = (most + 1) // 2
        self._failures, self._pause, self._resume = 0, _PAUSE, 0
        self._recorded = -1
        self.proposed = self.accepted = 0

    def may_draft(self, tokens: Sequence[int]) -> bool:
        """Whether to wait for the next token, so as to draft what follows it."""
        return len(tokens) >= self._resume and self._drafter.may_draft(tokens)

    def draft(self, tokens: Sequence[int], token: int, room: int) -> tuple[int, ...]:
        """Up to `room` draft tokens after the sequence and a token."""
        most = min(self._length, room) if len(tokens) >= self._resume else 0
        return tuple(self._drafter.draft(tokens, token, most)) if most > 0 else ()

    def record(self, position: int, proposed: int, accepted: int) -> None:
        """Record the acceptance of a draft at a position; once, even if an interrupt causes a second call."""
        if position == self._recorded:
            return
        self._recorded = position
        self.proposed += proposed
        self.accepted += accepted
        if accepted == proposed:
            self._length = min(2 * self._length, self._most)
        else:
            self._length = min(accepted + 1, self._most) if accepted else max(self._length // 2, 1)
        if accepted:
            self._failures, self._pause = 0, _PAUSE
            return
        self._failures += 1
        if self._failures == _FAILURES:
            self._failures, self._resume = 0, position + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def max_draft_tokens(session: Session, wanted: Any) -> int:
    """The most draft tokens per call, up to `wanted`; raises if the model cannot verify any.

    Example: `max_draft_tokens(session, 7)`.
    """
    most = draft_limit(wanted)
    if not session.can_rollback:
        raise UnsupportedError(
            "this program keeps state that is no entry per token: guesses that turn out wrong could not be taken back; "
            "generate without lookahead"
        )
    if session.max_verified_tokens < 2:
        raise UnsupportedError(
            "this program gives the logits of one token of a call alone, so it cannot verify guesses; export it with a "
            "longer sequence and `--full-logits`, or generate without lookahead"
        )
    return min(most, session.max_verified_tokens - 1)
