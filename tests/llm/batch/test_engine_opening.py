"""Engines as they are opened: together where the file allows it, one at a time for a reason, again after a loss."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from liveshape.device import backends
from liveshape.device.backends import open_device
from liveshape.errors import DeviceError, InputError, UnsupportedError
from liveshape.llm import generate, load, open_engine
from liveshape.llm.serving import engine_opening
from liveshape.llm.serving.async_engine import AsyncEngine
from liveshape.llm.serving.engine_opening import engine_from
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from tests.llm.batch.pausing import Pausing
from tests.llm.texts import FakeModel, plain, sentencepiece

PROMPT = "Once upon a time there was a"


async def told(engine: AsyncEngine, **options: Any) -> str:
    return "".join([each.text async for each in engine.generate(PROMPT, max_tokens=6, temperature=0, **options)])


def refuse(*given: Any, **options: Any) -> Any:
    raise UnsupportedError("its mask is spelled out")


def test_a_draft_model_of_another_vocabulary_is_refused_when_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []

    def model() -> Any:
        made: Any = FakeModel(lambda tokens: 0)
        made.close = lambda: closed.append(made)
        return made

    target, draft = model(), model()
    monkeypatch.setattr(engine_opening.LanguageModel, "load", lambda path, **options: target)
    monkeypatch.setattr(engine_opening.Tokenizer, "load", lambda path: plain())
    with pytest.raises(InputError, match="the tokenizer of the model that guesses is another one"):
        engine_from(lambda: nullcontext(Path("model")), lookahead=lambda: (draft, Tokenizer(sentencepiece())))
    assert closed == [target, draft]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sequences": 3, "cache_bytes": 1 << 20, "lookahead": "ngram"}, None),
        ({"lookahead": shipped_model()}, "speculative decoding with a draft model"),
        pytest.param({"sequences": 1}, "one sequence was asked for", marks=pytest.mark.slow),
        pytest.param({"refused": True}, "its mask is spelled out", marks=pytest.mark.slow),
    ],
    ids=["together", "lookahead", "one", "refused"],
)
def test_an_engine_says_what_it_is_and_the_same_text(
    options: dict[str, Any], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict(options)
    if given.pop("refused", False):
        monkeypatch.setattr(engine_opening, "load_runner", refuse)
    model, tokenizer = load(shipped_model())
    wanted = generate(model, tokenizer, PROMPT, max_tokens=6, temperature=0)
    model.close()

    async def steps() -> None:
        engine = open_engine(shipped_model(), **given)
        facts = engine.facts
        assert (facts.one_at_a_time or "").startswith(reason or "")
        assert (facts.one_at_a_time is None) == (reason is None)
        assert facts.sequences == (3 if reason is None else 1)
        assert facts.context == engine.max_context
        assert facts.activations == "float32"
        if reason is None:
            assert facts.pages == (1 << 20) // (16 * 8 * 2 * 4 * 32 * 4)
        assert await told(engine) == wanted
        await engine.close()

    asyncio.run(steps())


def test_what_cannot_be_opened_is_told_before_weights_are_read() -> None:
    with pytest.raises(InputError, match="at least one"):
        open_engine(shipped_model(), sequences=0)
    with pytest.raises(InputError, match="one page of 16 tokens takes"):
        open_engine(shipped_model(), cache_bytes=100)


@pytest.mark.parametrize("sequences", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_after_a_device_loss_the_model_is_opened_again(sequences: int, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def apart(choice: Any = None, **options: Any) -> Any:
        """A device of this test alone, which may be lost."""
        opened.append(open_device(choice, limits=open_device(choice).limits))
        return opened[-1]

    monkeypatch.setattr(backends, "open_device", apart)

    async def steps() -> None:
        engine = open_engine(shipped_model(), sequences=sequences, cache_bytes=1 << 20)
        before = await told(engine)
        pause = Pausing(1)
        answer = engine.generate(PROMPT, max_tokens=200, temperature=0, logits_processors=[pause])
        await anext(answer)
        await pause.reached()
        opened[-1]._device.destroy()
        pause.go_on()
        with pytest.raises(DeviceError, match="lost"):
            async for _ in answer:
                pass
        assert await told(engine) == before
        assert len(opened) == 2
        assert engine.status.pages_in_use == 0
        await engine.close()

    asyncio.run(steps())
