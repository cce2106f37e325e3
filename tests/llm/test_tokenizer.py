"""Text to ids and back, in the files and habits of transformers, and never half of a character."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liveshape import packages
from liveshape.errors import FormatError, InputError
from liveshape.llm.settings import GenerationSettings
from liveshape.llm.text.chat_template import ChatTemplate
from liveshape.llm.text.tokenizer import StreamDecoder, Tokenizer
from tests.llm.texts import CHAT_TEMPLATE, END, START, byte_level, chatty, plain, sentencepiece, write_folder

HELLO = [{"role": "user", "content": "how are you?"}]


def streamed(tokenizer: Tokenizer, ids: list[int], prompt: list[int] | None = None) -> list[str]:
    decoder = StreamDecoder(tokenizer, prompt or [])
    return [*(decoder.put(token) for token in ids), decoder.end()]


# Files


def test_a_folder_says_what_its_files_say(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path,
        tokenizer_config={"bos_token": {"content": START, "lstrip": False}, "eos_token": END, "chat_template": "old"},
        chat_template=CHAT_TEMPLATE,
        generation_config={"eos_token_id": [1, 7], "do_sample": True, "temperature": 0.6, "top_p": 0.9},
    )
    for path in (folder, folder / "model.pte", folder / "tokenizer.json"):
        tokenizer = Tokenizer.load(path)
        assert (tokenizer.bos_id, tokenizer.bos_token) == (0, START)
        assert tokenizer.eos_ids == {1, 7}
        assert tokenizer.chat_template == CHAT_TEMPLATE  # the .jinja file is asked first
        assert tokenizer.vocab_size == byte_level().get_vocab_size()
        assert tokenizer.generation == GenerationSettings(eos_ids=(1, 7), temperature=0.6, top_k=50, top_p=0.9)
    assert tokenizer.token(tokenizer.encode("the")[0]) == "the"


def test_templates_in_the_config_and_by_name(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | tojson }}"}]
    tokenizer = Tokenizer.load(write_folder(tmp_path, tokenizer_config={"chat_template": named}))
    assert tokenizer.apply_chat_template(HELLO, tokenize=False) == "plain"
    assert tokenizer.apply_chat_template(HELLO, tokenize=False, tools=[{"a": "<é>"}]) == '[{"a": "<é>"}]'
    assert tokenizer.apply_chat_template(HELLO, tokenize=False, chat_template="mine") == "mine"


def test_what_is_missing_or_broken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"tokenizer\.json does not exist"):
        Tokenizer.load(tmp_path)
    folder = write_folder(tmp_path / "folder", generation_config={"eos_token_id": "end"})
    with pytest.raises(FormatError, match="eos_token_id is the number of a token"):
        Tokenizer.load(folder)
    (folder / "generation_config.json").write_text("[]")
    with pytest.raises(FormatError, match="an object is expected, this is a list"):
        Tokenizer.load(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(FormatError, match=r"tokenizer\.json"):
        Tokenizer.load(folder)
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs tokenizers.*pip install 'liveshape\[llm\]'"):
        Tokenizer.load(folder)
    with pytest.raises(ImportError, match=r"needs jinja2.*pip install 'liveshape\[llm\]'"):
        ChatTemplate("x").render([])


def test_neither_truncation_nor_padding_of_a_file_counts(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    document = json.loads((folder / "tokenizer.json").read_text())
    document["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    (folder / "tokenizer.json").write_text(json.dumps(document))
    assert len(Tokenizer.load(folder).encode("Once upon a time there was a little cat")) > 4


# The beginning of a text


@pytest.mark.parametrize(("wish", "begins"), [(None, True), (True, True), (False, False)])
def test_the_beginning_is_as_the_config_wishes(wish: bool | None, begins: bool) -> None:
    config = {"bos_token": "<s>"} | ({} if wish is None else {"add_bos_token": wish})
    tokenizer = Tokenizer(sentencepiece(), config)
    assert (tokenizer.encode("Once")[0] == 1) is begins
    assert tokenizer.encode("Once", add_special_tokens=False)[0] != 1
    assert tokenizer.encode_prompt("<s>Once").count(1) == 1


def test_a_beginning_that_only_the_config_knows() -> None:
    tokenizer = Tokenizer(byte_level(), {"bos_token": START, "add_bos_token": True})
    assert tokenizer.encode("the")[:1] == [0]
    assert tokenizer.encode(START + "the") == [0, 0, *tokenizer.encode("the")[1:]]
    assert tokenizer.encode_prompt(START + "the") == tokenizer.encode_prompt("the")
    assert Tokenizer(byte_level()).encode_prompt("") == []
    assert plain().encode_prompt("") == [0]  # nothing but its beginning


# Chat templates


def test_a_chat_template_is_rendered_and_encoded() -> None:
    tokenizer = chatty()
    text = tokenizer.apply_chat_template(HELLO, tokenize=False)
    assert text == (f"{START}system\nBe kind{END}\n{START}user\nhow are you?{END}\n{START}assistant\n")
    ids = tokenizer.apply_chat_template(HELLO)
    assert tokenizer.decode(ids) == text
    assert ids.count(0) == 3  # special tokens in the text are single ids, and none is put before them
    assert not tokenizer.apply_chat_template(HELLO, add_generation_prompt=False, tokenize=False).endswith("assistant\n")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% for m in messages %}\n  {% if true %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}", "how are you?\n"),
        ("{{ bos_token }}{{ eos_token }}", START + END),
        ("{{ {'a': '<b>é'} | tojson }}", '{"a": "<b>é"}'),
        ("{{ {'a': 1} | tojson(indent=1) }}", '{\n "a": 1\n}'),
        ("{% for m in [1, 2, 3] %}{% if m == 2 %}{% break %}{% endif %}{{ m }}{% endfor %}", "1"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "how are you?"),
        ("{% if enable_thinking is defined and not enable_thinking %}quick{% endif %}", "quick"),
        ("{% set ns = namespace(n=0) %}{% set ns.n = 3 %}{{ ns.n }}", "3"),
    ],
)
def test_the_dialect_of_transformers(template: str, text: str) -> None:
    found = chatty().apply_chat_template(HELLO, tokenize=False, chat_template=template, enable_thinking=False)
    assert found == text


def test_a_template_knows_the_date() -> None:
    assert len(ChatTemplate("{{ strftime_now('%Y-%m-%d') }}").render([])) == 10


def test_a_template_cannot_reach_out() -> None:
    for template in (
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('no tools here') }}",
    ):
        with pytest.raises(InputError, match="the chat template refuses"):
            ChatTemplate(template).render([])
    with pytest.raises(InputError, match="no tools here"):
        ChatTemplate("{{ raise_exception('no tools here') }}").render([])
    with pytest.raises(FormatError, match="line 2"):
        ChatTemplate("\n{% if %}").render([])
    with pytest.raises(InputError, match="no chat template"):
        plain().apply_chat_template(HELLO)


# Streams


def test_a_character_in_several_tokens_comes_out_whole() -> None:
    tokenizer = plain()
    text = "the 😀 cat é 漢字 👩‍👩‍👧!"
    ids = tokenizer.encode(text)
    pieces = streamed(tokenizer, ids)
    assert len(ids) > len(text)  # so that there are splits to go wrong
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert "" in pieces
    assert pieces[0] == "the"


def test_an_unfinished_character_is_told_only_at_the_end() -> None:
    tokenizer = plain()
    ids = tokenizer.encode("cat 😀")[:-1]
    assert "\ufffd" not in "".join(streamed(tokenizer, ids)[:-1])
    assert "".join(streamed(tokenizer, ids)) == "cat \ufffd"
    continuation = tokenizer.encode("é")[1]  # a byte that begins nothing, for ever
    pieces = streamed(tokenizer, [continuation] * 50)
    assert "".join(pieces) == "\ufffd" * 50
    assert pieces.index("\ufffd" * 16) == 15


def test_special_tokens_are_silent() -> None:
    tokenizer = plain()
    ids = [0, *tokenizer.encode("the cat"), 1, *tokenizer.encode(" said")]
    assert "".join(streamed(tokenizer, ids)) == "the cat said"


def test_spaces_of_sentencepiece() -> None:
    tokenizer = Tokenizer(sentencepiece(), {"bos_token": "<s>"})
    ids = tokenizer.encode("Once cat,  cat é", add_special_tokens=False)
    assert "".join(streamed(tokenizer, ids)) == "Once cat,  cat é"
    cat = tokenizer.encode("cat", add_special_tokens=False)
    assert tokenizer.decode(cat) == "cat"
    assert "".join(streamed(tokenizer, cat, prompt=tokenizer.encode("Once"))) == " cat"  # it goes on
    assert "".join(streamed(tokenizer, cat, prompt=[1])) == "cat"  # it begins
    assert "".join(streamed(tokenizer, cat, prompt=[*tokenizer.encode("Once"), 2])) == "cat"
    assert "".join(streamed(tokenizer, [2, *cat], prompt=tokenizer.encode("Once"))) == " cat"
    assert "".join(tokenizer.decode_behind(each) for each in ids[:-2]) == " Once cat,  cat "
    assert tokenizer.decode_behind(ids[-1]) == "\N{REPLACEMENT CHARACTER}"  # a part of a character


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=40), st.text(max_size=8))
def test_a_stream_is_what_decode_says(text: str, before: str) -> None:
    for tokenizer in (plain(), Tokenizer(sentencepiece())):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids, skip_special_tokens=True)
    tokenizer = plain()
    prompt = tokenizer.encode(before)
    ids = tokenizer.encode(text)
    whole = tokenizer.decode([*prompt, *ids], skip_special_tokens=True)
    assert tokenizer.decode(prompt, skip_special_tokens=True) + "".join(streamed(tokenizer, ids, prompt)) == whole


@settings(deadline=None, max_examples=150)
@given(st.lists(st.integers(0, 255), max_size=12))
def test_any_bytes_come_through(values: list[int]) -> None:
    tokenizer = plain()
    alphabet = [index for index in range(360) if len(tokenizer.token(index) or "") == 1]
    ids = [alphabet[value] for value in values]
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


# Settings


def test_settings_are_recommended_and_can_be_overruled(tmp_path: Path) -> None:
    nothing = GenerationSettings.read(tmp_path / "generation_config.json")
    assert nothing == GenerationSettings()
    assert nothing.sampling(seed=3).greedy
    assert nothing.sampling(top_p=0.9).temperature == 1.0
    assert nothing.sampling(top_p=0.9, temperature=0).greedy
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6, "eos_token_id": 2, "top_k": 5}')
    assert GenerationSettings.read(tmp_path / "generation_config.json") == GenerationSettings(eos_ids=(2,))
    (tmp_path / "generation_config.json").write_text('{"do_sample": true, "top_k": 5, "repetition_penalty": 1.1}')
    found = GenerationSettings.read(tmp_path / "generation_config.json")
    assert (found.temperature, found.top_k, found.repetition_penalty) == (1.0, 5, 1.1)
    assert found.sampling(temperature=0.2, seed=4).temperature == 0.2
    assert found.sampling(seed=-1).seed != found.sampling().seed
