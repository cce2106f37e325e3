"""Speculative decoding of the shipped model: the same words, responses, stops and turns, and what was accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import liveshape
from liveshape import llm
from liveshape.errors import InputError
from liveshape.llm.engine.common_prefix import common_prefix
from liveshape.llm.engine.engine import logits_of
from liveshape.llm.generation.responses import speed_text
from liveshape.llm.generation.stats import Stats
from tests.llm.texts import FakeModel, plain, reciting

STORY = Path(liveshape.__file__).parent / "demo" / "story"
BALL = "Tom had a red ball. Sue had a red ball. Tom had a red ball. Sue had"
PROMPTS = [BALL, "Once upon a time", "Lily and Ben went to the park. They saw a big", 'The cat said, "', "One day"]

Pair = tuple[llm.LanguageModel, llm.Tokenizer]


@pytest.fixture(scope="module")
def story() -> Iterator[Pair]:
    model, tokenizer = llm.load(STORY)
    with model:
        yield model, tokenizer


def words(story: Pair, prompt: str, **options: Any) -> tuple[list[Any], Stats]:
    """Every response but for its times, and the statistics."""
    stats = Stats()
    responses = list(llm.stream_generate(*story, prompt, stats=stats, **options))
    return [(each.text, each.token, each.generation_tokens, each.finish_reason) for each in responses], stats


@pytest.mark.parametrize(
    "options",
    [{"temperature": 0.0}, {"temperature": 0.7, "top_p": 0.9, "seed": 5}],
    ids=str,
)
@pytest.mark.slow
def test_the_same_words(story: Pair, options: dict[str, Any]) -> None:
    for prompt in PROMPTS[:2]:
        expected, stats = words(story, prompt, max_tokens=14, **options)
        assert (stats.num_proposed_tokens, stats.num_accepted_tokens) == (0, 0)
        for count in (2, 15):
            got, stats = words(story, prompt, max_tokens=14, lookahead="ngram", lookahead_tokens=count, **options)
            assert got == expected
            assert stats.num_generated_tokens == 14
            assert 0 <= stats.num_accepted_tokens <= stats.num_proposed_tokens
            assert stats.num_proposed_tokens > 0 or prompt != BALL


@pytest.mark.slow
def test_the_same_words_over_prompts_and_lengths(story: Pair) -> None:
    other = story[0].fork(), story[1]
    for prompt in PROMPTS:
        for sampling in (
            {"temperature": 0.0, "repetition_penalty": 1.2, "frequency_penalty": 0.8},
            {"top_k": 20, "seed": 3},
        ):
            expected, _ = words(story, prompt, max_tokens=25, **sampling)
            for count, lookahead in ((1, "ngram"), (4, other), (15, "ngram")):
                got, _ = words(story, prompt, max_tokens=25, lookahead=lookahead, lookahead_tokens=count, **sampling)
                assert got == expected
    other[0].close()


def logits_by_rows(model: llm.LanguageModel, text: list[int], rows: int) -> Any:
    """The logits after each token but the first, of calls that verify so many of them."""
    model.reset()
    model.prefill(text[:1])
    session, found = model._session, []
    for begin in range(1, len(text), rows):
        chunk = text[begin : begin + rows]
        found.append(logits_of(session.verify(chunk, llm.Sampling(), True), len(chunk)))
        for token in chunk:
            session.accept(token, last=token is chunk[-1])
    return np.concatenate(found)


@pytest.mark.parametrize(("activations", "tokens"), [("float32", 16), pytest.param("int8", 60, marks=pytest.mark.slow)])
def test_texts_are_the_same_but_for_what_rounding_decides(story: Pair, activations: str, tokens: int) -> None:
    """What holds of both: where texts go apart, the two tokens are nearer than logits of one and of several rows are.

    With float32 that is last bits, so that they never do here. With int8 a last bit may turn a step of a row over.
    """
    model, tokenizer = story if activations == "float32" else llm.load(STORY, activations=activations)
    apart = 0
    prompts = ["Lily and Tom and Lily and Tom and Lily", "One day a cat and a dog and a cat and a dog"]
    for prompt in prompts[: 1 if activations == "float32" else 2]:
        ids = tokenizer.encode_prompt(prompt)
        model.reset()
        expected = list(model.stream(ids, max_tokens=tokens))
        model.reset()
        got = list(model.stream(ids, max_tokens=tokens, lookahead="ngram", lookahead_tokens=15))
        one = logits_by_rows(model, [*ids, *expected], 1)
        rounding = max(np.abs(logits_by_rows(model, [*ids, *expected], rows) - one).max() for rows in (2, 16))
        assert rounding < (1e-4 if activations == "float32" else 1.0)
        same = common_prefix(got, expected)
        if same < len(expected):
            apart += 1
            row = one[len(ids) + same - 2]
            assert row[expected[same]] - row[got[same]] <= 2 * rounding
    assert activations == "int8" or apart == 0
    if activations == "int8":
        model.close()


def test_a_stop_string_and_a_second_turn(story: Pair) -> None:
    other = story[0].fork(), story[1]  # says the same, so all draft tokens are accepted
    expected, _ = words(story, PROMPTS[1], max_tokens=12, temperature=0.0)
    said = "".join(text for text, *_ in expected)
    stop = said[len(said) // 2 :][:5]
    plainly, _ = words(story, PROMPTS[1], max_tokens=12, temperature=0.0, stop=stop)
    got, stats = words(story, PROMPTS[1], max_tokens=12, temperature=0.0, stop=stop, lookahead=other)
    assert got == plainly
    assert got[-1][3] == "stop"
    assert stats.num_accepted_tokens == stats.num_proposed_tokens > 0
    held = story[0].tokens
    chats = []
    for lookahead in (None, "ngram"):
        chat = llm.Conversation(*story)
        chats.append([chat.reply(text, max_tokens=4, temperature=0.0, lookahead=lookahead) for text in (BALL, " and")])
    assert chats[0] == chats[1]
    assert held != story[0].tokens
    other[0].close()


def test_the_speed_has_a_line_for_draft_tokens() -> None:
    response = llm.GenerationResponse("", 1, 5, 1.0, 9, 1.0, 0.1, "stop")
    assert len(speed_text(response, Stats()).splitlines()) == 2
    told = speed_text(response, Stats(num_proposed_tokens=1200, num_accepted_tokens=900)).splitlines()
    assert told[2] == "lookahead:  900 of 1,200 draft tokens accepted"


def test_what_drafts_must_know_the_same_tokens(story: Pair) -> None:
    model, tokenizer = story
    fake: Any = FakeModel(reciting([5, 6, 7], 1))
    with pytest.raises(
        InputError, match=r"the tokenizer of the model that guesses is another one \(\d+ tokens, here 4,096\)"
    ):
        llm.stream_generate(model, tokenizer, BALL, lookahead=(fake, plain()))
    with pytest.raises(InputError, match="a model and its tokenizer as `load` gives them"):
        llm.stream_generate(model, tokenizer, BALL, lookahead=(fake,))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="lookahead must be 'ngram' or a LanguageModel"):
        llm.stream_generate(model, tokenizer, BALL, lookahead="bigram")  # type: ignore[arg-type]
    for options in ({"sampler": lambda logits: 0}, {"logits_processors": [lambda tokens, logits: logits]}):
        with pytest.raises(InputError, match="lookahead cannot verify what sampler, logits_processors"):
            llm.stream_generate(model, tokenizer, BALL, lookahead="ngram", **options)
