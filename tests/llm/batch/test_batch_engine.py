"""Many sequences in one graph: each gets the tokens that it has alone, whatever runs beside it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import EngineClosed, InputError, QueueFull
from liveshape.llm import generate, stream_generate
from liveshape.llm.batch.loading import load_runner
from liveshape.llm.batch.pages import PageTable
from liveshape.llm.batch.scheduler import Sequence
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from tests.survival.subjects import live_bytes

PROMPTS = (
    "Once upon a time",
    "Once upon a time there was a little cat. The cat lived in a small house",
    "Tom and",
    "Lily had a red ball. She liked to play with the ball in the park every day. One day",
    "The",
)


@cache
def alone() -> tuple[LanguageModel, Tokenizer]:
    return LanguageModel.load(shipped_model()), Tokenizer.load(shipped_model())


@pytest.fixture(scope="module")
def engines() -> Iterator[Callable[..., BatchEngine]]:
    """Engines for a number of sequences and a size of the pool, each made once."""
    made: list[BatchEngine] = []

    @cache
    def engine_of(sequences: int = 4, pages: int | None = None, **options: Any) -> BatchEngine:
        _model, tokenizer = alone()
        page = 16 * 8 * 2 * 4 * 32 * 4  # rows, layers, keys and values, heads, head size, bytes
        size = None if pages is None else pages * page
        runner, description = load_runner(shipped_model(), device=open_device(), sequences=sequences, cache_bytes=size)
        if pages is not None:
            assert runner.bounds.pages == pages
        made.append(BatchEngine(runner, tokenizer, description, **options))
        return made[-1]

    yield engine_of
    for engine in made:
        asyncio.run(engine.close())


async def text_of(answer: AsyncGenerator[GenerationResponse, None]) -> str:
    return "".join([response.text async for response in answer])


def run(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(steps())


@pytest.mark.parametrize("prompts", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_texts_are_those_that_each_has_alone(engines: Callable[..., BatchEngine], prompts: int) -> None:
    engine = engines()
    options: list[dict[str, Any]] = [
        {"max_tokens": 12, "temperature": 0},
        {"max_tokens": 9, "temperature": 0.8, "seed": 3},
        {"max_tokens": 16, "temperature": 1.1, "top_k": 20, "top_p": 0.9, "seed": 5},
        {"max_tokens": 12, "repetition_penalty": 1.3, "temperature": 0},
        {"max_tokens": 24, "frequency_penalty": 1.2, "presence_penalty": 0.5, "temperature": 0},
        {"max_tokens": 24, "frequency_penalty": 0.9, "temperature": 0.9, "seed": 7, "lookahead": "ngram"},
        {"max_tokens": 9, "logit_bias": {5: 30, 6: 30}, "presence_penalty": 2, "temperature": 0.7, "seed": 8},
        {"max_tokens": 40, "stop": ["."], "temperature": 0},
        {"max_tokens": 16, "temperature": 0, "lookahead": "ngram"},
    ]
    pairs = [(prompt, each) for prompt in PROMPTS[:prompts] for each in options]
    wanted = [generate(*alone(), prompt, **each) for prompt, each in pairs]

    async def steps() -> None:
        before = engine.status.steps
        texts = await asyncio.gather(*(text_of(engine.generate(prompt, **each)) for prompt, each in pairs))
        assert list(texts) == wanted
        status = engine.status
        assert (status.running, status.waiting, status.pages_in_use) == (0, 0, 0)
        assert status.steps - before < sum(each["max_tokens"] for _, each in pairs) // 2

    run(steps)


@pytest.mark.slow  # random sequences on a small pool are in make test
def test_a_pool_that_is_too_small_for_all_serves_all(engines: Callable[..., BatchEngine]) -> None:
    engine = engines(pages=6)
    wanted = [generate(*alone(), prompt, max_tokens=40, temperature=0) for prompt in PROMPTS]

    async def steps() -> None:
        texts = await asyncio.gather(
            *(text_of(engine.generate(prompt, max_tokens=40, temperature=0)) for prompt in PROMPTS)
        )
        assert list(texts) == wanted
        assert engine._scheduler.preemptions > 0
        with pytest.raises(InputError, match="the pages of the cache hold 96"):
            engine.generate("Once " * 50)

    run(steps)


def test_cancelling_frees_and_disturbs_nobody(engines: Callable[..., BatchEngine]) -> None:
    engine = engines()
    wanted = generate(*alone(), PROMPTS[1], max_tokens=30, temperature=0)
    draw = random.Random(7)

    async def leave(prompt: str) -> None:
        answer = engine.generate(prompt, max_tokens=50)
        for _ in range(draw.randint(0, 6)):
            await anext(answer)
        await answer.aclose()

    async def steps() -> None:
        others = [asyncio.create_task(leave(draw.choice(PROMPTS))) for _ in range(12)]
        assert await text_of(engine.generate(PROMPTS[1], max_tokens=30, temperature=0)) == wanted
        await asyncio.gather(*others)
        while engine.status.requests:
            await asyncio.sleep(0.001)
        assert engine.status.pages_in_use == 0

    run(steps)


def test_log_probabilities_grammars_and_errors_are_each_ones_own(engines: Callable[..., BatchEngine]) -> None:
    engine = engines()
    wanted = [
        response.logprobs for response in stream_generate(*alone(), PROMPTS[0], max_tokens=6, temperature=0, logprobs=3)
    ]

    def fails(tokens: Any, logits: Any) -> Any:
        raise ValueError("of this request")

    async def steps() -> None:
        told = engine.generate(PROMPTS[0], max_tokens=6, temperature=0, logprobs=3)
        digits = engine.generate(PROMPTS[2], max_tokens=8, temperature=0, regex="[0-9]{4}")
        broken = engine.generate(PROMPTS[3], max_tokens=8, temperature=0, logits_processors=[fails])
        plain = asyncio.create_task(text_of(engine.generate(PROMPTS[4], max_tokens=8, temperature=0)))
        for wish in wanted:
            found = (await anext(told)).logprobs
            assert found is not None
            assert wish is not None
            assert [token for token, _ in found.top] == [token for token, _ in wish.top]
            np.testing.assert_allclose(found.chosen, wish.chosen, atol=1e-4)
        number = await text_of(digits)
        assert len(number) == 4
        assert number.isdigit()
        with pytest.raises(ValueError, match="of this request"):
            await text_of(broken)
        assert await plain == generate(*alone(), PROMPTS[4], max_tokens=8, temperature=0)

    run(steps)


def test_a_shared_beginning_is_computed_once(engines: Callable[..., BatchEngine]) -> None:
    engine = engines()
    beginning = alone()[1].encode(PROMPTS[3] * 3)[::-1]  # which no other test has
    cached: list[int] = []
    admit = engine._scheduler._admit

    def counting(sequence: Sequence, table: PageTable, length: int) -> None:
        cached.append(length)
        admit(sequence, table, length)

    async def steps() -> None:
        await text_of(engine.generate([*beginning, 7], max_tokens=2))
        many = [engine.generate([*beginning, 8 + each], max_tokens=2) for each in range(4)]
        await asyncio.gather(*(text_of(answer) for answer in many))

    engine._scheduler._admit = counting  # type: ignore[method-assign]
    try:
        run(steps)
    finally:
        engine._scheduler._admit = admit  # type: ignore[method-assign]
    whole = len(beginning) // 16 * 16
    assert whole > 32
    assert cached == [0, whole, whole, whole, whole]


def test_what_is_refused_is_refused_at_the_call(engines: Callable[..., BatchEngine]) -> None:
    engine = engines(sequences=1, max_waiting=1)

    async def steps() -> None:
        with pytest.raises(InputError, match="temperature"):
            engine.generate("Once", temperature=-1)
        with pytest.raises(InputError, match="lookahead is 'ngram' where sequences run together"):
            engine.generate("Once", lookahead=alone()[0])
        with pytest.raises(InputError, match="cannot verify"):
            engine.generate("Once", lookahead="ngram", regex="a+")
        with pytest.raises(InputError, match="lookahead_tokens"):
            engine.generate("Once", lookahead="ngram", lookahead_tokens=0)
        answers = [engine.generate("Once", max_tokens=200) for _ in range(2)]
        with pytest.raises(QueueFull):
            engine.generate("Once")
        await engine.close()
        for answer in answers:
            with pytest.raises(EngineClosed):
                await text_of(answer)
        with pytest.raises(EngineClosed):
            engine.generate("Once")

    run(steps)


@pytest.mark.slow  # tests/llm/batch/test_arrivals.py has a thousand, without texts
def test_arrivals_and_departures_compile_nothing_and_plan_little(engines: Callable[..., BatchEngine]) -> None:
    """The plan stays constant while sequences come and go: joining and leaving write bytes of tables."""
    engine = engines()
    draw = random.Random(3)

    async def some(count: int) -> None:
        for _ in range(count):
            answers = [
                engine.generate(
                    [draw.randint(4, 90) for _ in range(draw.randint(1, 40))], max_tokens=draw.randint(1, 6)
                )
                for _ in range(draw.randint(1, 6))
            ]
            await asyncio.gather(*(text_of(answer) for answer in answers))

    run(lambda: some(5))  # what the driver and the caches of plans need once
    executor = engine._runner.executor
    used, before = live_bytes(executor.device), replace(executor.device.counters)
    planned, steps = executor.live.planned, engine.status.steps
    run(lambda: some(12))
    after = executor.device.counters
    assert (after.pipelines, after.buffers) == (before.pipelines, before.buffers)
    assert live_bytes(executor.device) == used
    assert executor.live.planned - planned <= 8 * (engine.status.steps - steps)
