"""Streams by `async for`: the same tokens and responses, while the event loop runs and no call waits for the device."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from liveshape import llm
from liveshape.errors import DeviceError, InputError
from liveshape.llm import Sampling
from liveshape.shipped import shipped_model

IDS = [1, 403, 407, 261]
Pair = tuple[llm.LanguageModel, llm.Tokenizer]


@pytest.fixture(scope="module")
def loaded() -> Iterator[Pair]:
    model, tokenizer = llm.load(shipped_model())
    with model:
        yield model, tokenizer


@pytest.fixture
def story(loaded: Pair) -> Pair:
    loaded[0].reset()
    return loaded


@pytest.fixture
def never_waits(loaded: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a page whose browser cannot suspend WebAssembly; what a stream left in flight is never read there."""

    def read(self: Any, staging: Any, nbytes: int) -> bytearray:
        raise DeviceError("this browser cannot wait")

    monkeypatch.setattr(type(loaded[0].device), "read", read)


async def listed(stream: Any) -> list[Any]:
    return [each async for each in stream]


def about(response: llm.GenerationResponse) -> tuple[Any, ...]:
    return response.text, response.token, response.generation_tokens, response.finish_reason, response.logprobs


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, seed=3)], ids=["greedy", "sampled"])
def test_tokens(story: Pair, sampling: Sampling, request: pytest.FixtureRequest) -> None:
    model, _ = story
    expected = list(model.stream(IDS, sampling, max_tokens=12))
    model.reset()
    request.getfixturevalue("never_waits")
    stream = model.stream(IDS, sampling, max_tokens=12)
    assert asyncio.run(listed(stream)) == expected
    assert stream.finish_reason == "length"
    assert list(model.tokens) == [*IDS, *expected[:-1]]


OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.7, "top_p": 0.9, "seed": 5},
    {"temperature": 0.0, "lookahead": "ngram"},
    {"temperature": 0.0, "stop": "."},
    {"temperature": 0.0, "keep_prefix": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_responses(story: Pair, options: dict[str, Any], request: pytest.FixtureRequest) -> None:
    prompt = "Tom had a red ball. Sue had a red ball. Tom had"
    expected = [about(each) for each in llm.stream_generate(*story, prompt, max_tokens=14, **options)]
    request.getfixturevalue("never_waits")
    found = asyncio.run(listed(llm.stream_generate(*story, prompt, max_tokens=14, **options)))
    assert [about(each) for each in found] == expected


def test_both_ways_in_turn(story: Pair) -> None:
    expected = [about(each) for each in llm.stream_generate(*story, "Once", max_tokens=9, temperature=0.0)]

    async def mixed() -> list[Any]:
        stream, found = llm.stream_generate(*story, "Once", max_tokens=9, temperature=0.0), []
        for _ in range(3):
            found += [next(stream), await anext(stream), await anext(stream)]
        assert await anext(stream, None) is None
        assert next(stream, None) is None
        return [about(each) for each in found]

    assert asyncio.run(mixed()) == expected


def test_a_stream_that_is_left(story: Pair) -> None:
    """Closed after any number of responses, also when only its prompt was begun."""
    model, _ = story
    expected = list(model.stream(IDS, max_tokens=6))

    async def left(count: int) -> None:
        stream = llm.stream_generate(*story, IDS, temperature=0.0, max_tokens=20)
        for _ in range(count):
            await anext(stream)
        await stream._generation.arrive()
        stream.close()
        assert [each async for each in stream] == []

    for count in (0, 1, 4):
        asyncio.run(left(count))
        model.reset()
        assert list(model.stream(IDS, max_tokens=6)) == expected


def test_a_stream_that_is_closed_before_it_begins(story: Pair) -> None:
    model, _ = story
    model.prefill(IDS)
    stream = llm.stream_generate(*story, "Once", max_tokens=9)
    stream.close()
    assert asyncio.run(listed(stream)) == []
    assert list(model.tokens) == IDS, "nothing was begun"


def test_another_use_between_two_tokens(story: Pair) -> None:
    model, _ = story

    async def used() -> None:
        stream = model.stream(IDS, max_tokens=9)
        await anext(stream)
        await stream.arrive()
        model.prefill([403])
        await stream.arrive()
        await anext(stream)

    with pytest.raises(InputError, match="used otherwise"):
        asyncio.run(used())


def test_forks_in_turn(story: Pair) -> None:
    """Each swaps the other out between two tokens, with steps ahead of both."""
    model, _ = story
    prompts = (IDS, [1, 403, 407], [1, 261])
    expected = []
    for prompt in prompts:
        model.reset()
        expected.append(list(model.stream(prompt, max_tokens=8)))
    model.reset()

    async def together() -> list[list[int]]:
        forks = [model.fork() for _ in prompts]
        streams = [fork.stream(prompt, max_tokens=8) for fork, prompt in zip(forks, prompts, strict=True)]
        return await asyncio.gather(*map(listed, streams))

    assert asyncio.run(together()) == expected


def test_a_task_that_is_cancelled(story: Pair) -> None:
    """The token that it awaited is the next one, however it is read."""
    model, _ = story
    expected = list(model.stream(IDS, max_tokens=8))

    async def cancelled(turns: int) -> list[int]:
        stream = model.stream(IDS, max_tokens=8)
        task = asyncio.ensure_future(stream.arrive())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return [next(stream), await anext(stream), *stream]

    for turns in (0, 1, 2, 3):
        model.reset()
        assert asyncio.run(cancelled(turns)) == expected


def test_the_event_loop_runs_meanwhile(story: Pair) -> None:
    model, _ = story
    turns = 0

    async def turning() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        task = asyncio.create_task(turning())
        await listed(model.stream(IDS, max_tokens=5))
        task.cancel()

    asyncio.run(run())
    assert turns >= 5
