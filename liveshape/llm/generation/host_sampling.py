"""Choosing a token on the host, for logits that callables of the user have changed: the settings mean what they do on
the GPU, the draws are others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from liveshape.errors import InputError
from liveshape.llm.sampling_settings import Sampling

if TYPE_CHECKING:
    from liveshape.llm.generation.constraint import Constraint
    from liveshape.llm.language_model import LanguageModel

Logits = npt.NDArray[np.float32]  # (vocabulary,)
_HIGHEST = 3e38  # as on the device: what is infinitely likely is as likely as can be
Tokens = npt.NDArray[np.int64]  # all so far, those of the prompt included


def host_sampler(sampling: Sampling) -> Callable[[Tokens, Logits], int]:
    """A function of the tokens so far and the logits of the next that draws it.

    >>> host_sampler(Sampling())(np.array([0]), np.array([0.5, 2.0, 1.0], np.float32))
    1
    """
    random = np.random.default_rng(sampling.seed)

    def choose(tokens: Tokens, logits: Logits) -> int:
        scores = logits.astype(np.float64)
        if sampling.repetition_penalty != 1:
            seen = np.unique(tokens)
            penalty = sampling.repetition_penalty
            scores[seen] = np.where(scores[seen] > 0, scores[seen] / penalty, scores[seen] * penalty)
        if sampling.greedy:
            return int(np.argmax(scores))
        # As on the device, no draw gives what is no number.
        scores = np.where(np.isnan(scores), -np.inf, np.minimum(scores, _HIGHEST))
        if not np.isfinite(scores).any():
            raise InputError("no token can be drawn: every logit is -inf or NaN; look at the logits_processors")
        order = np.argsort(-scores, kind="stable")
        order = order[: sampling.top_k] if sampling.top_k else order
        ranked = np.exp((scores[order] - scores[order[0]]) / sampling.temperature)
        ranked /= ranked.sum()
        # A token is within top-p if those before it do not reach it already, so the first always is.
        kept = np.concatenate(([0.0], np.cumsum(ranked)[:-1])) < sampling.top_p
        ranked = np.where(kept & (ranked >= sampling.min_p * ranked[0]), ranked, 0)
        return int(order[random.choice(len(order), p=ranked / ranked.sum())])

    return choose


def checked_logits(given: Any, count: int) -> Logits:
    """What a processor of the user gave, as the logits of every token.

    >>> checked_logits([1, 2], 2)
    array([1., 2.], dtype=float32)
    """
    try:
        logits: Logits = np.asarray(given, np.float32).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InputError(f"a logits processor must give logits, {type(given).__name__} came: {error}") from error
    if logits.size != count:
        raise InputError(f"a logits processor must give the logits of all {count} tokens, {logits.size} came")
    return logits


def checked_token(given: Any, count: int) -> int:
    """What a sampler of the user gave, as a token.

    >>> checked_token(np.array([3]), 10)
    3
    """
    token = given.item() if getattr(given, "size", None) == 1 else given
    if isinstance(token, bool) or not isinstance(token, Integral) or not 0 <= int(token) < count:
        raise InputError(f"a sampler must give a token, an integer from 0 to {count - 1}; {given!r} came")
    return int(token)


class HostStream(Iterator[int]):
    """Tokens chosen by callables, one whole step after the other, behind a prompt that is in the cache.

    `logits` are those of the model that the last token was chosen from.

    Example: `next(HostStream(model, ids, lambda tokens, logits: int(logits.argmax())))`.
    """

    def __init__(
        self,
        model: LanguageModel,
        ids: Sequence[int],
        choose: Callable[[Tokens, Logits], Any],
        processors: Sequence[Callable[[Tokens, Logits], Any]] = (),
        constraint: Constraint | None = None,
    ) -> None:
        self._model, self._choose, self._processors = model, choose, processors
        self._constraint = constraint
        self._tokens = list(ids)
        self._held = len(self._tokens)  # of these, so many are in the cache
        self.logits: Logits | None = None

    def __next__(self) -> int:
        row = np.asarray(self._model.turn.run(self._logits), np.float32).reshape(-1)
        self._held, self.logits = len(self._tokens), row
        tokens = np.asarray(self._tokens, np.int64)
        for process in self._processors:
            row = checked_logits(process(tokens, row), row.size)
        # Last: whatever callables wish for, the form is kept.
        row = row if self._constraint is None else self._constraint.mask(row)
        token = checked_token(self._choose(tokens, row), row.size)
        if self._constraint is not None:
            if row[token] == -np.inf:
                raise InputError(f"the sampler gave token {token}, which leaves the form that was asked for")
            self._constraint.put(token)
        self._tokens.append(token)
        return token

    @property
    def complete(self) -> bool:
        """Whether the form that was asked for lets nothing follow."""
        return self._constraint is not None and self._constraint.complete

    def _logits(self) -> Any:
        tokens, held = self._tokens, self._held
        if self._model.tokens != tuple(tokens[:held]):
            raise InputError("the model was used otherwise since the last token of this text; begin a new one")
        if held < len(tokens):
            self._model.prefill(tokens[held:])
        return self._model.logits()
