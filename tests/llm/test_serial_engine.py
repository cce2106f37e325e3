"""The engine of one sequence at a time: first come, first served, each request alone with its errors, all free at the
end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from liveshape.errors import DeviceError, EngineClosed, InputError, QueueFull
from liveshape.llm.generation.generating import stream_generate
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.serving.serial_engine import SerialEngine
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from tests.llm.texts import FakeModel, plain

A = ord("a")


class Gate:
    """A model's next token, which waits at a closed gate."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()

    def __call__(self, cache: list[int]) -> int:
        self.reached.set()
        assert self.open.wait(1800)
        return A + len(cache) % 20


def run(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(steps())


def engine_of(following: Callable[[list[int]], int], **options: Any) -> tuple[Any, SerialEngine]:
    model: Any = FakeModel(following)
    return model, SerialEngine(model, plain(), **options)


async def whole(answer: AsyncGenerator[GenerationResponse, None]) -> list[int]:
    return [response.token async for response in answer]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_requests_are_answered_in_order_with_their_own_tokens() -> None:
    async def steps() -> None:
        order: list[int] = []

        def following(cache: list[int]) -> int:
            order.append(cache[0])
            return A + cache[0]

        _, engine = engine_of(following)
        answers = [engine.generate([10 + each], max_tokens=3) for each in range(8)]
        told = await asyncio.gather(*(whole(answer) for answer in answers))
        assert told == [[A + 10 + each] * 3 for each in range(8)]
        assert order == [10 + each for each in range(8) for _ in range(3)]
        status = engine.status
        assert (status.running, status.waiting, status.pages_in_use) == (0, 0, 0)
        assert (status.generated_tokens, status.prompt_tokens) == (24, 8)
        await engine.close()

    run(steps)


def test_what_is_invalid_raises_at_the_call() -> None:
    async def steps() -> None:
        model, engine = engine_of(lambda cache: A)
        with pytest.raises(InputError, match="temperature"):
            engine.generate("Hi", temperature=-1)
        with pytest.raises(InputError, match="context of this model is 512"):
            engine.generate([A] * 600)
        assert engine.status.requests == 0
        assert model.computed == []
        await engine.close()
        with pytest.raises(EngineClosed):
            engine.generate("Hi")

    run(steps)


def test_a_full_queue_refuses_and_takes_again_when_one_has_ended() -> None:
    async def steps() -> None:
        gate = Gate()
        _, engine = engine_of(gate, max_waiting=1)
        first = engine.generate([1], max_tokens=2)
        await until(gate.reached.is_set)
        second = engine.generate([2], max_tokens=2)
        with pytest.raises(QueueFull, match="1 request may wait"):
            engine.generate([3])
        assert (engine.status.running, engine.status.waiting) == (1, 1)
        gate.open.set()
        await whole(first)
        await whole(second)
        assert len(await whole(engine.generate([3], max_tokens=2))) == 2
        await engine.close()

    run(steps)


def test_closing_a_request_that_waits_frees_it_before_a_response_was_read() -> None:
    async def steps() -> None:
        gate = Gate()
        model, engine = engine_of(gate)
        first, second, third = (engine.generate([each], max_tokens=2) for each in (1, 2, 3))
        await until(gate.reached.is_set)
        await second.aclose()
        assert engine.status.waiting == 1
        gate.open.set()
        assert len(await whole(first)) == len(await whole(third)) == 2
        assert await whole(second) == []
        assert model.computed == [[1], [3]]
        await engine.close()

    run(steps)


def test_closing_a_request_among_its_tokens_ends_it_alone() -> None:
    async def steps() -> None:
        _, engine = engine_of(lambda cache: A)
        first, second = engine.generate([1], max_tokens=400), engine.generate([2], max_tokens=3)
        async for _ in first:
            break
        await first.aclose()
        assert len(await whole(second)) == 3
        await until(lambda: engine.status.requests == 0)
        await engine.close()

    run(steps)


def test_closing_a_request_in_its_prompt_ends_it_at_the_next_chunk() -> None:
    async def steps() -> None:
        model, engine = engine_of(lambda cache: A)
        model.max_seq_len = 8
        reached, let = threading.Event(), threading.Event()

        def flush() -> None:
            reached.set()
            assert let.wait(1800)

        model.device.flush = flush
        answer = engine.generate(list(range(100)), max_tokens=4)
        await until(reached.is_set)
        await answer.aclose()
        let.set()
        await until(lambda: engine.status.requests == 0)
        assert model.computed == [list(range(8))]
        # What was computed is the prefix of the next one.
        assert len(await whole(engine.generate(list(range(10)), max_tokens=2))) == 2
        assert model.computed[1:] == [[8, 9]]
        await engine.close()

    run(steps)


def test_a_long_prompt_in_chunks_is_computed_once_and_its_speed_counts_all_of_it() -> None:
    async def steps() -> None:
        model, engine = engine_of(lambda cache: A)
        model.max_seq_len = 8
        told = [response async for response in engine.generate(list(range(20)), max_tokens=2)]
        assert [token for chunk in model.computed for token in chunk] == list(range(20))
        assert told[0].prompt_tps == told[1].prompt_tps > 0
        assert told[-1].prompt_tokens == 20
        await engine.close()

    run(steps)


def test_an_error_stays_with_its_request_after_what_was_said_before_it() -> None:
    async def steps() -> None:
        def following(cache: list[int]) -> int:
            if cache[0] == 2 and len(cache) == 3:
                raise DeviceError("injected")
            return A

        _, engine = engine_of(following)
        answers = [engine.generate([each], max_tokens=4) for each in (1, 2, 3)]
        assert len(await whole(answers[0])) == 4
        assert [(await anext(answers[1])).token for _ in range(2)] == [A, A]
        with pytest.raises(DeviceError, match="injected"):
            await anext(answers[1])
        assert len(await whole(answers[2])) == 4
        assert engine.status.requests == 0
        await engine.close()

    run(steps)


def test_after_a_device_loss_the_next_request_runs_on_another_model() -> None:
    async def steps() -> None:
        closed = []

        def dying(cache: list[int]) -> int:
            model.device.lost = True
            raise DeviceError("the device was lost")

        other: Any = FakeModel(lambda cache: A)
        model, engine = engine_of(dying, reload=lambda: (other, None))
        model.close = lambda: closed.append(model)
        first, waiting = engine.generate([1], max_tokens=2), engine.generate([2], max_tokens=2)
        with pytest.raises(DeviceError, match="lost"):
            await whole(first)
        assert await whole(waiting) == [A, A]
        assert engine.model is other
        assert closed == [model]
        await engine.close()

    run(steps)


def test_a_model_that_cannot_be_opened_again_is_tried_again_at_the_next_request() -> None:
    async def steps() -> None:
        other: Any = FakeModel(lambda cache: A)
        tries = iter([DeviceError("no adapter yet"), (other, None)])

        def reload() -> Any:
            found = next(tries)
            if isinstance(found, DeviceError):
                raise found
            return found

        model, engine = engine_of(lambda cache: A, reload=reload)
        model.close = lambda: None
        model.device.lost = True
        with pytest.raises(DeviceError, match="no adapter yet"):
            await whole(engine.generate([1], max_tokens=2))
        assert await whole(engine.generate([1], max_tokens=2)) == [A, A]
        await engine.close()

    run(steps)


def test_closing_lets_requests_end_within_the_grace_and_ends_the_others() -> None:
    async def steps() -> None:
        gate = Gate()
        _, engine = engine_of(gate)
        answer = engine.generate([1], max_tokens=3)
        closing = asyncio.create_task(engine.close(grace=60))
        await asyncio.sleep(0)
        with pytest.raises(EngineClosed):
            engine.generate([2])
        gate.open.set()
        assert len(await whole(answer)) == 3
        await closing

        gate = Gate()
        _, engine = engine_of(gate)
        running, waiting = engine.generate([1], max_tokens=300), engine.generate([2])
        await until(gate.reached.is_set)
        closing = asyncio.create_task(engine.close())
        for answer in (waiting, running):
            with pytest.raises(EngineClosed, match="before this answer ended"):
                await whole(answer)
        gate.open.set()
        await closing

    run(steps)


def test_a_stall_is_told_by_the_time_since_the_last_token() -> None:
    async def steps() -> None:
        gate = Gate()
        _, engine = engine_of(gate)
        idle = replace(engine.status, last_progress=0.0)
        assert idle.stalled_for(100.0) == 0
        answer = engine.generate([1], max_tokens=2)
        begun = engine.status.last_progress
        await until(gate.reached.is_set)
        assert engine.status.stalled_for(begun + 100.0) == pytest.approx(100.0)
        gate.open.set()
        await whole(answer)
        assert engine.status.last_progress > begun
        await engine.close()

    run(steps)


def test_lookahead_is_left_out_where_tokens_are_chosen_on_the_host() -> None:
    async def steps() -> None:
        model, engine = engine_of(lambda cache: A, lookahead="ngram", lookahead_tokens=3)
        await whole(engine.generate([1], max_tokens=2))
        await whole(engine.generate([1], max_tokens=2, sampler=lambda logits: A))
        await whole(engine.generate([1], max_tokens=2, json_schema={}))  # any JSON
        await whole(engine.generate([1], max_tokens=2, logits_processors=[]))
        assert model.lookaheads == [("ngram", 3)] * 2
        await engine.close()

    run(steps)


def test_texts_are_those_of_the_model_alone() -> None:
    """The shipped model, concurrently through the engine, and one after the other without it."""
    prompts = ["Once upon a time", "Once upon a day", "The little dog", "Once upon a time"]
    tokenizer = Tokenizer.load(shipped_model())
    with LanguageModel.load(shipped_model()) as model:
        alone = [
            [response.token for response in stream_generate(model, tokenizer, each, max_tokens=12, seed=3)]
            for each in prompts
        ]

        async def steps() -> None:
            engine = SerialEngine(model, tokenizer)
            answers = [engine.generate(each, max_tokens=12, seed=3) for each in prompts]
            assert await asyncio.gather(*(whole(answer) for answer in answers)) == alone
            await engine.close()

        run(steps)
