"""The generation loop: tokens are detokenized into responses, with finish reason and tokens per second."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from liveshape.llm.generation.assembling import Assembler
from liveshape.llm.generation.options import Streamer
from liveshape.llm.generation.preparing import Preparation
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.generation.reuse import truncate_to_prefix
from liveshape.llm.generation.stats import Stats, now_ms
from liveshape.llm.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel


@dataclass(frozen=True)
class Request:
    """A validated generation request; `tokens(cached)` starts decoding after the reused prefix."""

    given: Preparation
    keep_prefix: bool
    tokens: Callable[[int], Iterator[int]]


class ResponseStream(Generator[GenerationResponse, None, None]):
    """Responses of a generation: one per token, and a last one if the stream ended without a finish reason.

    It is a generator, and an async iterator, too: the event loop runs while the device works.

    Example: `for response in responses(model, tokenizer, request, None, Stats()): print(response.text)`.
    """

    def __init__(self, generation: _GenerationRun) -> None:
        self._generation, self._responses = generation, generation.responses()

    def send(self, value: None) -> GenerationResponse:
        """`next`, as of generators."""
        return self._responses.send(value)

    def throw(self, *raised: Any) -> GenerationResponse:
        """Raise in the loop, which ends it, as of generators."""
        return self._responses.throw(*raised)

    def close(self) -> None:
        """End it, and discard the steps ahead on the device."""
        self._responses.close()
        self._generation.close()  # if it was begun by `__anext__` alone

    def __aiter__(self) -> ResponseStream:
        return self

    async def __anext__(self) -> GenerationResponse:
        await self._generation.arrive()
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None


class _GenerationRun:
    """A request that runs: the source of its tokens, and what makes responses of them."""

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer, request: Request, streamer: Streamer | None, stats: Stats
    ) -> None:
        self._model, self._tokenizer, self._request = model, tokenizer, request
        self._streamer, self._stats = streamer, stats
        self._begun: tuple[Assembler, Iterator[int]] | None = None
        self._finished = self._closed = False

    def responses(self) -> Generator[GenerationResponse, None, None]:
        self._begin()
        try:
            while not self._finished:
                yield self._next()
        finally:
            self.close()

    async def arrive(self) -> None:
        """Await the token of the next response, where there is one."""
        if not self._finished and not self._closed:
            arrive = getattr(self._begin()[1], "arrive", None)
            if arrive is not None:
                await arrive()

    def close(self) -> None:
        """Discard the steps ahead on the device if the reader stops early."""
        begun, closed = self._begun, self._closed
        self._closed = True
        if begun is None or closed:
            return
        close = getattr(begun[1], "close", None)
        if close is not None:
            close()
        if self._streamer is not None:
            self._streamer.end()

    def _begin(self) -> tuple[Assembler, Iterator[int]]:
        if self._begun is None:
            given = self._request.given
            assembler = Assembler(self._tokenizer, given, self._model.memory.total / 1e9)
            self._stats.num_prompt_tokens = len(given.ids)
            _put(self._streamer, given.ids)
            # Under one lock: no other thread may use the cache between the truncate and the prefill.
            assembler.cached, source = self._model.lock.run(_start, self._model, self._request)
            self._begun = assembler, source
        return self._begun

    def _next(self) -> GenerationResponse:
        assembler, source = self._begin()
        token = next(source, None)
        if token is None:
            response = assembler.end()
        else:
            _put(self._streamer, [token])
            response = assembler.put(token, getattr(source, "logits", None), getattr(source, "complete", False))
        if response.generation_tokens == 1:
            self._stats.prompt_eval_end_ms = self._stats.first_token_ms = now_ms()
        _count(self._stats, source, response.generation_tokens)
        self._finished = response.finish_reason is not None
        return response


def responses(
    model: LanguageModel, tokenizer: Tokenizer, request: Request, streamer: Streamer | None, stats: Stats
) -> ResponseStream:
    """The responses to a request, which begins with the first of them.

    Example: `for response in responses(model, tokenizer, request, None, Stats()): print(response.text)`.
    """
    return ResponseStream(_GenerationRun(model, tokenizer, request, streamer, stats))


def _start(model: LanguageModel, request: Request) -> tuple[int, Iterator[int]]:
    """Prefix reuse: the number of prompt tokens that are in the KV cache, and the stream after them."""
    if not request.keep_prefix:
        model.reset()
    cached = truncate_to_prefix(model, request.given.ids) if request.keep_prefix else 0
    return cached, request.tokens(cached)


def _put(streamer: Streamer | None, ids: list[int]) -> None:
    if streamer is not None:
        streamer.put(np.asarray(ids, np.int64))


def _count(stats: Stats, source: Any, tokens: int) -> None:
    stats.num_generated_tokens, stats.inference_end_ms = tokens, now_ms()
    stats.num_proposed_tokens = getattr(source, "proposed", 0)
    stats.num_accepted_tokens = getattr(source, "accepted", 0)
