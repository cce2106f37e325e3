"""Vocabularies as tokenizers: bytes, digits, merges by score, special tokens."""

from __future__ import annotations

import json

import pytest

from liveshape.errors import FormatError, UnsupportedError
from liveshape.export.sources.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    build_tokenizer,
    merges_of_scores,
    tokenizer_files,
)

tokenizers = pytest.importorskip("tokenizers")


def byte_level(flavour: str = "smollm") -> Vocabulary:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = ["he", "ll", "hell", "hello", "Ġhello", "12", "23", "123"]
    merges = ["h e", "l l", "he ll", "hell o", "Ġ hello", "1 2", "2 3", "12 3"]
    tokens = ["<|end|>", "<mark>", *alphabet, *words]
    kinds = [CONTROL, USER_DEFINED, *[NORMAL] * (len(tokens) - 2)]
    return Vocabulary("gpt2", tokens, kinds, flavour, merges=merges, end=0, chat_template="{{ x }}")


def pieces(vocabulary: Vocabulary, text: str) -> list[str]:
    return list(build_tokenizer(vocabulary).encode(text).tokens)


def test_byte_level() -> None:
    assert pieces(byte_level(), "hello hello<|end|>") == ["hello", "Ġhello", "<|end|>"]
    assert pieces(byte_level(), "a<mark>b") == ["a", "<mark>", "b"]
    tokenizer = build_tokenizer(byte_level())
    text = "wörld 日本 🙂\n\t x"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize(
    ("flavour", "expected"),
    [
        ("smollm", ["1", "2", "3"]),
        ("qwen2", ["1", "2", "3"]),
        ("llama-bpe", ["123"]),
        ("gpt-2", ["123"]),
        ("glm4", ["123"]),
        ("gpt-4o", ["123"]),
    ],
)
def test_digits(flavour: str, expected: list[str]) -> None:
    assert pieces(byte_level(flavour), "123") == expected


def test_words_of_gpt_4o() -> None:
    split = build_tokenizer(byte_level("gpt-4o")).pre_tokenizer.pre_tokenize_str("HelloWorld's ABCd e.g./ 1234\n")
    words = ["Hello", "World's", "ĠABCd", "Ġe", ".g", "./", "Ġ", "123", "4", "Ċ"]
    assert [word for word, _ in split] == words


def test_files() -> None:
    files = dict(tokenizer_files(byte_level()))
    assert tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode()).encode("hello").tokens == ["hello"]
    assert json.loads(files["tokenizer_config.json"])["eos_token"] == "<|end|>"
    assert files["chat_template.jinja"] == b"{{ x }}"


def sentencepiece() -> Vocabulary:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    text = ["▁a", "ab", "▁", "a", "b", "c", "<", "0", "x", "4", "1", ">"]
    return Vocabulary(
        "llama",
        tokens + text,
        kinds + [NORMAL] * len(text),
        scores=[0.0] * len(tokens) + [-float(place) for place in range(len(text))],
        begin=1,
        end=2,
        adds_begin=True,
    )


def test_sentencepiece() -> None:
    assert pieces(sentencepiece(), "ab") == ["<s>", "▁a", "b"]  # ▁a has the better score
    assert pieces(sentencepiece(), "cab") == ["<s>", "▁", "c", "ab"]
    tokenizer = build_tokenizer(sentencepiece())
    for text in ("ab c", "é🙂a"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_text_never_becomes_a_byte() -> None:
    assert "<0x41>" not in pieces(sentencepiece(), "<0x41>")
    assert "<0xC3>" in pieces(sentencepiece(), "é")
    assert all("<0x" not in left + right for left, right in merges_of_scores(sentencepiece()))


def test_refusals() -> None:
    with pytest.raises(UnsupportedError, match="'tekken'"):
        build_tokenizer(byte_level("tekken"))
    with pytest.raises(UnsupportedError, match="of kind bert"):
        build_tokenizer(Vocabulary("bert", ["a"], [NORMAL]))
    with pytest.raises(FormatError, match="1 merges"):
        build_tokenizer(Vocabulary("gpt2", ["a", "b"], [NORMAL] * 2, "gpt-2", merges=["a b"]))
    with pytest.raises(FormatError, match="2 pieces, but 1 kinds"):
        Vocabulary("gpt2", ["a", "b"], [NORMAL])
