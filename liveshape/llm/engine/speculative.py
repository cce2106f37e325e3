"""Speculative decoding: draft tokens that may follow a text are verified, all in one call, by the model that writes it.

The model samples a token after every draft token as it would have without any, with the same draw at the same position,
and a draft token is accepted if it is what was sampled. So text, seed and distribution are those of plain decoding,
whatever the draft is, up to the rounding of logits; only the number of calls is another.

That rounding is the limit of it. Kernels for several rows sum in another order than those for one, as they do for a
prompt in other chunks: where two tokens are nearer to each other than that, the other one may be chosen. With float32
that is some 1e-6 of the largest logit, and texts are the same but for ties. With int8 activations a last bit now and
then turns a whole step of a row over, which later layers multiply: on the shipped model logits of rows that are
verified together differ by up to 0.2 from those of one row, and two texts of four go apart within 60 tokens, each as
likely as the other.

Draft tokens come from the text itself (prompt lookup), where its last n-gram was there before, or from a smaller draft
model (draft_model.py), which draws with the same numbers as the large one: where the two agree on what is likely, they
draw the same token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from liveshape.errors import UnsupportedError
from liveshape.llm.arguments import draft_limit
from liveshape.llm.engine.session import Session

NGRAM = "ngram"

_SIZES = (4, 3, 2)  # of what is looked up, in this order
_FAILURES = 3  # in a row, until nothing is drafted for a while
_PAUSE, _LONGEST_PAUSE = 8, 64  # tokens


class Drafter(Protocol):
    """Proposes draft tokens after a text and one more token that is not yet part of it."""

    def expects(self, text: Sequence[int]) -> bool:
        """Whether there may be draft tokens behind the next token."""

    def draft(self, text: Sequence[int], token: int, most: int) -> list[int]:
        """At most so many draft tokens."""


class Ngrams:
    """What followed the last tokens when they were there before. Every token is put into the index once.

    >>> Ngrams().draft([5, 6, 7, 8, 9, 5], 6, 3)
    [7, 8, 9]
    """

    def __init__(self) -> None:
        self._text: list[int] = []
        self._next: dict[tuple[int, ...], int] = {}  # where what followed these tokens begins, when they came last

    def expects(self, text: Sequence[int]) -> bool:
        """Whether the text is somewhere where it was before."""
        self._see(text)
        return self._place() is not None

    def draft(self, text: Sequence[int], token: int, most: int) -> list[int]:
        """What followed then, and if that reaches to the end of the text, itself once more."""
        self._see(text)
        self._put(token)
        begin, end = self._place(), len(self._text)
        if begin is None:
            return []
        found = self._text[begin : begin + most]
        while len(found) < most:
            found.append(found[len(found) - (end - begin)])
        return found

    def _see(self, text: Sequence[int]) -> None:
        # A text that was taken back leaves places in the index that only draft worse.
        del self._text[len(text) :]
        for token in text[len(self._text) :]:
            self._put(token)

    def _put(self, token: int) -> None:
        text = self._text
        for size in _SIZES:
            if len(text) >= size:
                self._next[tuple(text[-size:])] = len(text)
        text.append(token)

    def _place(self) -> int | None:
        text = self._text
        found = (self._next.get(tuple(text[-size:])) for size in _SIZES if len(text) >= size)
        return next((place for place in found if place is not None and place < len(text)), None)


class Lookahead:
    """The length of the next draft, when to draft none, and the acceptance so far.

    All accepted: twice as long next time. None accepted: half as long, and after some failures none for a while.
    """

    def __init__(self, drafter: Drafter, most: int) -> None:
        self._drafter, self._most = drafter, most
        self._length = (most + 1) // 2
        self._failures, self._pause, self._resume = 0, _PAUSE, 0
        self._judged = -1
        self.proposed = self.accepted = 0

    def expects(self, text: Sequence[int]) -> bool:
        """Whether it is worth to wait for the next token, so as to draft what follows it."""
        return len(text) >= self._resume and self._drafter.expects(text)

    def draft(self, text: Sequence[int], token: int, room: int) -> tuple[int, ...]:
        """Draft tokens after the text and a token, where there is room for so many."""
        most = min(self._length, room) if len(text) >= self._resume else 0
        return tuple(self._drafter.draft(text, token, most)) if most > 0 else ()

    def judge(self, position: int, proposed: int, accepted: int) -> None:
        """Learn how many draft tokens behind a position were accepted; once, even if an interrupt has it told again."""
        if position == self._judged:
            return
        self._judged = position
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


def most_draft_tokens(session: Session, wanted: Any) -> int:
    """How many draft tokens at a time a model verifies, if so many are wanted; an error where it can verify none.

    Example: `most_draft_tokens(session, 7)`.
    """
    most = draft_limit(wanted)
    if not session.looks_ahead:
        raise UnsupportedError(
            "this program keeps state that is no entry per token: guesses that turn out wrong could not be taken back; "
            "generate without lookahead"
        )
    if session.verified_at_once < 2:
        raise UnsupportedError(
            "this program gives the logits of one token of a call alone, so it cannot verify guesses; export it with a "
            "longer sequence and `--full-logits`, or generate without lookahead"
        )
    return min(most, session.verified_at_once - 1)
