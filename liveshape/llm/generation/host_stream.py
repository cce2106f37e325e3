"""The decode loop with sampling on the host, for custom samplers, logits processors and constrained decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from liveshape.errors import InputError
from liveshape.llm.generation.constraint import Constraint
from liveshape.llm.generation.host_sampling import Logits, Tokens, checked_logits, checked_token

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel


class HostChooser:
    """Chooses one token after the other on the host: the forced ones, which follow a prompt of `start` tokens, and then
    by logits processors, the grammar and the sampler."""

    def __init__(
        self,
        sample: Callable[[Tokens, Logits], Any],
        processors: Sequence[Callable[[Tokens, Logits], Any]] = (),
        constraint: Constraint | None = None,
        forced: Sequence[int] = (),
        start: int = 0,
    ) -> None:
        self._sample, self._processors, self._constraint = sample, processors, constraint
        self._forced, self._start = forced, start

    def choose(self, tokens: Sequence[int], logits: Logits) -> int:
        """The token after these, from its logits.

        Example: `HostChooser(lambda tokens, logits: int(logits.argmax())).choose([1, 2], logits)`.
        """
        place = len(tokens) - self._start
        if place < len(self._forced):
            return self._forced[place]
        row, before = logits, np.asarray(tokens, np.int64)
        for process in self._processors:
            row = checked_logits(process(before, row), row.size)
        # After the processors, so that none of them can undo the mask.
        row = row if self._constraint is None else self._constraint.mask(row)
        token = checked_token(self._sample(before, row), row.size)
        if self._constraint is not None:
            if row[token] == -np.inf:
                raise InputError(f"the sampler gave token {token}, which leaves the form that was asked for")
            self._constraint.put(token)
        return token

    @property
    def complete(self) -> bool:
        """Whether the grammar allows no further token."""
        return self._constraint is not None and self._constraint.complete


class HostStream(Iterator[int]):
    """Iterator of tokens sampled on the host, one synchronous step each, after a prompt that is in the KV cache.

    `logits` are the model's own logits of the last token, before processors.

    Example: `next(HostStream(model, ids, HostChooser(lambda tokens, logits: int(logits.argmax()))))`.
    """

    def __init__(self, model: LanguageModel, ids: Sequence[int], chooser: HostChooser) -> None:
        self._model, self._chooser = model, chooser
        self._tokens = list(ids)
        self._cached = len(self._tokens)  # how many of them are in the KV cache
        self.logits: Logits | None = None

    def __next__(self) -> int:
        row = np.asarray(self._model.lock.run(self._logits), np.float32).reshape(-1)
        self._cached, self.logits = len(self._tokens), row
        self._tokens.append(self._chooser.choose(self._tokens, row))
        return self._tokens[-1]

    @property
    def complete(self) -> bool:
        """Whether the grammar allows no further token."""
        return self._chooser.complete

    def _logits(self) -> Any:
        tokens, cached = self._tokens, self._cached
        if self._model.tokens != tuple(tokens[:cached]):
            raise InputError("the model was used otherwise since the last token of this text; begin a new one")
        if cached < len(tokens):
            self._model.prefill(tokens[cached:])
        return self._model.logits()
