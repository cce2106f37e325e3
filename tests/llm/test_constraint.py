"""Text of a given form: whatever the logits say it is kept, a text that is complete ends, wrong forms are refused."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from liveshape import llm
from liveshape.errors import InputError
from liveshape.llm.generation.constraint import grammar_of
from liveshape.packages import MissingPackageError
from tests.llm.texts import END, FakeModel, chatty, plain

PROMPT = "Once upon a time"
CAT = {
    "type": "object",
    "properties": {
        "name": {"enum": ["Tom", "Ann"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "friends": {"type": "array", "items": {"enum": ["dog", "cat"]}, "maxItems": 2},
    },
    "required": ["name", "age", "friends"],
    "additionalProperties": False,
}


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingPackageError, match=r"needs llguidance, .*pip install 'liveshape\[constrain\]'"):
        llm.stream_generate(Dreaming(0), plain(), PROMPT, regex="yes|no")


class Dreaming(FakeModel):
    """Every token has a logit that chance made, the same at the same place of a text."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(lambda cache: 0, **options)
        self.seed = seed

    def logits(self) -> npt.NDArray[np.float32]:
        return np.random.default_rng([self.seed, self.position]).standard_normal(self.vocab_size).astype(np.float32)


def said(seed: int, tokenizer: llm.Tokenizer | None = None, **options: Any) -> tuple[str, str | None, list[int]]:
    model: Any = Dreaming(seed)
    responses = list(
        llm.stream_generate(model, tokenizer or plain(), PROMPT, seed=seed, **{"max_tokens": 400, **options})
    )
    tokens = [response.token for response in responses]
    return "".join(response.text for response in responses), responses[-1].finish_reason, tokens


@pytest.fixture
def library() -> Any:
    return pytest.importorskip("llguidance")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "top_k": 5}], ids=["greedy", "drawn"])
def test_whatever_a_model_dreams_of_the_text_has_the_form(seed: int, options: dict[str, Any]) -> None:
    text, reason, _ = said(seed, regex=r"([0-9]{3}-){2}[a-f]{4}😀?!", **options)
    assert re.fullmatch(r"([0-9]{3}-){2}[a-f]{4}😀?!", text)
    assert reason == "grammar"
    text, reason, _ = said(seed, json_schema={**CAT, "x-guidance": {"whitespace_flexible": False}}, **options)
    cat = json.loads(text)
    assert list(cat) == ["name", "age", "friends"]
    assert cat["name"] in ("Tom", "Ann")
    assert 0 <= cat["age"] <= 30
    assert reason == "grammar"


@pytest.mark.usefixtures("library")
def test_a_text_that_may_go_on_ends_as_the_model_wishes() -> None:
    end = plain().token_id(END)
    found = [said(seed, regex="[a-z]*") for seed in range(6)]
    assert all(re.fullmatch("[a-z]*", text) for text, _, _ in found)
    assert {reason for _, reason, _ in found} == {"stop"}
    assert all(tokens[-1] == end for _, _, tokens in found)
    # Without a token that ends a text there is nothing to wish for.
    text, reason, tokens = said(1, llm.Tokenizer(plain()._backend), regex="[a-z]*", max_tokens=30)
    assert (reason, len(tokens)) == ("length", 30)
    assert re.fullmatch("[a-z]+", text)


@pytest.mark.usefixtures("library")
def test_the_length_still_counts_and_stop_strings_do() -> None:
    assert said(1, regex="[ab]{50}", max_tokens=3)[1] == "length"
    text, reason, _ = said(1, regex="[ab]{50}", stop="b")
    assert (set(text) <= {"a"}, reason) == (True, "stop")


@pytest.mark.usefixtures("library")
def test_logits_of_the_caller_stay_within_the_form() -> None:
    wishes = plain().encode("no", add_special_tokens=False)

    def wish(tokens: Any, logits: Any) -> Any:
        return np.where(np.isin(np.arange(logits.size), wishes), 50, logits)

    assert said(3, regex="yes|no", logits_processors=[wish])[0] == "no"
    assert said(3, regex="yes|no", sampler=lambda logits: int(logits.argmax()))[0] in ("yes", "no")
    with pytest.raises(InputError, match="the sampler gave token 7, which leaves the form"):
        said(3, regex="yes|no", sampler=lambda logits: 7)


@pytest.mark.usefixtures("library")
def test_how_likely_a_token_was_is_the_models_own_word() -> None:
    model: Any = Dreaming(5)
    response = next(iter(llm.stream_generate(model, plain(), PROMPT, regex="yes|no", logprobs=1)))
    assert response.logprobs is not None
    model.reset()
    model.prefill(plain().encode(PROMPT))
    assert response.logprobs.top[0][0] == int(model.logits().argmax())
    assert response.logprobs.chosen < response.logprobs.top[0][1]


@pytest.mark.usefixtures("library")
def test_a_conversation_and_several_prompts() -> None:
    model: Any = Dreaming(2)
    talk = llm.Conversation(model, chatty())
    assert all(talk.reply("how are you?", regex="(well|ill)!") in ("well!", "ill!") for _ in range(2))
    assert len(talk.messages) == 4
    texts = llm.generate(model, plain(), ["Once", "upon"], regex="[01]{3}")
    assert all(re.fullmatch("[01]{3}", text) for text in texts)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"regex": "(yes"}, "regex cannot be followed: .*unclosed group"),
    ({"regex": 5}, "regex is a text"),
    ({"json_schema": "{"}, "json_schema is an object or its JSON text"),
    ({"json_schema": {"type": "nope"}}, "json_schema cannot be followed: Invalid type: nope"),
    ({"json_schema": [1]}, "json_schema is an object or true, list was given"),
    ({"json_schema": {"a": float("nan")}}, "json_schema is an object or its JSON text"),
    ({"json_schema": {"a": {1, 2}}}, "json_schema is an object or its JSON text"),
    ({"json_schema": {}, "regex": "a"}, "a text has one form"),
    ({"regex": "a", "lookahead": "ngram"}, "lookahead cannot verify"),
]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("place", range(len(WRONG)))
def test_forms_that_cannot_be(place: int) -> None:
    options, message = WRONG[place]
    model: Any = Dreaming(0)
    with pytest.raises(InputError, match=message):
        llm.stream_generate(model, plain(), PROMPT, **options)
    assert not model.computed


@pytest.mark.usefixtures("library")
def test_schemas_as_text() -> None:
    assert grammar_of('{"type": "integer"}') == grammar_of({"type": "integer"})
    assert grammar_of(True) is not None
    assert grammar_of() is None


class Spacing(FakeModel):
    """It likes white space above all, then whatever the dream says."""

    def logits(self) -> npt.NDArray[np.float32]:
        row = np.random.default_rng(self.position).standard_normal(self.vocab_size).astype(np.float32)
        for token in range(plain().vocab_size):
            if plain().decode([token]).isspace():
                row[token] = 100
        return row


@pytest.mark.usefixtures("library")
def test_a_model_that_loves_white_space_writes_json_all_the_same() -> None:
    model: Any = Spacing(lambda cache: 0)
    *_, last = responses = list(llm.stream_generate(model, plain(), PROMPT, json_schema=CAT, max_tokens=300))
    text = "".join(response.text for response in responses)
    assert last.finish_reason == "grammar"
    assert list(json.loads(text)) == ["name", "age", "friends"]
    assert not re.search(r"\s\s", text)
    # What a schema says about its spaces counts.
    own = grammar_of({**CAT, "x-guidance": {"whitespace_flexible": True}})
    assert own is not None
    assert "whitespace_pattern" not in own
