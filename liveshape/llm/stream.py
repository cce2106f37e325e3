"""Token after token without waiting: each step is submitted with the token of the one before it still on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from liveshape.errors import InputError
from liveshape.llm.engine import token_of
from liveshape.llm.sampling import Sampling
from liveshape.run.executor import Pending

if TYPE_CHECKING:
    from liveshape.llm.model import LanguageModel


class Stream(Iterator[int]):
    """The tokens after a text. The token that ends it comes, too, and with it the reason: "stop" or "length".

    A token is in the cache when it comes, but for the last one.

    Example: `for token in model.stream(ids, Sampling(), max_tokens=50): print(token)`.
    """

    def __init__(
        self,
        model: LanguageModel,
        first: Pending | None,
        sampling: Sampling,
        max_tokens: int | None,
        stop_ids: frozenset[int],
    ) -> None:
        self._model, self._pending, self._sampling = model, first, sampling
        self._left = max_tokens
        self._stop_ids = stop_ids
        self._use = model._use
        self.finish_reason: Literal["stop", "length"] | None = "length" if first is None else None

    def __next__(self) -> int:
        pending, model = self._pending, self._model
        if pending is None:
            raise StopIteration
        if model._use is not self._use:
            self._pending = None
            raise InputError("the model was used otherwise since the last token of this stream; begin a new one")
        if self._left is not None:
            self._left -= 1
        goes_on = self._left != 0 and model.position < model.max_context
        # The next step is on its way before this token is read, so that the device never waits for the host.
        ahead = model._follow(pending, self._sampling) if goes_on and model._looks_ahead else None
        token = token_of(pending)
        if token in self._stop_ids:
            self._finish("stop")
        elif not goes_on:
            self._finish("length")
        else:
            self._pending = ahead or model._follow(pending, self._sampling)
            model._accept(token)
        return token

    def _finish(self, reason: Literal["stop", "length"]) -> None:
        self.finish_reason = reason
        self.close()

    def close(self) -> None:
        """End here: the step that was ahead is forgotten."""
        if self._pending is not None:
            self._pending = None
            if self._model._use is self._use:
                self._model._forget_ahead()
