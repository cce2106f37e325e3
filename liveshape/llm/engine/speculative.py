"""Guessing ahead: tokens that may follow a text, to be verified all in one call of the model that writes it.

A guess is never more than that. The model chooses a token after every guess as it would have without any, with the same
draw at the same position, and a guess counts if it is what was chosen. So text, seed and distribution are those of
generation without guesses, whatever the guesses are, up to the rounding of logits; only the number of calls is another.

That rounding is the limit of it. Kernels for several rows sum in another order than those for one, as they do for a
prompt in other chunks: where two tokens are nearer to each other than that, the other one may be chosen. With float32
that is some 1e-6 of the largest logit, and texts are the same but for ties. With int8 activations a last bit now and
then turns a whole step of a row over, which later layers multiply: on the shipped model logits of rows that are
verified together differ by up to 0.2 from those of one row, and two texts of four go apart within 60 tokens, each as
likely as the other.

Guesses come from the text itself, where its last tokens were there before, or from a smaller model, which draws with
the same numbers as the large one: where the two agree on what is likely, they draw the same token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from liveshape.errors import InputError, UnsupportedError
from liveshape.llm.arguments import guess_limit
from liveshape.llm.engine.session import Session
from liveshape.llm.engine.stream import Stream
from liveshape.llm.generation.reuse import common_prefix
from liveshape.llm.sampling_settings import Sampling

NGRAM = "ngram"

_SIZES = (4, 3, 2)  # of what is looked up, in this order
_FAILURES = 3  # in a row, until nothing is guessed for a while
_PAUSE, _LONGEST_PAUSE = 8, 64  # tokens


class Guesser(Protocol):
    """What may follow a text and one more token that is not yet part of it."""

    def expects(self, text: Sequence[int]) -> bool:
        """Whether there may be guesses behind the next token."""

    def guess(self, text: Sequence[int], token: int, most: int) -> list[int]:
        """At most so many."""


class Ngrams:
    """What followed the last tokens when they were there before. Every token is put into the index once.

    >>> Ngrams().guess([5, 6, 7, 8, 9, 5], 6, 3)
    [7, 8, 9]
    """

    def __init__(self) -> None:
        self._text: list[int] = []
        self._next: dict[tuple[int, ...], int] = {}  # where what followed these tokens begins, when they came last

    def expects(self, text: Sequence[int]) -> bool:
        """Whether the text is somewhere where it was before."""
        self._see(text)
        return self._place() is not None

    def guess(self, text: Sequence[int], token: int, most: int) -> list[int]:
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
        # A text that was taken back leaves places in the index that are only bad guesses.
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


class Draft:
    """What a smaller model would write. Its cache follows the text, whatever was in it before.

    Example: `Draft(session_of_the_small_model, sampling).guess(ids, token, 7)`.
    """

    def __init__(self, session: Session, sampling: Sampling) -> None:
        self._session, self._sampling = session, sampling
        self._agreed = 0  # tokens that its cache and the text are known to begin with alike
        self._mark: object = None

    def expects(self, text: Sequence[int]) -> bool:
        """Whether the text still fits into its context."""
        return len(text) + 1 < self._session.description.max_context

    def guess(self, text: Sequence[int], token: int, most: int) -> list[int]:
        """Its own stream of tokens, without an end."""
        return self._session.turn.run(self._guess, text, token, most)

    def _guess(self, text: Sequence[int], token: int, most: int) -> list[int]:
        session = self._session
        known = self._agreed if session.mark is self._mark else 0
        known = min(known, len(text), session.position)
        held = known + common_prefix(session.tokens_from(known), [*text[known:], token])
        # The last token is computed again if it is there already, for what follows it.
        session.truncate(min(held, len(text)))
        missing = [*text[session.position :], token]
        most = min(most, session.description.max_context - session.position - len(missing) + 1)
        if most < 1:
            return []
        first = session.append(missing, self._sampling)
        guesses = list(Stream(session, first, self._sampling, most, frozenset()))
        self._agreed, self._mark = len(text) + 1, session.mark
        return guesses


class Lookahead:
    """How many tokens to guess, when not to, and how many were right.

    All right: twice as many next time. None right: half as many, and after some failures none for a while.
    """

    def __init__(self, guesser: Guesser, most: int) -> None:
        self._guesser, self._most = guesser, most
        self._length = (most + 1) // 2
        self._failures, self._pause, self._resume = 0, _PAUSE, 0
        self._judged = -1
        self.proposed = self.accepted = 0

    def expects(self, text: Sequence[int]) -> bool:
        """Whether it is worth to wait for the next token, so as to guess what follows it."""
        return len(text) >= self._resume and self._guesser.expects(text)

    def guess(self, text: Sequence[int], token: int, room: int) -> tuple[int, ...]:
        """What may follow the text and a token, where there is room for so many."""
        most = min(self._length, room) if len(text) >= self._resume else 0
        return tuple(self._guesser.guess(text, token, most)) if most > 0 else ()

    def judge(self, position: int, proposed: int, accepted: int) -> None:
        """Learn how many guesses behind a position were right; once, even if an interrupt has it told again."""
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


def most_guesses(session: Session, wanted: Any) -> int:
    """How many guesses at a time a model verifies, if so many are wanted; an error where it can verify none.

    Example: `most_guesses(session, 7)`.
    """
    most = guess_limit(wanted)
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


def check_draft(session: Session, draft: Session) -> None:
    """An error unless one model can guess for another.

    Example: `check_draft(large_session, small_session)`.
    """
    draft.check_open()
    if draft is session:
        raise InputError(
            "a model cannot guess ahead of itself: its cache holds the text; give a smaller one, or a fork"
        )
    sizes = session.description.vocab_size, draft.description.vocab_size
    if sizes[0] != sizes[1]:
        raise InputError(
            f"the model has {sizes[0]:,} tokens and the one that guesses {sizes[1]:,}: both need the same tokenizer"
        )
    if not draft.looks_ahead:
        raise UnsupportedError(
            "the model that guesses keeps state that is no entry per token: it could not take its guesses back"
        )
