"""Whatever callers give to the calls of `liveshape.llm`, and whatever the files of a tokenizer hold: errors of ours."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from liveshape import llm
from liveshape.errors import FormatError, InputError
from liveshape.llm.generation.conversation import Conversation
from liveshape.llm.generation.host_sampling import host_sampler
from liveshape.llm.generation.prompts import prompt_ids
from liveshape.llm.generation.stopping import StopWatch
from liveshape.llm.sampling_settings import Sampling
from liveshape.llm.settings import GenerationSettings
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from tests.llm.texts import FakeModel, chatty, plain, reciting, sentencepiece, write_folder

NAN, INF = float("nan"), float("inf")


def model() -> Any:
    return FakeModel(reciting([5, 6, 7], 1))


# Sampling


@pytest.mark.parametrize("cold", [0, 0.0, -0.0, 1e-31, 1e-39, 1e-45, 5e-324, np.float32(1e-45), np.float64(0)])
def test_temperatures_too_small_to_divide_by_are_greedy(cold: Any) -> None:
    sampling = Sampling(temperature=cold, top_k=5)
    assert sampling.greedy
    assert sampling.temperature == 0.0


@pytest.mark.parametrize("warm", [1e-30, 1e-6, 1, np.float32(0.5), np.int64(2), 3e38, Fraction(1, 2)])
def test_other_temperatures_are_kept(warm: Any) -> None:
    sampling = Sampling(temperature=warm)
    assert not sampling.greedy
    assert type(sampling.temperature) is float
    assert sampling.temperature == float(warm)
    assert np.isfinite(np.float32(sampling.temperature))
    assert np.float32(sampling.temperature) > 0


def test_numbers_of_numpy_are_pythons() -> None:
    given = Sampling(np.float32(0.5), np.int32(3), np.float64(0.5), np.float16(0.25), np.int64(2), np.uint32(7))
    assert given == Sampling(0.5, 3, 0.5, 0.25, 2.0, 7)
    kinds = [float, int, float, float, float, int, float, float, int]
    assert [type(value) for value in vars(given).values()] == kinds


WRONG = [
    *(("temperature", value) for value in (-1, -1e-50, NAN, INF, -INF, 1e39, 10**400, "1", None, True, 1j, [1.0])),
    *(("temperature", value) for value in (np.float32("inf"), np.array([1.0]), np.bool_(True), torch.tensor(1.0))),
    *(("top_k", value) for value in (-1, 2.0, 1 << 31, 10**400, "5", None, False, np.float32(5), NAN)),
    *(("top_p", value) for value in (0, -0.1, 1.0001, NAN, INF, "0.9", None, True)),
    *(("min_p", value) for value in (-0.1, 1.0001, NAN, "0", None, False)),
    *(("repetition_penalty", value) for value in (0, -1, 1e-7, 1e7, 1e300, NAN, INF, "1", None, True)),
    *(("frequency_penalty", value) for value in (2.01, -2.01, NAN, INF, "1", None, True)),
    *(("presence_penalty", value) for value in (2.01, -2.01, NAN, INF, "1", None, True)),
    *(("seed", value) for value in (1 << 32, 10**400, 1.0, "1", True, NAN, [1], np.float64(1))),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=[f"{name}={str(value)[:12]}" for name, value in WRONG])
def test_settings_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name} must be .*was given"):
        Sampling(**{name: value})
    if value is None:
        return  # as recommended
    with pytest.raises(InputError, match=f"{name} must be .*was given"):
        llm.stream_generate(model(), plain(), [1], **{name: value})


def test_settings_on_the_host_at_their_ends() -> None:
    logits = np.array([1.0, 30.0, 29.0, -np.inf], np.float32)
    for temperature in (1e-45, 1e-30, 1e-6):
        assert host_sampler(Sampling(temperature))(np.array([0]), logits) == 1
    drawn = {host_sampler(Sampling(3e38, seed=seed))(np.array([0]), logits) for seed in range(60)}
    assert drawn == {0, 1, 2}
    broken = np.array([np.nan, 1.0, -np.inf], np.float32)
    for temperature in (0.0, 1.0):
        sample = host_sampler(Sampling(temperature))
        assert sample(np.array([0]), broken) == 1
        assert sample(np.array([0]), np.array([0.0, np.inf], np.float32)) == 1
        with pytest.raises(InputError, match="no token can be drawn"):
            sample(np.array([0]), np.full(3, -np.inf, np.float32))


# Prompts and options


class Shy:
    """An array that does not give its elements."""

    def tolist(self) -> Any:
        raise RuntimeError("no")


PROMPTS: list[Any] = [
    *(None, 5, 0.5, True, b"Hi", bytearray(b"Hi"), {"role": "user", "content": "Hi"}, {1, "a"}, itertools.count()),
    *([0.5], [1, 2.0], [NAN], [None], [True], [{"role": "user"}, 1], ["Hi", {}], object(), Shy()),
    *(np.array([0.5]), np.array([[1, 2]]), np.array(["a"]), np.array(1), torch.tensor([0.5]), torch.ones(1, 2).long()),
    *("\ud800", [10**30], [-1], [400], "lone \udfff half", (each for each in [1, 2])),
]


@pytest.mark.parametrize("place", range(len(PROMPTS)))
def test_what_is_no_prompt(place: int) -> None:
    with pytest.raises(InputError):
        llm.stream_generate(model(), plain(), PROMPTS[place])
    with pytest.raises(InputError):
        llm.generate(model(), plain(), PROMPTS[place])


@pytest.mark.parametrize(
    "ids", [(1, 2), range(1, 3), np.array([1, 2], np.uint8), torch.tensor([1, 2]), [np.int32(1), np.uint64(2)]]
)
def test_ids_of_many_kinds(ids: Any) -> None:
    found = prompt_ids(plain(), ids)
    assert found == [1, 2]
    assert all(type(token) is int for token in found)


OPTIONS = [
    *(("max_tokens", value) for value in ("5", 5.0, NAN, True, [5], 0, np.float32(5), b"5")),
    *(("stop", value) for value in (5, [""], "", [5], [None], ["a", ""], b"a", [b"a"], {"a": 1}, 0.5)),
    *(("sampler", value) for value in (5, "argmax", [max])),
    *(("logits_processors", value) for value in (5, "abc", [None], [max, 3])),
    *(("streamer", value) for value in (5, "stdout")),
    *(("stats", value) for value in (5, {}, "stats")),
    ("seed", "1"),
]


@pytest.mark.parametrize(("name", "value"), OPTIONS, ids=[f"{name}={value}" for name, value in OPTIONS])
def test_options_that_cannot_be(name: str, value: Any) -> None:
    used = model()
    with pytest.raises(InputError, match=name.split("_")[0]):
        llm.stream_generate(used, plain(), [1], **{name: value})
    chat = Conversation(used, chatty())
    with pytest.raises(InputError, match=name.split("_")[0]):
        chat.ask("Hi", **{name: value})
    assert not used.computed


def test_options_that_can() -> None:
    for options in (
        {"max_tokens": np.int64(2)},
        {"max_tokens": 2, "stop": None},
        {"max_tokens": 2, "seed": np.int32(4)},
    ):
        assert len(list(llm.stream_generate(model(), plain(), [1], **options))) == 2
    assert len(list(llm.stream_generate(model(), plain(), [1], max_tokens=np.int8(-1), stop=("x",)))) == 512
    assert StopWatch("end").put("the end") == "the "


@pytest.mark.parametrize("drawn", [None, "1", 1.5, NAN, -1, 400, True, np.array([1, 2]), [1]])
def test_what_samplers_must_not_give(drawn: Any) -> None:
    with pytest.raises(InputError, match="a sampler must give a token"):
        list(llm.stream_generate(model(), plain(), [1], sampler=lambda logits: drawn))


@pytest.mark.parametrize("given", [None, "a", np.zeros(3), [[1.0], [1.0, 2.0]], 5])
def test_what_processors_must_not_give(given: Any) -> None:
    with pytest.raises(InputError, match="a logits processor must give"):
        list(llm.stream_generate(model(), plain(), [1], logits_processors=[lambda tokens, logits: given]))


@pytest.mark.parametrize("text", [None, 5, b"Hi", ["Hi"], {"role": "user"}, "\ud800"])
def test_what_is_no_message(text: Any) -> None:
    chat = Conversation(model(), chatty())
    with pytest.raises(InputError, match="the message"):
        chat.ask(text)
    with pytest.raises(InputError, match="the message"):
        chat.reply(text)
    assert chat.messages == []
    if text is not None:
        with pytest.raises(InputError, match="the system prompt"):
            Conversation(model(), chatty(), system=text)


@pytest.mark.parametrize("path", [None, 5, b"\0", "a\0b", ["model"], 0.5])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(InputError, match="path"):
        llm.load(path)
    with pytest.raises(InputError, match="path"):
        Tokenizer.load(path)


@pytest.mark.parametrize("ids", [None, "abc", [None], ["1"], [-1], [1 << 32], -1, 10**30, [0.5], {1: 2}, [[1]]])
def test_what_cannot_be_decoded(ids: Any) -> None:
    with pytest.raises(InputError):
        plain().decode(ids)


def test_what_can_be_decoded() -> None:
    tokenizer = plain()
    ids = tokenizer.encode("Once upon")
    for given in (ids, tuple(ids), np.array(ids), torch.tensor(ids)):
        assert tokenizer.decode(given) == "Once upon"
    assert tokenizer.decode(np.int64(ids[0])) == tokenizer.decode(ids[0]) == tokenizer.decode(ids[:1])
    assert tokenizer.token(np.int64(ids[0])) == tokenizer.token(ids[0])
    assert tokenizer.token(10**30) is None
    for wrong in (None, b"Hi", 5, "\ud800"):
        with pytest.raises(InputError, match="what is encoded"):
            tokenizer.encode(wrong)  # type: ignore[arg-type]


# Files

JSON: list[Any] = [5, -1, 0.5, True, "text", [], ["a"], [5], {}, {"content": 5}, [[[]]], "\ud800", 10**30, NAN]
BAD_FIELDS: Mapping[str, Mapping[str, list[Any]]] = {
    "tokenizer_config": {
        "bos_token": [5, True, [], {}, {"content": 5}, "\ud800", ["a"]],
        "eos_token": [0.5, {"content": None}, [[]]],
        "add_bos_token": [5, "yes", [], {}],
        "chat_template": [5, True, {"a": "b"}, ["a"], [5], [{"name": "default"}], [{"name": 1, "template": ""}]],
    },
    "special_tokens_map": {"eos_token": [5, {}, [1]], "unk_token": [7]},
    "chat_template": {"chat_template": [5, [5], {"a": 1}]},
    "generation_config": {
        "bos_token_id": [-1, 0.5, "1", True, [1], {}, 10**30],
        "eos_token_id": [-1, 0.5, "2", True, {}, [0.5], [[1]], ["a"], [-1]],
        "do_sample": ["yes", 1, []],
        "repetition_penalty": [-1, "1", [], True, 1e300, NAN],
    },
}
CASES = [
    (file, field, value) for file, fields in BAD_FIELDS.items() for field, values in fields.items() for value in values
]


@pytest.mark.parametrize(
    "biases", [5, [1], "a", {"5": 1}, {-1: 1}, {99999: 1}, {True: 1}, {5: 101}, {5: NAN}, {5: "1"}, {5: None}, {1.5: 1}]
)
def test_biases_that_cannot_be(biases: Any) -> None:
    with pytest.raises(InputError, match="logit_bias"):
        llm.stream_generate(model(), plain(), [1], logit_bias=biases)


@pytest.mark.parametrize(("file", "field", "value"), CASES, ids=[f"{f}-{n}-{v!r:.12}" for f, n, v in CASES])
def test_a_field_of_another_kind_is_named(file: str, field: str, value: Any, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, **{file: {field: value}})
    with pytest.raises(FormatError, match=rf"{file}\.json: .*{field}"):
        Tokenizer.load(folder)


@pytest.mark.parametrize("field", ["temperature", "top_k", "top_p", "min_p"])
@pytest.mark.parametrize("value", ["1", [], {}, -5, NAN, True, 10**400])
def test_recommended_settings_that_cannot_be(field: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"do_sample": True, field: value}))
    with pytest.raises(FormatError, match=rf"generation_config\.json: {field} must be"):
        GenerationSettings.read(path)


FILES = ("tokenizer_config", "special_tokens_map", "generation_config", "chat_template", "tokenizer")
CONTENTS = (b"", b"[]", b"5", b'"a"', b"null", b"{", b"\xff\xfe", b"[" * 200_000, b'{"a":' * 200_000, b"{}" * 2, b"\0")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("content", CONTENTS, ids=[f"{content[:8]!r} of {len(content)}" for content in CONTENTS])
def test_files_that_are_no_tables(file: str, content: bytes, tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    (folder / f"{file}.json").write_bytes(content)
    with pytest.raises(FormatError, match=rf"{file}\.json"):
        Tokenizer.load(folder)


@pytest.mark.parametrize("value", JSON, ids=repr)
def test_any_field_of_any_kind_is_read_or_named(value: Any, tmp_path: Path) -> None:
    """Fields that nobody checks by name: what comes out works, or is an error of ours."""
    keys = ("bos_token", "pad_token", "add_bos_token", "chat_template", "odd_token", "model_max_length", "eos_token")
    for number, key in enumerate(keys):
        folder = write_folder(tmp_path / f"{number}", tokenizer_config={key: value})
        try:
            tokenizer = Tokenizer.load(folder)
            tokenizer.encode_prompt("Once")
            tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
        except (FormatError, InputError):
            continue


def test_a_template_that_is_no_text(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match=r"chat_template\.jinja"):
        Tokenizer.load(folder)


def test_a_tokenizer_that_panics_at_the_first_text(tmp_path: Path) -> None:
    """The library answers with an exception that is not even an Exception."""
    document = json.loads(sentencepiece().to_str())
    document["post_processor"]["special_tokens"] = {}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(FormatError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)


def test_a_tokenizer_with_any_value_anywhere(tmp_path: Path) -> None:
    document = json.loads(sentencepiece().to_str())
    fields = [(key,) for key in document] + [("model", key) for key in document["model"]]
    fields += [("post_processor", key) for key in document["post_processor"]]
    accepted = 0
    for number, (field, value) in enumerate(
        itertools.product(fields, (None, True, -1, "a", [], {}, [1], {"type": "BPE"}))
    ):
        changed = json.loads(json.dumps(document))
        (changed if len(field) == 1 else changed[field[0]])[field[-1]] = value
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(changed))
        try:
            tokenizer = Tokenizer.load(path)
            tokenizer.decode([*tokenizer.encode_prompt("Once upon <s> 😀"), 0, 300])
            accepted += 1
        except (FormatError, InputError):
            continue
    assert accepted


def test_a_model_and_its_tokenizer_in_the_other_order() -> None:
    for use, given in ((llm.generate, ["Once"]), (llm.stream_generate, ["Once"]), (llm.Conversation, [])):
        with pytest.raises(
            InputError, match=r"a model and then its tokenizer are expected, Tokenizer and .*; swap them"
        ):
            use(plain(), model(), *given)  # type: ignore[operator]
        with pytest.raises(InputError, match=r"tuple and str were given; `model, tokenizer = load\(path\)` gives both"):
            use((model(), plain()), "Once", *given)  # type: ignore[operator]


def test_the_backend_of_a_load_is_that_of_its_device() -> None:
    with pytest.raises(InputError, match="there is no backend 'metal'"):
        llm.load(shipped_model(), backend="metal")
    used, _ = llm.load(shipped_model(), backend="wgpu")
    assert used.device.adapter.library == "wgpu"
    used.close()
