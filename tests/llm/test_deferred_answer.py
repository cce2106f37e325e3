"""A grammar is compiled in a thread: the event loop of the caller goes on, whatever becomes of the answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest

from liveshape.errors import EngineClosed, InputError, QueueFull
from liveshape.llm.generation import preparing
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.serving.serial_engine import SerialEngine
from tests.llm.batch.fake_runner import FakeRunner, fake_engine
from tests.llm.texts import FakeModel, plain

PATIENCE = 1800


def following(tokens: list[int]) -> int:
    return ord("a") - 33 + len(tokens) % 2


def together(**options: Any) -> BatchEngine:
    return fake_engine(FakeRunner(following), plain(), **options)


def serial(**options: Any) -> SerialEngine:
    model: Any = FakeModel(following)
    return SerialEngine(model, plain(), **options)


async def text_of(answer: AsyncGenerator[GenerationResponse, None]) -> str:
    async with aclosing(answer):
        return "".join([response.text async for response in answer])


def run(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(steps(), PATIENCE))


@pytest.mark.parametrize("make", [together, serial])
def test_the_event_loop_goes_on_while_a_grammar_is_compiled(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    go, begun, compiled = threading.Event(), threading.Event(), preparing.grammar_of

    def held(json_schema: Any = None, regex: Any = None) -> Any:
        if regex is not None:
            begun.set()
            assert go.wait(PATIENCE)
        return compiled(json_schema, regex)

    monkeypatch.setattr(preparing, "grammar_of", held)

    async def steps() -> None:
        engine = make()
        constrained = asyncio.create_task(text_of(engine.generate([1], regex="[ab]{4}", max_tokens=9)))
        left = engine.generate([1], regex="[ab]{5}", max_tokens=9)
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        assert len(await text_of(engine.generate([1], max_tokens=3))) == 3
        await left.aclose()
        with pytest.raises(InputError, match="temperature"):
            engine.generate([1], regex="a", temperature=-1)
        with pytest.raises(InputError, match="one form"):
            engine.generate([1], regex="a", json_schema={})
        go.set()
        found = await constrained
        assert len(found) == 4
        assert set(found) <= set("ab")
        assert [each async for each in left] == []
        with pytest.raises(InputError, match="cannot be followed"):
            await text_of(engine.generate([1], regex="["))
        late = engine.generate([1], regex="a")
        await engine.close()
        with pytest.raises(EngineClosed):
            engine.generate([1], regex="a")
        await late.aclose()
        assert engine.status.requests == 0

    run(steps)


@pytest.mark.parametrize("make", [together, serial])
def test_a_grammar_that_is_compiled_holds_its_place_in_the_queue(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    go, compiled = threading.Event(), preparing.grammar_of

    def held(json_schema: Any = None, regex: Any = None) -> Any:
        if regex is not None:
            assert go.wait(PATIENCE)
        return compiled(json_schema, regex)

    monkeypatch.setattr(preparing, "grammar_of", held)

    async def steps() -> None:
        engine = make(max_waiting=2)
        forms = ["[", *["[ab]{4}"] * (getattr(engine, "max_sequences", 1) + 1)]
        answers = [engine.generate([1], regex=form, max_tokens=9) for form in forms]
        for options in ({"regex": "a"}, {}):
            with pytest.raises(QueueFull, match="2 requests may wait"):
                engine.generate([1], **options)
        go.set()
        found = await asyncio.gather(*map(text_of, answers), return_exceptions=True)
        assert isinstance(found[0], InputError)
        assert [len(text) for text in found[1:]] == [4] * len(found[1:])
        assert await text_of(engine.generate([1], regex="a", max_tokens=9)) == "a", "all places are free again"
        await engine.close()

    run(steps)
