"""The responses of a request, from the thread of an engine to the event loop of its reader."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from liveshape.llm.generation.responses import GenerationResponse


class QueuedAnswer(AsyncGenerator[GenerationResponse, None]):
    """An asynchronous generator that an engine fills from its own thread. It is no native one: closing that before its
    first item would run no line of it, and the engine would not know.

    `leave` is called once, in the thread that closes, when the reader wants no more.

    Example: `answer = LOCAL.open(engine.forget); answer.put(response); LOCAL.flush([answer]); answer.end()`.
    """

    def __init__(self, leave: Callable[[QueuedAnswer], None]) -> None:
        self._leave = leave
        self._ready: deque[GenerationResponse | BaseException] = deque()
        self._lock = threading.Lock()
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False  # by its reader, who wants no more
        self.ended = False  # by the engine, who has no more

    # Of the engine

    def put(self, response: GenerationResponse) -> None:
        """Add a response, from any thread; `LocalChannel.flush` wakes its reader."""
        self._add(response, ended=False)

    def end(self, error: BaseException | None = None) -> None:
        """Add nothing more; the reader gets the error after the responses that it has not read yet."""
        self._add(error, ended=True)
        LOCAL.flush([self])

    def _add(self, item: GenerationResponse | BaseException | None, ended: bool) -> None:
        with self._lock:
            if item is not None and not (self.ended or self.closed):
                self._ready.append(item)
            self.ended = self.ended or ended

    def waiter(self) -> asyncio.Future[None] | None:
        """What its reader waits for, once."""
        with self._lock:
            waiter, self._waiter = self._waiter, None
        return waiter

    # Of the reader

    async def asend(self, value: None) -> GenerationResponse:
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                if self._ready:
                    item = self._ready.popleft()
                    break
                if self.ended or self.closed:
                    raise StopAsyncIteration
                waiter = self._waiter = loop.create_future()
            await waiter
        if isinstance(item, BaseException):
            raise item
        return item

    async def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> GenerationResponse:
        await self.aclose()
        raise val if isinstance(val, BaseException) else typ

    async def aclose(self) -> None:
        with self._lock:
            again, self.closed = self.closed, True
            self._ready.clear()
        if not again:
            self._leave(self)
            LOCAL.flush([self])


class LocalChannel:
    """Answers for readers in this process."""

    def open(self, leave: Callable[[QueuedAnswer], None]) -> QueuedAnswer:
        """An answer that an event loop of this process reads."""
        return QueuedAnswer(leave)

    def flush(self, answers: Iterable[QueuedAnswer]) -> None:
        """Wake the readers of answers, from any thread; those of one event loop together."""
        waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for answer in answers:
            waiter = answer.waiter()
            if waiter is not None:
                waiting.setdefault(waiter.get_loop(), []).append(waiter)
        for loop, waiters in waiting.items():
            with suppress(RuntimeError):  # its event loop was closed
                loop.call_soon_threadsafe(_set, waiters)


LOCAL = LocalChannel()


def _set(waiters: Sequence[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
