"""The protocol of asynchronous engines, all that a server knows of one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol, Self, Unpack

from liveshape.llm.generation.options import GenerationOptions, Prompt
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.text.tokenizer import Tokenizer

MAX_WAITING = 256


@dataclass(frozen=True)
class EngineFacts:
    """What an engine is, for a log; `one_at_a_time` is the reason where it does not run sequences together."""

    sequences: int  # at once, at most
    pages: int
    context: int
    trained_context: int | None
    cache_bytes: int
    device: str
    activations: str
    one_at_a_time: str | None = None


@dataclass(frozen=True)
class EngineStatus:
    """What an engine does now, and its counters since it was made; `last_progress` is a time of `time.monotonic`."""

    running: int
    waiting: int
    pages_in_use: int
    pages: int
    generated_tokens: int
    prompt_tokens: int
    steps: int
    last_progress: float

    @property
    def requests(self) -> int:
        """The requests that have not ended."""
        return self.running + self.waiting

    def stalled_for(self, now: float) -> float:
        """How many seconds nothing has moved although there are requests; 0 without any.

        >>> EngineStatus(1, 0, 1, 1, 0, 0, 0, last_progress=5.0).stalled_for(7.0)
        2.0
        """
        return max(now - self.last_progress, 0.0) if self.requests else 0.0


class AsyncEngine(Protocol):
    """Generates for many requests at once.

    Example: `async for response in engine.generate("Once upon a time", seed=7): print(response.text, end="")`.
    """

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""

    @property
    def max_context(self) -> int:
        """The most tokens of one sequence."""

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary."""

    @property
    def facts(self) -> EngineFacts:
        """What the engine is."""

    @property
    def status(self) -> EngineStatus:
        """What the engine does now."""

    def generate(
        self, prompt: Prompt, **options: Unpack[GenerationOptions]
    ) -> AsyncGenerator[GenerationResponse, None]:
        """Queue a request; its responses are those of `stream_generate`. Any thread may call this.

        Invalid arguments, QueueFull and EngineClosed raise here. Where there is a `json_schema` or `regex`, and the
        caller has an event loop, a thread compiles the grammar: what that finds wrong comes with the first response,
        and so does EngineClosed where the engine was closed meanwhile. `aclose` ends the request and
        frees what it has, whether it waits, is in its prompt or among its tokens, and whether or not a response was
        read. A reader may be as slow as it likes: responses are kept for it. One who leaves early must close
        (`contextlib.aclosing`), since the engine holds every request that has not ended.
        """

    async def close(self, grace: float = 0) -> None:
        """Take no more requests, let those that are there end within `grace` seconds, and end the others with
        EngineClosed."""

    def close_sync(self, grace: float = 0) -> None:
        """`close` without an event loop; `with` and `async with` close, too."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...
