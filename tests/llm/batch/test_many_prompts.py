"""Several prompts of one call: the texts that each has alone, in their order, from an engine and from a model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from liveshape.errors import InputError
from liveshape.llm import LanguageModel, Tokenizer, generate, many_prompts, open_engine, stream_generate
from liveshape.llm.serving.async_engine import AsyncEngine
from liveshape.shipped import shipped_model
from tests.survival.subjects import live_bytes

PROMPTS = ["Once upon a time", "Tom and", "Lily had a red ball. She liked", "The", "Once upon a time"]
OPTIONS: Any = {"max_tokens": 10, "temperature": 0.8, "seed": 3}


@pytest.fixture(scope="module")
def model() -> Iterator[LanguageModel]:
    with LanguageModel.load(shipped_model()) as made:
        yield made


@pytest.fixture(scope="module")
def engine() -> Iterator[AsyncEngine]:
    made = open_engine(shipped_model(), sequences=2)
    yield made
    asyncio.run(made.close())


def test_texts_are_those_of_each_alone(model: LanguageModel, engine: AsyncEngine) -> None:
    tokenizer = engine.tokenizer
    wanted = [generate(model, tokenizer, prompt, **OPTIONS) for prompt in PROMPTS]
    assert len(set(wanted)) == 4
    assert generate(engine, tokenizer, PROMPTS, **OPTIONS) == wanted
    assert generate(engine, tokenizer, PROMPTS[0], **OPTIONS) == wanted[0]
    # On a copy of the model, which leaves its own sequence alone.
    model.reset()
    model.prefill([5, 6, 7])
    before = live_bytes(model.device)
    assert generate(model, tokenizer, PROMPTS, **OPTIONS) == wanted
    assert model.tokens == (5, 6, 7)
    assert live_bytes(model.device) == before

    async def inside() -> None:
        assert generate(engine, tokenizer, PROMPTS[:2], **OPTIONS) == wanted[:2]

    asyncio.run(inside())


def test_one_after_the_other_where_it_must_be(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.load(shipped_model())

    def never(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(many_prompts, "_batched", never)
    wanted = [generate(model, tokenizer, prompt, max_tokens=3, temperature=0) for prompt in PROMPTS[:2]]
    assert generate(model, tokenizer, PROMPTS[:2], max_tokens=3, temperature=0, keep_prefix=True) == wanted
    assert generate(model, tokenizer, PROMPTS[:1], max_tokens=3, temperature=0) == wanted[:1]
    monkeypatch.setattr(many_prompts, "_batched", lambda *_: None)
    assert generate(model, tokenizer, PROMPTS[:2], max_tokens=3, temperature=0) == wanted


def test_what_is_wrong_is_told(model: LanguageModel, engine: AsyncEngine) -> None:
    with pytest.raises(InputError, match="a tokenizer of its own"):
        generate(engine, Tokenizer.load(shipped_model()), PROMPTS)
    with pytest.raises(InputError, match="temperature"):
        generate(engine, engine.tokenizer, PROMPTS, temperature=-1)
    with pytest.raises(InputError, match="vocabulary"):
        generate(model, engine.tokenizer, [[1], [1 << 20]])
    assert engine.status.requests == 0
    assert next(stream_generate(model, engine.tokenizer, "Once", max_tokens=1)).generation_tokens == 1
