"""An asynchronous engine that runs many sequences in one graph: each step computes rows of all of them.

One thread owns the scheduler and the device. It submits steps before the tokens of the last one are read, several
where they are short, so that the device never waits for the host; a sequence that ends meanwhile has computed these
rows in vain.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeVar, Unpack

import numpy as np

from liveshape.errors import EngineClosed, InputError, LiveshapeError, QueueFull, counted
from liveshape.llm.arguments import LOOKAHEAD_TOKENS, draft_limit
from liveshape.llm.batch.kept_sequence import KeptSequence
from liveshape.llm.batch.pages import PagePool
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.batch.scheduler import Piece, Scheduler, Sequence, Step
from liveshape.llm.engine.speculative import NGRAM, ForcedDrafts, Lookahead, Ngrams
from liveshape.llm.engine.step_period import StepPeriod
from liveshape.llm.generation.assembling import Assembler
from liveshape.llm.generation.host_stream import HostChooser
from liveshape.llm.generation.options import NAMES, GenerationOptions, Prompt
from liveshape.llm.generation.preparing import Preparation, check_verifiable, prepare
from liveshape.llm.generation.prompts import ContextError
from liveshape.llm.generation.stats import Stats
from liveshape.llm.program.token_graph import Description
from liveshape.llm.serving.answer_channel import Answer, AnswerChannel
from liveshape.llm.serving.async_engine import MAX_WAITING, EngineFacts, EngineStatus
from liveshape.llm.serving.deferred_answer import DeferredAnswer, Reservations, deferred
from liveshape.llm.serving.engine_lifetime import EngineLifetime
from liveshape.llm.serving.queued_answer import LOCAL, QueuedAnswer
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.option_names import checks_options
from liveshape.run.pending import Pending

Found = TypeVar("Found")
Call = Callable[[Scheduler, BatchRunner], Any]
# What belongs to a single sequence and its KV cache, or reads a stream in the caller's thread.
_SINGLE = ("streamer", "stats")
_LOOK = 0.02  # seconds between two looks at whether all requests have ended


class BatchRequest:
    """A request that was accepted: its sequence, its options, and where its responses go."""

    def __init__(
        self,
        given: Preparation,
        assembler: Assembler,
        answer: Any,
        lookahead: Lookahead | ForcedDrafts | None,
        continues: KeptSequence | None,
        keeps_all: bool,
    ) -> None:
        self.given, self.assembler, self.answer = given, assembler, answer
        self.sequence = Sequence(
            given.ids,
            len(given.ids) + given.limit,
            on_host=given.chooser is not None,
            lookahead=lookahead,
            keeps_all=keeps_all or given.sampling.penalized,
            continues=continues,
            request=self,
        )

    @property
    def wants_logits(self) -> bool:
        """Whether the logits of its tokens must come to the host."""
        return self.given.chooser is not None or self.given.logprobs is not None


class BatchEngine(EngineLifetime):
    """Runs requests together on a thread of its own; at most `max_waiting` of them wait for pages or rows.

    It owns the runner. `lookahead` is that of requests that do not say, unless their tokens are chosen on the host.
    `reload` makes another runner after the device was lost: requests that had begun end with the error, the others are
    served. Responses go through `channel`.

    Example: `async for response in engine.generate("Once upon a time"): print(response.text, end="")`.
    """

    def __init__(
        self,
        runner: BatchRunner,
        tokenizer: Tokenizer,
        description: Description,
        *,
        max_waiting: int = MAX_WAITING,
        prompt_rows: int | None = None,
        lookahead: Literal["ngram"] | None = None,
        lookahead_tokens: int = LOOKAHEAD_TOKENS,
        reload: Callable[[], BatchRunner] | None = None,
        channel: AnswerChannel = LOCAL,
    ) -> None:
        self._runner, self.tokenizer, self._description = runner, tokenizer, description
        self._channel = channel
        self._max_waiting, self._prompt_rows, self._reload = max_waiting, prompt_rows, reload
        self._lookahead, self._lookahead_tokens = lookahead, draft_limit(lookahead_tokens)
        self._kept: list[KeptSequence] = []
        self._pool, self._scheduler = self._emptied()
        self._memory = runner.memory
        self._changed = threading.Condition()  # of a lock that its holder may take again
        self._reserved = Reservations(self._changed, self._check_room)
        self._arrived: deque[BatchRequest] = deque()
        self._left: deque[BatchRequest] = deque()  # whose readers want no more, while they run
        self._requests: dict[Any, BatchRequest] = {}  # those that have not ended
        self._calls: deque[tuple[Call, Future[Any]]] = deque()
        self._flights: deque[tuple[Step, Pending]] = deque()  # steps whose tokens are not read yet
        self._period = StepPeriod(runner.device.latency)
        self._closing = self._stopped = False
        self._generated = self._prompted = self._steps = 0
        self._last_progress = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="liveshape batch engine", daemon=True)
        self._thread.start()

    @property
    def max_context(self) -> int:
        """The most tokens of one sequence."""
        return min(self._description.max_context, self._scheduler.longest)

    @property
    def trained_context(self) -> int | None:
        """The context length that the model was trained for, if its file says."""
        return self._description.trained_context

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary."""
        return self._description.vocab_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The EOS tokens, as the file lists them."""
        return self._description.eos_ids

    @property
    def bos_id(self) -> int | None:
        """The BOS token, if there is one."""
        return self._description.bos_id

    @property
    def max_sequences(self) -> int:
        """The most sequences that run at once."""
        return self._scheduler.sequences

    @property
    def facts(self) -> EngineFacts:
        """What the engine is."""
        return EngineFacts(
            sequences=self.max_sequences,
            pages=self._pool.count,
            context=self.max_context,
            trained_context=self.trained_context,
            cache_bytes=self._memory.state,
            device=self._runner.device.name,
            activations=self._runner.origin.activations,
        )

    @property
    def status(self) -> EngineStatus:
        """What the engine does now."""
        with self._changed:
            running = len(self._scheduler.running)
            return EngineStatus(
                running=running,
                waiting=len(self._requests) - running,
                pages_in_use=self._pool.in_use,
                pages=self._pool.count,
                generated_tokens=self._generated,
                prompt_tokens=self._prompted,
                steps=self._steps,
                last_progress=self._last_progress,
            )

    @checks_options(*NAMES)
    def generate(
        self,
        prompt: Prompt,
        *,
        continues: KeptSequence | None = None,
        keeps_all: bool = False,
        **options: Unpack[GenerationOptions],
    ) -> QueuedAnswer | DeferredAnswer:
        """Queue a request; `AsyncEngine.generate` says what raises here, and what closing it does.

        `continues` is what an `EngineSequence` keeps: token ids that the prompt begins with. With `keeps_all` no page
        behind a window is given back.

        Example: `async for response in engine.generate("Once upon a time"): print(response.text, end="")`.
        """
        prepare = partial(self._request, continues=continues, keeps_all=keeps_all)
        return deferred(self._prepared, prepare, self._queued, self._reserved, prompt, options)

    def _request(
        self, prompt: Prompt, *, continues: KeptSequence | None, keeps_all: bool, **options: Unpack[GenerationOptions]
    ) -> BatchRequest:
        """A validated request, in any thread."""
        prepared, drafting = self._prepared(prompt, **options)
        assembler = Assembler(self.tokenizer, prepared, self._memory.total / 1e9)
        answer: QueuedAnswer = self._channel.open(self._leave)
        request = BatchRequest(prepared, assembler, answer, drafting, continues, keeps_all)
        self._scheduler.check(request.sequence)
        return request

    def _queued(self, request: BatchRequest) -> QueuedAnswer:
        try:
            self._queue(request)
            answer: QueuedAnswer = request.answer
            return answer
        except BaseException:  # an interrupt, too: nobody will read the answer
            self._leave(request.answer)
            raise

    def _prepared(
        self, prompt: Prompt, **options: Unpack[GenerationOptions]
    ) -> tuple[Preparation, Lookahead | ForcedDrafts | None]:
        """The validated options of a request, and its speculative decoding."""
        given: dict[str, Any] = {**options}
        given.pop("keep_prefix", None)  # every sequence shares the pages of its prefix
        lookahead = given.pop("lookahead", None), given.pop("lookahead_tokens", self._lookahead_tokens)
        single = next((name for name in _SINGLE if given.pop(name, None) is not None), None)
        if single is not None:
            raise InputError(f"{single} is for one sequence at a time; leave it out, or use stream_generate")
        try:
            prepared = prepare(self, self.tokenizer, prompt, Stats(), **given)
        except ContextError as error:
            if error.tokens > self._description.max_context:
                raise
            raise InputError(
                f"the prompt is {error.length} long, the pages of the cache hold {error.context:,}: "
                "shorten the prompt, or give the cache more memory (cache_bytes, --cache-size)"
            ) from error
        return prepared, self._drafting(prepared, *lookahead)

    def _queue(self, request: BatchRequest) -> None:
        with self._changed:
            self._check_room()
            if not self._requests:
                self._last_progress = time.monotonic()
            self._requests[request.answer] = request
            self._arrived.append(request)
            self._changed.notify_all()

    def _check_room(self) -> None:
        if self._closing:
            raise EngineClosed("the engine was closed and takes no more requests")
        if len(self._requests) + self._reserved.count >= self._max_waiting + self.max_sequences:
            waiting = counted(self._max_waiting, "request")
            raise QueueFull(f"{waiting} may wait behind those that run, and so many do: ask again later")

    def _drafting(self, given: Preparation, wanted: Any, tokens: Any) -> Lookahead | ForcedDrafts | None:
        """Speculative decoding of a request, if it or the engine asks for it; forced tokens are computed together."""
        most = draft_limit(tokens)
        if wanted is None and given.forced:
            return ForcedDrafts(given.forced, len(given.ids))
        if wanted is None:
            wanted = self._lookahead if given.chooser is None else None
        elif wanted == NGRAM:
            check_verifiable(given.chooser)
        else:
            raise InputError(f"lookahead is 'ngram' where sequences run together, {wanted!r} was given")
        return None if wanted is None else Lookahead(Ngrams(), most)

    def _leave(self, answer: Answer) -> None:
        """The reader wants no more: what waits is free at once, what runs before the next step is made, since the
        thread of the engine may be at work on its pages."""
        with self._changed:
            request = self._requests.get(answer)
            if request is None:
                return
            if request.sequence.table is None:
                self._end(request)
            else:
                self._left.append(request)

    def locked(self, change: Callable[[Scheduler], Found]) -> Found:
        """Look at the scheduler or change it while no step is made.

        Example: `engine.locked(lambda scheduler: scheduler.kept.append(kept))`.
        """
        with self._changed:
            return change(self._scheduler)

    async def hash_model(self) -> None:
        """Compute the checksum of the model that saved rows carry, in a thread: steps go on meanwhile.

        Example: `await engine.hash_model()`.
        """
        origin = self._runner.origin
        await asyncio.to_thread(lambda: origin.checksum)

    async def between_steps(self, call: Callable[[Scheduler, BatchRunner], Found]) -> Found:
        """Call a function of the scheduler and the runner in the thread of the engine, between two steps.

        Example: `rows = await engine.between_steps(lambda scheduler, runner: read_rows(runner, table, 20))`.
        """
        future: Future[Found] = Future()
        with self._changed:
            if self._closing:
                raise EngineClosed("the engine was closed and takes no more requests")
            self._calls.append((call, future))
            self._changed.notify_all()
        return await asyncio.wrap_future(future)

    async def close(self, grace: float = 0) -> None:
        """Take no more requests, let those that are there end within `grace` seconds, and end the others.

        Example: `await engine.close(grace=30)`.
        """
        with self._changed:
            self._closing = True
        last = time.monotonic() + grace
        while self.status.requests and time.monotonic() < last:
            await asyncio.sleep(_LOOK)
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        await asyncio.to_thread(self._thread.join)

    # In the thread of the engine

    def _work(self) -> None:
        try:
            while self._wait():
                self._reopen_if_lost()
                self._run_calls()
                try:
                    self._step()
                except Exception as error:  # of the device or of a bug: no sequence can go on from here
                    self._fail(error)
        finally:
            with self._changed:
                self._closing = True
                closed = EngineClosed("the engine was closed before this answer ended; ask again")
                self._end_all(closed)
                for _, future in self._calls:
                    if future.set_running_or_notify_cancel():
                        future.set_exception(closed)
            with suppress(LiveshapeError):
                self._runner.close()

    def _emptied(self) -> tuple[PagePool, Scheduler]:
        """A pool of pages that nobody has, and the scheduler of nothing."""
        bounds, window = self._runner.bounds, self._runner.window
        pool = PagePool(bounds.pages, bounds.page_size)
        for kept in self._kept:
            kept.table = None  # of the pool before
        return pool, Scheduler(pool, bounds.rows, bounds.sequences, self._prompt_rows, window, self._kept)

    def _wait(self) -> bool:
        """Wait for something to do, and take arrivals and departures; False when the engine is to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._requests or self._flights or self._calls or self._stopped)
            if self._stopped:
                return False
            while self._arrived:
                request = self._arrived.popleft()
                if request.answer in self._requests:  # and has not left since
                    self._scheduler.add(request.sequence)
            while self._left:
                self._end(self._left.popleft())
            return True

    def _run_calls(self) -> None:
        """Make the calls that wait for a moment between two steps."""
        while self._calls:
            call, future = self._calls.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call(self._scheduler, self._runner))
                except BaseException as error:  # of this call alone
                    future.set_exception(error)

    def _step(self) -> None:
        """Submit steps ahead, then read the one before them."""
        while len(self._flights) <= self._steps_ahead():
            with self._changed:
                step = self._scheduler.schedule()
            if step is None:
                break
            requests: list[BatchRequest] = [piece.sequence.request for piece in step.pieces for _ in piece.lines]
            logits = any(request.wants_logits for request in requests)
            samplings = [request.given.sampling for request in requests]
            self._flights.append((step, self._runner.submit(step, samplings, logits)))
        if self._flights:
            self._read(*self._flights.popleft())
            self._period.tick()

    def _steps_ahead(self) -> int:
        """How many steps may be in flight behind the one that is read next.

        One, while prompts are computed, so that arrivals wait for little, or while a sequence needs its tokens read.
        """
        running = self._scheduler.running
        alike = all(each.missing <= 1 and not each.on_host and each.lookahead is None for each in running)
        return self._period.steps_ahead(self._runner.device.steps_ahead) if alike else 1

    def _read(self, step: Step, pending: Pending) -> None:
        """Give the tokens of a step to their requests."""
        token, *brought = pending.result()
        sampled = [int(each) for each in token.reshape(-1)]
        rows = brought[0].reshape(-1, brought[0].shape[-1]) if brought else None
        for piece in step.pieces:
            request: BatchRequest = piece.sequence.request
            if piece.line is not None and request.given.chooser is not None and not piece.sequence.done:
                assert rows is not None
                try:
                    _choose(request.given.chooser, piece, rows, sampled)
                except BaseException as error:  # of a grammar or a callable of this request alone
                    self._end(request, error)
        with self._changed:
            got = self._scheduler.read(step, sampled)
            self._steps += 1
            self._last_progress = time.monotonic()
        for sequence, lines in got:
            request = sequence.request
            try:
                for line in lines:
                    if not sequence.done:  # an end may come before the last draft token that was accepted
                        self._respond(request, sampled[line], None if rows is None else rows[line])
            except Exception as error:  # of the text of this request alone
                self._end(request, error)
        self._channel.flush(sequence.request.answer for sequence, _ in got)

    def _respond(self, request: BatchRequest, token: int, logits: Any) -> None:
        self._generated += 1
        chooser, assembler = request.given.chooser, request.assembler
        if assembler.count == 0:
            assembler.cached = request.sequence.cached
            self._prompted += len(request.given.ids)
        response = assembler.put(token, logits, chooser is not None and chooser.complete)
        if response.finish_reason is not None:
            with self._changed:
                # Draft tokens that were accepted after the end are none of the answer.
                del request.sequence.tokens[len(request.given.ids) + assembler.count :]
                if not request.answer.closed:  # or what it continues may go on otherwise
                    self._scheduler.keep(request.sequence)
        request.answer.put(response)  # last: who has read the end finds it kept
        if response.finish_reason is not None:
            self._end(request)

    def _end(self, request: BatchRequest, error: BaseException | None = None) -> None:
        """Free what a request has."""
        with self._changed:
            if self._requests.pop(request.answer, None) is not None:
                self._scheduler.finish(request.sequence)
        request.answer.end(error)

    def _end_all(self, error: Exception) -> None:
        """End every request; the next ones find an empty pool, whatever state the last step left it in."""
        with self._changed:
            ended = list(self._requests.values())
            self._requests.clear()
            self._arrived.clear()
            self._left.clear()
            self._flights.clear()
            self._pool, self._scheduler = self._emptied()
        for request in ended:
            request.sequence.done = True
            request.answer.end(error)

    def _fail(self, error: Exception) -> None:
        """End the requests that a step failed with. After a device loss those that had not begun wait for another
        device."""
        with self._changed:
            lost = self._reload is not None and self._runner.device.lost
            waiting = [each for each in self._requests.values() if lost and not each.sequence.admitted]
            for request in waiting:
                del self._requests[request.answer]
            self._end_all(error)
            self._requests.update((request.answer, request) for request in waiting)
            self._arrived.extend(waiting)

    def _reopen_if_lost(self) -> None:
        """After a device loss: another runner. What fails here is told to all who wait, and the next one tries again.

        Sequences that run meet the loss in their next step.
        """
        if self._reload is None or not self._runner.device.lost or self._scheduler.running:
            return
        try:
            with suppress(LiveshapeError):
                self._runner.close()
            self._runner = self._reload()
        except Exception as error:
            self._end_all(error)
            return
        with self._changed:
            self._memory = self._runner.memory
            self._pool, self._scheduler = self._emptied()
            self._flights.clear()
            self._arrived = deque(self._requests.values())
            for request in self._arrived:
                request.sequence.unread.clear()  # tokens that were lost with the device are sampled again


def _choose(chooser: HostChooser, piece: Piece, rows: Any, sampled: list[int]) -> None:
    """Choose the tokens of a piece on the host, up to the first that is no draft token."""
    tokens = list(piece.sequence.tokens)
    for line, draft in zip(piece.lines, (*piece.draft, None), strict=True):
        sampled[line] = chooser.choose(tokens, np.asarray(rows[line], np.float32))
        if sampled[line] != draft:
            return
        tokens.append(sampled[line])
