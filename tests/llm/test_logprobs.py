"""Log-probabilities in responses: torch's log_softmax of the model's own logits, whoever chooses the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import liveshape
from liveshape import llm
from liveshape.errors import InputError
from liveshape.llm.generation.logprobs import Logprobs, logprobs_of

STORY = Path(liveshape.__file__).parent / "demo" / "story"
BALL = "Tom had a red ball. Sue had a red ball. Tom had a red ball. Sue had"
COUNT = 3

Pair = tuple[llm.LanguageModel, llm.Tokenizer]


@pytest.fixture(scope="module")
def story() -> Iterator[Pair]:
    model, tokenizer = llm.load(STORY)
    with model:
        yield model, tokenizer


def expected(story: Pair, prompt: str, tokens: list[int]) -> list[Logprobs]:
    """By torch, from the logits of each position."""
    model, tokenizer = story
    ids = tokenizer.encode_prompt(prompt)
    model.reset()
    rows = model.evaluate([*ids, *tokens[:-1]])[len(ids) - 1 :]
    found = torch.log_softmax(torch.from_numpy(rows).double(), -1)
    values, places = found.topk(COUNT)
    tops = [
        tuple(zip(place, value, strict=True)) for place, value in zip(places.tolist(), values.tolist(), strict=True)
    ]
    return [Logprobs(float(row[token]), top) for row, token, top in zip(found, tokens, tops, strict=True)]


WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 0.9, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 5},
    "guesses": {"temperature": 0.0, "lookahead": "itself", "lookahead_tokens": 3},
    "guesses that are drawn": {"temperature": 0.7, "seed": 2, "lookahead": "itself"},
    "on the host": {"sampler": lambda logits: int(np.argsort(logits)[-2])},
    "processed": {"temperature": 0.0, "logits_processors": [lambda tokens, logits: -logits]},
}
QUICK = ("drawn", "guesses", "on the host")  # one on the device, one verified, one chosen here


@pytest.mark.parametrize("way", [pytest.param(way, marks=[] if way in QUICK else [pytest.mark.slow]) for way in WAYS])
def test_they_are_those_of_torch(story: Pair, way: str) -> None:
    stats = llm.Stats()
    options = {"max_tokens": 7, "stats": stats, **WAYS[way]}
    if "lookahead" in options:  # a fork, whose draft is accepted
        options["lookahead"] = story[0].fork()
    responses = list(llm.stream_generate(*story, BALL, logprobs=COUNT, **options))
    tokens = [response.token for response in responses]
    assert tokens == [response.token for response in llm.stream_generate(*story, BALL, **options)]
    assert stats.num_accepted_tokens > 0 or "lookahead" not in options
    for response, wanted in zip(responses, expected(story, BALL, tokens), strict=True):
        assert response.logprobs is not None
        np.testing.assert_allclose(response.logprobs.chosen, wanted.chosen, atol=1e-4)
        assert [token for token, _ in response.logprobs.top] == [token for token, _ in wanted.top]
        np.testing.assert_allclose(
            [each for _, each in response.logprobs.top], [each for _, each in wanted.top], atol=1e-4
        )


def test_a_text_that_goes_on_from_the_cache(story: Pair) -> None:
    model, tokenizer = story
    model.reset()
    model.prefill(tokenizer.encode_prompt(BALL))
    stream = model.stream([], llm.Sampling(), max_tokens=2, logits=True)
    assert [int(stream.logits.argmax()) for token in stream if token is not None] == [
        response.token for response in llm.stream_generate(*story, BALL, max_tokens=2, temperature=0.0)
    ]


def test_none_are_told_unless_they_are_asked_for(story: Pair) -> None:
    (response,) = llm.stream_generate(*story, BALL, max_tokens=1)
    assert response.logprobs is None
    (response,) = llm.stream_generate(*story, BALL, max_tokens=1, logprobs=0)
    assert response.logprobs is not None
    assert response.logprobs.top == ()
    for wrong in (-1, True, 1.5, story[0].vocab_size + 1, "3"):
        with pytest.raises(InputError, match="logprobs is a whole number from 0 to 4096"):
            llm.stream_generate(*story, BALL, logprobs=wrong)  # type: ignore[arg-type]


def test_ties_and_ends() -> None:
    logits = np.array([1.0, 2.0, 2.0, -np.inf, 0.0])
    assert [token for token, _ in logprobs_of(logits, 3, 5).top] == [1, 2, 0, 4, 3]
    assert [token for token, _ in logprobs_of(logits, 3, 1).top] in ([1], [2])
    assert logprobs_of(logits, 3, 0) == Logprobs(-np.inf)
    wide = np.random.default_rng(0).standard_normal(999).astype(np.float16)
    wanted = torch.log_softmax(torch.from_numpy(wide).double(), -1)
    found = logprobs_of(wide, 7, 999)
    np.testing.assert_allclose([each for _, each in found.top], sorted(wanted.tolist(), reverse=True))
    assert found.chosen == pytest.approx(float(wanted[7]))


@pytest.mark.parametrize("kind", ["last", "all", "opaque"])
@pytest.mark.parametrize("prompt", [1, 3, 11])
def test_a_stream_brings_the_logits_of_its_tokens_along(kind: str, prompt: int, opaque: llm.LanguageModel) -> None:
    """Programs that give logits of the last token, of every token, and whose state cannot go back."""
    from tests.llm.test_model import ALL, LAST
    from tests.support.llamas import program

    model = opaque if kind == "opaque" else llm.LanguageModel.load(program(LAST if kind == "last" else ALL))
    ids = (np.arange(prompt) % model.vocab_size).tolist()
    for lookahead in (None,) if kind == "opaque" else (None, "ngram"):
        model.reset()
        stream = model.stream(ids, llm.Sampling(), max_tokens=8, lookahead=lookahead, logits=True)
        tokens, rows = [], []
        for token in stream:
            tokens.append(token)
            rows.append(stream.logits)
        assert [int(row.argmax()) for row in rows] == tokens
        model.reset()
        expected = model.evaluate([*ids, *tokens[:-1]])[prompt - 1 :]
        np.testing.assert_allclose(np.stack(rows), expected, 1e-4, 1e-4)
    assert model.stream([], llm.Sampling(), max_tokens=1).logits is None
