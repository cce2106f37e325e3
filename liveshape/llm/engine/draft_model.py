"""Draft model of speculative decoding: a smaller model with the same vocabulary proposes draft tokens that the target
model verifies (speculative.py)."""

from __future__ import annotations

from collections.abc import Sequence

from liveshape.errors import InputError, UnsupportedError
from liveshape.llm.engine.common_prefix import common_prefix
from liveshape.llm.engine.session import Session
from liveshape.llm.engine.stream import Stream
from liveshape.llm.sampling_settings import Sampling


class DraftModel:
    """Drafts tokens with a smaller model, whose KV cache is truncated and extended to follow the sequence.

    Example: `DraftModel(session_of_the_small_model, sampling).draft(ids, token, 7)`.
    """

    def __init__(self, session: Session, sampling: Sampling) -> None:
        self._session, self._sampling = session, sampling
        self._shared = 0  # a known lower bound of the common prefix of its cache and the sequence
        self._version: object = None

    def may_draft(self, tokens: Sequence[int]) -> bool:
        """Whether the sequence still fits into the context of the draft model."""
        return len(tokens) + 1 < self._session.description.max_context

    def draft(self, tokens: Sequence[int], token: int, most: int) -> list[int]:
        """Up to `most` draft tokens; stop tokens do not end a draft.

        None where another thread has this model and waits for the target, as two models that draft for each other do.
        """
        return self._session.lock.run_or_else(list, self._draft, tokens, token, most)

    def _draft(self, tokens: Sequence[int], token: int, most: int) -> list[int]:
        session = self._session
        known = self._shared if session.version is self._version else 0
        known = min(known, len(tokens), session.position)
        held = known + common_prefix(session.tokens_from(known), [*tokens[known:], token])
        # The last token runs again even if it is in the cache: its logits are needed.
        session.truncate(min(held, len(tokens)))
        missing = [*tokens[session.position :], token]
        most = min(most, session.description.max_context - session.position - len(missing) + 1)
        if most < 1:
            return []
        first = session.append(missing, self._sampling)
        drafted = list(Stream(session, first, self._sampling, most, frozenset()))
        self._shared, self._version = len(tokens) + 1, session.version
        return drafted


def check_draft(session: Session, draft: Session) -> None:
    """Raise unless one model can draft for another: same vocabulary size, and a KV cache that can be rolled back.

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
    if not draft.can_rollback:
        raise UnsupportedError(
            "the model that guesses keeps state that is no entry per token: it could not take its guesses back"
        )
