"""An answer whose request is prepared in a thread: the grammar of a schema may take seconds, for which the event loop
of the caller must not stand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from liveshape.llm.generation.constraint import check_form
from liveshape.llm.generation.responses import GenerationResponse

Answer = TypeVar("Answer", bound=AsyncGenerator[GenerationResponse, None])
Request = TypeVar("Request")

_COMPILED = ("json_schema", "regex")


class Reservations:
    """Places in the queue of an engine for requests whose grammar is being compiled. `check` raises where no more are
    taken; it counts them, and holds the lock, which its holder may take again.

    Example: `self._reserved = Reservations(self._changed, self._check_room)`.
    """

    def __init__(self, lock: threading.Condition, check: Callable[[], None]) -> None:
        self._lock, self._check = lock, check
        self.count = 0

    def take(self) -> None:
        """Take a place, or raise."""
        with self._lock:
            self._check()
            self.count += 1

    def give_back(self) -> None:
        """Give a place back."""
        with self._lock:
            self.count -= 1

    def queued(self, queue: Callable[[Request], Answer], request: Request) -> Answer:
        """Queue a request at its place."""
        with self._lock:
            self.count -= 1
            return queue(request)


class DeferredAnswer(AsyncGenerator[GenerationResponse, None]):
    """The answer that `begin` gives in a thread; what it raises comes with the first response.

    Example: `answer = DeferredAnswer(lambda: engine.generate("Once", regex="yes|no"))`.
    """

    def __init__(self, begin: Callable[[], AsyncGenerator[GenerationResponse, None]]) -> None:
        loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[AsyncGenerator[GenerationResponse, None]] = loop.create_future()
        self._answer.add_done_callback(lambda future: future.cancelled() or future.exception())  # told or not
        self.closed = False

        def run() -> None:
            result: Any = None
            failure = None
            try:
                result = begin()
            except BaseException as error:
                failure = error
            with suppress(RuntimeError):  # the event loop was closed
                loop.call_soon_threadsafe(self._begun, result, failure)

        # It ends with its process, whatever it compiles.
        threading.Thread(target=run, name="liveshape grammar", daemon=True).start()

    @property
    def ended(self) -> bool:
        """Whether there are no more responses to come."""
        done = self._answer.done()
        failed = done and self._answer.exception() is not None
        return failed or (done and bool(getattr(self._answer.result(), "ended", False)))

    def _begun(self, answer: AsyncGenerator[GenerationResponse, None], failure: BaseException | None) -> None:
        if failure is None:
            self._answer.set_result(answer)
        else:
            self._answer.set_exception(failure)
        if self.closed and failure is None:
            self._closing = asyncio.ensure_future(answer.aclose())

    async def asend(self, value: None) -> GenerationResponse:
        if self.closed:
            raise StopAsyncIteration
        answer = await asyncio.shield(self._answer)
        return await answer.asend(value)

    async def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> GenerationResponse:
        await self.aclose()
        raise val if isinstance(val, BaseException) else typ

    async def aclose(self) -> None:
        self.closed = True
        if self._answer.done() and self._answer.exception() is None:
            await self._answer.result().aclose()


def deferred(
    check: Callable[..., Any],
    prepare: Callable[..., Request],
    queue: Callable[[Request], Answer],
    reserved: Reservations,
    prompt: Any,
    options: Mapping[str, Any],
) -> Answer | DeferredAnswer:
    """The answer of a request that is prepared and queued; where a grammar is to be compiled and the caller has an
    event loop, it is prepared in a thread, and its place in the queue is taken here.

    All but the grammar is checked here, by `check`, and the errors of the grammar's text.

    Example: `deferred(self._prepared, self._request, self._queue, self._reserved, prompt, options)`.
    """
    forms = {name: options.get(name) for name in _COMPILED}
    if all(form is None for form in forms.values()) or not _in_event_loop():
        return queue(prepare(prompt, **options))
    check_form(**forms)
    others = {name: value for name, value in options.items() if name not in _COMPILED}
    # The host chooses, as with the grammar: speculative decoding cannot verify that.
    check(prompt, **{**others, "logits_processors": (*others.get("logits_processors", ()), _unchanged)})

    def begin() -> Answer:
        try:
            request = prepare(prompt, **options)
        except BaseException:
            reserved.give_back()
            raise
        return reserved.queued(queue, request)

    reserved.take()
    try:
        return DeferredAnswer(begin)
    except BaseException:  # no thread can be started
        reserved.give_back()
        raise


def _unchanged(tokens: Sequence[int], logits: Any) -> Any:
    return logits


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
