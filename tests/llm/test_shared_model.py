"""Threads that generate with one model: each text is whole, or the one that was disturbed says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from liveshape.errors import InputError
from liveshape.llm import generate, stream_generate
from liveshape.llm.text.tokenizer import Tokenizer
from tests.llm.texts import FakeModel, plain

IDS = {"a": [5, 6, 7], "b": [9, 10, 11, 12]}


def counting(cache: list[int]) -> int:
    """The token after a text is told by all of it; slowly, so that others come in between."""
    time.sleep(0.0005)
    return 20 + (sum(cache) * 7 + len(cache)) % 300


@pytest.fixture
def tokenizer() -> Tokenizer:
    return plain()


def test_whole_texts_in_two_threads(tokenizer: Tokenizer) -> None:
    model: Any = FakeModel(counting)
    expected = {name: generate(model, tokenizer, ids, max_tokens=12) for name, ids in IDS.items()}
    assert expected["a"] != expected["b"]
    wrong: list[str] = []

    def work(name: str) -> None:
        for _ in range(8):
            if generate(model, tokenizer, IDS[name], max_tokens=12) != expected[name]:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in IDS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1800)
    assert wrong == []


def test_the_beginning_of_a_text_is_not_parted(tokenizer: Tokenizer) -> None:
    """Truncate and prefill are under one lock: nothing of another text is between."""
    model: Any = FakeModel(counting)
    begins: list[tuple[int, ...]] = []

    def slow(ids: Any, *args: Any, **named: Any) -> Iterator[int]:
        time.sleep(0.002)
        begins.append((*model.tokens, *ids))
        model.prefill(ids)
        return iter([30])

    model.stream = slow

    def work(name: str) -> None:
        for _ in range(10):
            next(stream_generate(model, tokenizer, IDS[name], max_tokens=4))

    threads = [threading.Thread(target=work, args=(name,)) for name in IDS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1800)
    assert sorted(set(begins)) == sorted(tuple(ids) for ids in IDS.values())


def test_a_text_chosen_on_the_host_says_that_it_was_disturbed(tokenizer: Tokenizer) -> None:
    model: Any = FakeModel(counting)
    responses = stream_generate(model, tokenizer, IDS["a"], max_tokens=9, sampler=lambda logits: int(logits.argmax()))
    next(responses)
    next(responses)
    model.prefill([3])
    with pytest.raises(InputError, match="used otherwise since the last token of this text"):
        next(responses)
