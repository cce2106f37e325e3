"""How the responses of an engine come to those who asked, in this process or in another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from liveshape.llm.generation.responses import GenerationResponse


class Answer(Protocol):
    """The engine's end of an answer. `closed` says that its reader wants no more, `ended` that the engine has no
    more."""

    closed: bool
    ended: bool

    def put(self, response: GenerationResponse) -> None:
        """Add a response, from any thread; `AnswerChannel.flush` brings it."""

    def end(self, error: BaseException | None = None) -> None:
        """Add nothing more; the reader gets the error after the responses that it has not read yet."""


class AnswerChannel(Protocol):
    """Opens answers, and brings to their readers what was put into them."""

    def open(self, leave: Callable[[Any], None]) -> Any:
        """An answer; `leave` is called with it, once, when its reader wants no more."""

    def flush(self, answers: Iterable[Any]) -> None:
        """Bring what was put into these, which is much cheaper for many together."""
