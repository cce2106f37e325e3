"""The answers of one HTTP request: each is read as it comes, however slow the client is, and all end together."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, TypeGuard

from liveshape.errors import LiveshapeError
from liveshape.llm.generation.responses import GenerationResponse, joined
from liveshape.llm.serving.async_engine import AsyncEngine
from liveshape.serve.metrics import Metrics


class Answers:
    """Several generations, read side by side; their times go to the metrics.

    Example: `async for index, response in answers.responses(): ...`.
    """

    def __init__(self, sources: Sequence[AsyncGenerator[GenerationResponse, None]], metrics: Metrics) -> None:
        self._sources, self._metrics = sources, metrics
        self._begun = time.perf_counter()
        self._ready: deque[tuple[int, GenerationResponse | Exception]] = deque()
        self._arrived = asyncio.Event()
        self._tasks = [asyncio.create_task(self._read(index)) for index in range(len(sources))]
        self._open = set(range(len(sources)))
        self.prompt_tokens = [0] * len(sources)
        self.cached_tokens = [0] * len(sources)
        self.generated_tokens = [0] * len(sources)

    async def responses(self, ping: float | None = None) -> AsyncIterator[tuple[int, GenerationResponse] | None]:
        """Yield (index, response) until all have ended, and None after each `ping` seconds of silence.

        Tokens that came while the client read the last ones are one response.
        """
        while self._open:
            if not self._ready:
                self._arrived.clear()
                try:
                    async with asyncio.timeout(ping):
                        await self._arrived.wait()
                except TimeoutError:
                    yield None
                continue
            index, found = self._next()
            if isinstance(found, Exception):
                raise found
            if index not in self._open:
                continue
            if found.finish_reason is not None:
                self._open.discard(index)
            self.prompt_tokens[index] = found.prompt_tokens
            self.cached_tokens[index] = found.cached_tokens
            self.generated_tokens[index] = found.generation_tokens
            yield index, found
            # A long backlog must not keep the event loop from other clients.
            await asyncio.sleep(0)

    def _next(self) -> tuple[int, GenerationResponse | Exception]:
        """What comes next, with all that follows it of the same answer; log-probabilities are of one token each."""
        index, found = self._ready.popleft()
        while self._ready and _is_plain(found):
            other, following = self._ready[0]
            if other != index or not _is_plain(following):
                break
            found = joined(found, following)
            self._ready.popleft()
        return index, found

    def _put(self, index: int, found: GenerationResponse | Exception) -> None:
        self._ready.append((index, found))
        self._arrived.set()

    async def stop(self, index: int) -> None:
        """End one of them; its responses are not yielded any more."""
        self._open.discard(index)
        self._tasks[index].cancel()
        await self._sources[index].aclose()

    async def aclose(self) -> None:
        """End all of them and free what they have."""
        self._open.clear()
        for task in self._tasks:
            task.cancel()
        for source in self._sources:
            await source.aclose()

    async def _read(self, index: int) -> None:
        last: float | None = None
        try:
            async for response in self._sources[index]:
                now = time.perf_counter()
                if last is None:
                    self._metrics.first_token.observe(now - self._begun)
                else:
                    self._metrics.between_tokens.observe(now - last)
                last = now
                self._put(index, response)
                await asyncio.sleep(0)
        except Exception as error:
            self._put(index, error)


def _is_plain(found: GenerationResponse | Exception) -> TypeGuard[GenerationResponse]:
    return isinstance(found, GenerationResponse) and found.logprobs is None


async def begin(engine: AsyncEngine, requests: Sequence[tuple[list[int], dict[str, Any]]], metrics: Metrics) -> Answers:
    """Queue prompts with their options, all of them or none, and not in the event loop: a grammar takes its time.

    Example: `answers = await begin(engine, [(ids, {"seed": 1}), (ids, {"seed": 2})], metrics)`.
    """
    made: list[AsyncGenerator[GenerationResponse, None]] = []

    def generate() -> None:
        for ids, options in requests:
            made.append(engine.generate(ids, **options))

    queueing = asyncio.create_task(asyncio.to_thread(generate))
    try:
        await asyncio.shield(queueing)
    except BaseException:
        # The thread goes on when its waiter is cancelled: what it still queues must end, too.
        with suppress(LiveshapeError):
            await queueing
        for source in made:
            await source.aclose()
        raise
    return Answers(made, metrics)
