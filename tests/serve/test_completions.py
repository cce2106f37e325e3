"""/v1/completions of the shipped model: echo, best_of, suffix, and requests of all kinds beside each other."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from liveshape.errors import UnsupportedError
from liveshape.llm import open_engine
from liveshape.llm.generation.logprobs import logprobs_of
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.text.fill_in import fill_in_ids
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from tests.llm.texts import byte_level
from tests.serve.serving import Served, served

PROMPTS = ("Once upon a time", "Lily had a red ball. She liked to", "Tom and", "The")


@pytest.fixture(scope="module")
def story() -> Iterator[Served]:
    engine = open_engine(shipped_model(), sequences=8, chat_template="{{ messages[-1]['content'] }}")
    with served(engine) as server:
        yield server


def told(server: Served, **body: Any) -> Any:
    return server.told("/v1/completions", {"prompt": PROMPTS[0], "temperature": 0, "max_tokens": 6, **body})


def streamed(server: Served, **body: Any) -> list[dict[str, Any]]:
    """The choices of a stream, joined."""
    _, _, content = server.ask("/v1/completions", {"stream": True, **body})
    made: dict[int, dict[str, Any]] = {}
    for line in content.decode().split("\n\n"):
        if line.startswith("data: {"):  # neither a ping nor the end
            (choice,) = json.loads(line.removeprefix("data: "))["choices"]
            known = made.setdefault(choice["index"], {"index": choice["index"], "text": "", "logprobs": None})
            known["text"] += choice["text"]
            known["finish_reason"] = choice["finish_reason"]
            for name, values in (choice["logprobs"] or {}).items():
                known["logprobs"] = known["logprobs"] or {}
                known["logprobs"][name] = known["logprobs"].get(name, []) + values
    return [made[index] for index in sorted(made)]


def test_the_prompt_is_told_with_its_log_probabilities(story: Served) -> None:
    ids = story.engine.tokenizer.encode_prompt(PROMPTS[1])
    with LanguageModel.load(shipped_model()) as model:
        logits = model.evaluate(ids)
    expected = [logprobs_of(row, token, 2) for row, token in zip(np.asarray(logits), ids[1:], strict=False)]
    plain = told(story, prompt=PROMPTS[1], logprobs=2)["choices"][0]
    for body in ({"prompt": PROMPTS[1]}, {"prompt": ids}):
        (choice,) = told(story, **body, logprobs=2, echo=True)["choices"]
        rows = choice["logprobs"]
        assert choice["text"] == PROMPTS[1] + plain["text"]
        assert rows["token_logprobs"][0] is None
        assert rows["top_logprobs"][0] is None
        np.testing.assert_allclose(
            rows["token_logprobs"][1 : len(ids)], [each.chosen for each in expected], rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(
            [max(each.values()) for each in rows["top_logprobs"][1 : len(ids)]],
            [each.top[0][1] for each in expected],
            rtol=1e-4,
            atol=1e-4,
        )
        np.testing.assert_allclose(rows["token_logprobs"][len(ids) :], plain["logprobs"]["token_logprobs"], atol=1e-4)
        assert rows["text_offset"] == np.cumsum([0, *map(len, rows["tokens"])])[:-1].tolist()
    only = told(story, prompt=PROMPTS[1], logprobs=2, echo=True, max_tokens=0)
    assert only["choices"][0]["text"] == PROMPTS[1]
    assert only["choices"][0]["finish_reason"] == "length"
    np.testing.assert_allclose(
        only["choices"][0]["logprobs"]["token_logprobs"][1:], rows["token_logprobs"][1 : len(ids)], 1e-4
    )
    assert only["usage"] == {"prompt_tokens": len(ids), "completion_tokens": 0, "total_tokens": len(ids)}


@pytest.mark.parametrize("most", [0, 5])
@pytest.mark.parametrize("logprobs", [None, 1])
def test_an_echo_streams(story: Served, most: int, logprobs: int | None) -> None:
    body = {"prompt": list(PROMPTS[:3]), "echo": True, "max_tokens": most, "n": 2, "seed": 4, "logprobs": logprobs}
    whole = story.told("/v1/completions", body)["choices"]
    alike(streamed(story, **body), whole)
    assert [each["text"].startswith(PROMPTS[place // 2]) for place, each in enumerate(whole)] == [True] * 6


def alike(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """The same texts, with the same log-probabilities but for last bits."""
    assert [{**each, "logprobs": None} for each in found] == [{**each, "logprobs": None} for each in wanted]
    for one, other in ((one["logprobs"], other["logprobs"]) for one, other in zip(found, wanted, strict=True)):
        assert (one is None) == (other is None)
        if one is not None:
            assert (one["tokens"], one["text_offset"]) == (other["tokens"], other["text_offset"])
            np.testing.assert_allclose(likelihoods(one), likelihoods(other), atol=1e-3)


def likelihoods(rows: dict[str, Any]) -> list[float]:
    """All numbers of some rows; 1 where there is none, which is above all."""
    tops = [number for each in rows["top_logprobs"] if each is not None for number in sorted(each.values())]
    return [1.0 if each is None else each for each in rows["token_logprobs"]] + tops


def test_the_best_texts_are_those_of_the_highest_mean_log_probability(story: Served) -> None:
    body: dict[str, Any] = {"temperature": 1.2, "max_tokens": 8, "seed": 3, "logprobs": 0}
    all_of_them = told(story, **body, n=5)["choices"]

    def mean(choice: dict[str, Any]) -> float:
        return float(np.mean(choice["logprobs"]["token_logprobs"]))

    best = sorted(all_of_them, key=mean, reverse=True)[:2]
    found = told(story, **body, n=2, best_of=5)
    assert [each["text"] for each in found["choices"]] == [each["text"] for each in best]
    assert [each["index"] for each in found["choices"]] == [0, 1]
    assert found["usage"]["completion_tokens"] == 40
    assert told(story, **{**body, "logprobs": None}, best_of=5)["choices"][0]["text"] == best[0]["text"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 99}, "best_of"),
        ({"prompt": ["a"] * 6, "best_of": 3}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"suffix": "The end."}, "suffix"),
        ({"suffix": 5}, "suffix"),
        ({"echo": "yes"}, "echo"),
        ({"frequency_penalty": 3}, "frequency_penalty"),
        ({"logit_bias": {"-1": 4}}, "logit_bias"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(story: Served, given: dict[str, Any], field: str) -> None:
    status, _, content = story.ask("/v1/completions", {"prompt": "a", **given})
    assert (status, json.loads(content)["error"]["param"]) == (400, field)


def test_what_says_nothing_is_taken_everywhere(story: Served) -> None:
    nothing = {"frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, "stop": None}
    plain = told(story, echo=False, suffix="", best_of=1, **nothing)["choices"]
    assert plain == told(story)["choices"]
    chat = {"messages": [{"role": "user", "content": PROMPTS[0]}], "max_tokens": 3, "temperature": 0}
    for route in ("/v1/chat/completions", "/v1/messages"):
        assert story.told(route, {**chat, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}})


def test_a_text_between_two_others() -> None:
    tokenizer = Tokenizer(byte_level())
    with pytest.raises(UnsupportedError, match="fill-in-the-middle"):
        fill_in_ids(tokenizer, "a", "b")
    for names, order in (
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), "{0}ab{1}cd{2}"),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), "{0}ab{1}cd{2}"),
        (("[SUFFIX]", "[PREFIX]"), "{0}cd{1}ab"),
    ):
        backend = Backend.from_str(byte_level().to_str())
        backend.add_special_tokens([AddedToken(name, special=True) for name in names])
        tokenizer = Tokenizer(backend)
        expected = tokenizer.encode(order.format(*names))
        assert fill_in_ids(tokenizer, "ab", "cd") == expected
        assert fill_in_ids(tokenizer, tokenizer.encode("ab", add_special_tokens=False), "cd") == expected


COLOURS = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}


def drawn(draw: random.Random) -> dict[str, Any]:
    """A request of any kind, with a seed."""
    body: dict[str, Any] = {
        "prompt": draw.choice([*PROMPTS, list(PROMPTS[:2])]),
        "max_tokens": draw.randint(1, 14),
        "temperature": draw.choice([0, 0.7, 1.3]),
        "seed": draw.randint(0, 1 << 20),
    }
    chosen: dict[str, Any] = {
        "frequency_penalty": draw.uniform(-0.5, 2),
        "presence_penalty": draw.uniform(-0.5, 2),
        "repetition_penalty": draw.uniform(0.9, 1.5),
        "logit_bias": {str(draw.randint(0, 4095)): draw.uniform(-100, 12) for _ in range(draw.randint(0, 5))},
        "top_k": draw.randint(1, 50),
        "top_p": draw.uniform(0.3, 1),
        "stop": draw.choice([".", [" the", " a"]]),
        "logprobs": draw.randint(0, 5),
        "echo": True,
        "n": draw.randint(1, 3),
        "best_of": draw.randint(3, 4),
        "response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": COLOURS, "strict": True}},
        "stream": True,
    }
    body |= {name: value for name, value in chosen.items() if draw.random() < 0.35}
    if body.get("stream"):
        body.pop("best_of", None)
    return body


def answered(server: Served, body: dict[str, Any]) -> list[dict[str, Any]]:
    if body.get("stream"):
        return streamed(server, **body)
    choices: list[dict[str, Any]] = server.told("/v1/completions", body)["choices"]
    return choices


def test_requests_of_all_kinds_are_answered_beside_each_other_as_alone(story: Served) -> None:
    draw = random.Random(int(os.environ.get("LIVESHAPE_SEED", "1")))
    bodies = [drawn(draw) for _ in range(int(os.environ.get("LIVESHAPE_REQUESTS", "12")))]
    alone = [answered(story, body) for body in bodies]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda body: answered(story, body), bodies))
    for body, one, other in zip(bodies, alone, together, strict=True):
        try:
            alike(other, one)
        except AssertionError as error:
            raise AssertionError(json.dumps(body)) from error
