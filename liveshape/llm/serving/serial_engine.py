"""An asynchronous engine that runs one sequence at a time, first come, first served: for programs whose rows cannot be
those of many sequences."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from liveshape.errors import EngineClosed, LiveshapeError, QueueFull, counted
from liveshape.llm.arguments import LOOKAHEAD_TOKENS
from liveshape.llm.generation.generating import stream_generate
from liveshape.llm.generation.options import NAMES, GenerationOptions, Prompt
from liveshape.llm.generation.prompts import fitting_ids
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.generation.reuse import truncate_to_prefix
from liveshape.llm.serving.answer_channel import Answer, AnswerChannel
from liveshape.llm.serving.async_engine import MAX_WAITING, EngineFacts, EngineStatus
from liveshape.llm.serving.deferred_answer import Reservations, deferred
from liveshape.llm.serving.engine_lifetime import EngineLifetime
from liveshape.llm.serving.queued_answer import LOCAL
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.option_names import checks_options

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel

Responses = Generator[GenerationResponse, None, None]

_CHOSEN_ON_HOST = ("json_schema", "regex", "sampler", "logits_processors")  # what lookahead cannot verify
_LOOK = 0.02  # seconds between two looks at whether all requests have ended


@dataclass(frozen=True)
class SerialRequest:
    """A validated request: its prompt, the generation that was prepared for a model, how to prepare it for another
    one, and where its responses go."""

    ids: list[int]
    model: LanguageModel
    source: Responses
    begin: Callable[[LanguageModel], Responses]
    answer: Any  # of its channel


class SerialEngine(EngineLifetime):
    """Runs requests on a thread of its own through `stream_generate`, reusing the prefix that each shares with the one
    before it; at most `max_waiting` wait. It uses the model alone, until `close`, which leaves the model open unless it
    is `owned`.

    `lookahead` is that of `stream_generate`, for every request whose tokens are not chosen on the host. `reload` opens
    the model and its lookahead again after a device loss. `reason` says why sequences do not run together. Responses go
    through `channel`.

    Example: `engine = SerialEngine(*load("SmolLM2-135M-Instruct")); engine.generate("Hi", max_tokens=20)`.
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        *,
        max_waiting: int = MAX_WAITING,
        lookahead: Any = None,
        lookahead_tokens: int = LOOKAHEAD_TOKENS,
        reload: Callable[[], tuple[LanguageModel, Any]] | None = None,
        owned: bool = False,
        reason: str = "this engine was chosen",
        channel: AnswerChannel = LOCAL,
    ) -> None:
        self._model, self.tokenizer, self._channel = model, tokenizer, channel
        self._max_waiting = max_waiting
        self._lookahead, self._lookahead_tokens = lookahead, lookahead_tokens
        self._reload, self._owned, self._reason = reload, owned, reason
        self._changed = threading.Condition()
        self._reserved = Reservations(self._changed, self._check_room)
        self._waiting: deque[SerialRequest] = deque()
        self._running: SerialRequest | None = None
        self._closing = False
        self._generated = self._prompted = self._steps = 0
        self._last_progress = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="liveshape serial engine", daemon=True)
        self._thread.start()

    @property
    def model(self) -> LanguageModel:
        """The model; another one after a device loss."""
        return self._model

    @property
    def max_context(self) -> int:
        """The most tokens of one sequence."""
        return self._model.max_context

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary."""
        return self._model.vocab_size

    @property
    def facts(self) -> EngineFacts:
        """What the engine is."""
        model = self._model
        return EngineFacts(
            sequences=1,
            pages=1,
            context=model.max_context,
            trained_context=model.trained_context,
            cache_bytes=model.memory.state,
            device=model.device.name,
            activations=model.activations,
            one_at_a_time=self._reason,
        )

    @property
    def status(self) -> EngineStatus:
        """What the engine does now; the KV cache of its one sequence is one page."""
        with self._changed:
            running = 0 if self._running is None else 1
            return EngineStatus(
                running=running,
                waiting=len(self._waiting),
                pages_in_use=running,
                pages=1,
                generated_tokens=self._generated,
                prompt_tokens=self._prompted,
                steps=self._steps,
                last_progress=self._last_progress,
            )

    @checks_options(*NAMES)
    def generate(
        self, prompt: Prompt, **options: Unpack[GenerationOptions]
    ) -> AsyncGenerator[GenerationResponse, None]:
        """Queue a request; `AsyncEngine.generate` says what raises here, and what closing it does.

        Example: `async for response in engine.generate("Once upon a time"): print(response.text, end="")`.
        """
        return deferred(self._check, self._prepared, self._queued, self._reserved, prompt, options)

    def _queued(self, request: SerialRequest) -> AsyncGenerator[GenerationResponse, None]:
        with self._changed:
            self._check_room()
            if not self._waiting and self._running is None:
                self._last_progress = time.monotonic()
            self._waiting.append(request)
            self._changed.notify_all()
        answer: AsyncGenerator[GenerationResponse, None] = request.answer
        return answer

    def _check_room(self) -> None:
        if self._closing:
            raise EngineClosed("the engine was closed and takes no more requests")
        if len(self._waiting) + (self._running is not None) + self._reserved.count > self._max_waiting:
            waiting = counted(self._max_waiting, "request")
            raise QueueFull(f"{waiting} may wait behind the one that runs, and so many do: ask again later")

    def _ids(self, prompt: Prompt, options: GenerationOptions) -> list[int]:
        model, raw = self._model, options.get("raw", False)
        return fitting_ids(
            self.tokenizer, prompt, model.max_context, model.trained_context, begin=model.bos_id, raw=raw
        )

    def _check(self, prompt: Prompt, **options: Unpack[GenerationOptions]) -> None:
        """Raise for a request that is invalid."""
        stream_generate(self._model, self.tokenizer, self._ids(prompt, options), **options)

    def _prepared(self, prompt: Prompt, **options: Unpack[GenerationOptions]) -> SerialRequest:
        """A validated request, in any thread."""
        model, ids = self._model, self._ids(prompt, options)
        on_host = any(options.get(name) not in (None, (), []) for name in _CHOSEN_ON_HOST)
        on_host = on_host or bool(options.get("logit_bias") or options.get("forced_tokens"))

        def begin(model: LanguageModel) -> Responses:
            ahead = {} if on_host else {"lookahead": self._lookahead, "lookahead_tokens": self._lookahead_tokens}
            chosen: dict[str, Any] = {**ahead, **options, "keep_prefix": True}
            return stream_generate(model, self.tokenizer, ids, **chosen)

        return SerialRequest(ids, model, begin(model), begin, self._channel.open(self._forget))

    async def close(self, grace: float = 0) -> None:
        """Take no more requests, let those that are there end within `grace` seconds, and end the others.

        Example: `await engine.close(grace=30)`.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        last = time.monotonic() + grace
        while self.status.requests and time.monotonic() < last:
            await asyncio.sleep(_LOOK)
        with self._changed:
            left = [*self._waiting, *([] if self._running is None else [self._running])]
            self._waiting.clear()
            for request in left:
                request.answer.end(EngineClosed("the engine was closed before this answer ended; ask again"))
        await asyncio.to_thread(self._thread.join)

    # In the thread of the engine

    def _work(self) -> None:
        while (request := self._next()) is not None:
            failure: BaseException | None = None
            try:
                self._run(request)
            except BaseException as error:  # of this request alone: the next one begins anew
                failure = error
                self._recover()
            with self._changed:
                self._running, self._last_progress = None, time.monotonic()
            request.answer.end(failure)  # last: who has read it finds the engine free
        if self._owned:
            self._free()

    def _next(self) -> SerialRequest | None:
        """Wait for a request; None when the engine was closed and no request is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._running = self._waiting.popleft() if self._waiting else None
            return self._running

    def _run(self, request: SerialRequest) -> None:
        self._reopen_if_lost()
        start, answer = time.perf_counter(), request.answer
        # Prepared for a model that was lost since, it begins anew.
        source = request.source if request.model is self._model else request.begin(self._model)
        try:
            cached, computed = self._prefill(request)
            speed, count = 0.0, 0
            while not (answer.closed or answer.ended) and (response := next(source, None)) is not None:
                if not speed:
                    speed = (len(request.ids) - cached) / max(time.perf_counter() - start, 1e-9)
                    self._prompted += len(request.ids)
                self._generated += response.generation_tokens - count
                count = response.generation_tokens
                self._moved()
                # What was computed in chunks before is no reused prefix.
                answer.put(replace(response, prompt_tps=speed, cached_tokens=cached) if computed else response)
                self._channel.flush([answer])
        finally:
            source.close()

    def _prefill(self, request: SerialRequest) -> tuple[int, int]:
        """Prefill a long prompt but for its last chunk, waiting for each, so that closing it ends it within one.

        Returns the length of the reused prefix, and how many tokens were computed here.
        """
        model, ids, answer = self._model, request.ids, request.answer
        size = model.max_seq_len
        cached = done = truncate_to_prefix(model, ids)
        while len(ids) - done > size and not (answer.closed or answer.ended):
            model.prefill(ids[done : done + size])
            model.device.flush()
            done += size
            self._moved()
        return cached, done - cached

    def _moved(self) -> None:
        self._steps += 1
        self._last_progress = time.monotonic()

    def _recover(self) -> None:
        """After an error: an empty sequence, whatever it left."""
        with suppress(LiveshapeError):
            self._model.reset()

    def _reopen_if_lost(self) -> None:
        """After a device loss: another model; what fails here is told to the request, and the next one tries again."""
        if self._model.device.lost and self._reload is not None:
            self._free()
            self._model, self._lookahead = self._reload()

    def _free(self) -> None:
        """Close the model and its draft model."""
        draft = [self._lookahead[0]] if isinstance(self._lookahead, tuple) else []
        for model in (self._model, *draft):
            with suppress(LiveshapeError):
                model.close()

    # In the thread of a reader

    def _forget(self, answer: Answer) -> None:
        with self._changed:
            self._waiting = deque(request for request in self._waiting if request.answer is not answer)
