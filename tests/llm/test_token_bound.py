"""How few tokens a text can have is never more than it has, and a text that cannot fit is refused unencoded."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors

from liveshape.errors import InputError
from liveshape.llm import ContextError
from liveshape.llm.generation.prompts import fitting_ids
from liveshape.llm.text import long_texts
from liveshape.llm.text import tokenizer as module
from liveshape.llm.text.token_bound import TokenBound
from liveshape.llm.text.tokenizer import Tokenizer
from tests.llm.texts import START, byte_level, chatty, sentencepiece


def changed(made: tokenizers.Tokenizer, **parts: Any) -> Tokenizer:
    """A tokenizer with other parts, and added tokens."""
    copy = tokenizers.Tokenizer.from_str(made.to_str())
    for token in parts.pop("added", ()):
        copy.add_tokens([token])
    for name, part in parts.items():
        setattr(copy, name, part)
    return Tokenizer(copy)


def unigram(byte_fallback: bool) -> tokenizers.Tokenizer:
    pieces = [("<unk>", 0.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256)), ("▁", -2.0), ("ab", -1.0)]
    made = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=byte_fallback))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return made


def lossy(**options: Any) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(models.BPE({"a": 0, "<unk>": 1, "ab": 2, "b": 3}, [("a", "b")], **options))


WIDE = AddedToken("<wide>", lstrip=True, rstrip=True, normalized=False)
BOUNDED: dict[str, Callable[[], Tokenizer]] = {
    "bytes": lambda: Tokenizer(byte_level()),
    "fallback": lambda: Tokenizer(sentencepiece()),
    "composed": lambda: changed(byte_level(), normalizer=normalizers.NFC()),
    "compatible": lambda: changed(byte_level(), normalizer=normalizers.NFKC()),
    "stripped": lambda: changed(byte_level(), normalizer=normalizers.Strip()),
    "wide": lambda: changed(byte_level(), added=[WIDE]),
    "shorter": lambda: changed(byte_level(), normalizer=normalizers.Replace("abcd", "x")),
    "unigram": lambda: Tokenizer(unigram(byte_fallback=True)),
    "unknown": lambda: Tokenizer(lossy(unk_token="<unk>")),
    "decomposed": lambda: changed(
        byte_level(), normalizer=normalizers.NFKD(), added=[AddedToken("ﷺ", normalized=True)]
    ),
}
OPEN: dict[str, Callable[[], Tokenizer]] = {
    "fused": lambda: Tokenizer(lossy(unk_token="<unk>", fuse_unk=True)),
    "dropped": lambda: Tokenizer(lossy()),
    "unigram": lambda: Tokenizer(unigram(byte_fallback=False)),
    "words": lambda: Tokenizer(tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))),
    "regex": lambda: changed(byte_level(), normalizer=normalizers.Replace(Regex("a+"), "a")),
    "accents": lambda: changed(byte_level(), normalizer=normalizers.StripAccents()),
    "removed": lambda: changed(
        byte_level(),
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Split("a", "removed"), pre_tokenizers.ByteLevel()]),
    ),
    "rewritten": lambda: changed(
        byte_level(), pre_tokenizer=pre_tokenizers.ByteLevel(), normalizer=normalizers.Replace(" ", "")
    ),
    "left out": lambda: changed(
        byte_level(), post_processor=processors.TemplateProcessing(single=["<s>"], special_tokens=[("<s>", 1)])
    ),
}
PIECES = ["a", "ab", "abcd", " ", "  \n", "\u3000", "é", "e\u0301", "\u03b1\u0313\u0300\u0345", "ﷺ", "각", "각"]
PIECES += ["😀", "\0", "Once", "<wide>", START, "\u00a8", "\u2028"]


def test_it_is_never_more_than_a_text_has() -> None:
    generator = random.Random(0)
    for name, make in BOUNDED.items():
        tokenizer = make()
        for _ in range(60):
            text = "".join(generator.choice(PIECES) * generator.choice((1, 1, 2, 40)) for _ in range(8))
            fewest = tokenizer.fewest_tokens(text)
            assert fewest > 0 or not text.strip(), (name, text)
            assert fewest <= len(tokenizer.encode(text, add_special_tokens=False)), (name, text)
        assert tokenizer.fewest_tokens("a" * 100_000) > 500, name


@pytest.mark.parametrize("name", OPEN)
def test_where_a_token_may_be_any_text_there_is_none(name: str) -> None:
    assert OPEN[name]().fewest_tokens("a" * 10_000) == 0


def test_space_that_may_be_dropped_does_not_count() -> None:
    every = "".join(map(chr, range(0x3100)))
    assert TokenBound(1, drops_space=True).fewest(every) == len("".join(every.split())) + 4  # U+001C to U+001F


def test_a_text_that_cannot_fit_is_refused_unencoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("it was encoded")

    for name in ("encoded", "encoded_ids"):
        monkeypatch.setattr(long_texts, name, never)
    monkeypatch.setattr(module, "encoded_ids", never)
    tokenizer = chatty()
    with pytest.raises(ContextError, match=r"at least [\d,]+ tokens long, the context of this model is 256") as told:
        fitting_ids(tokenizer, "a" * 10_000, 256, 512, raw=True)
    assert told.value.tokens > 256
    with pytest.raises(ContextError, match="at least"):
        fitting_ids(tokenizer, [{"role": "user", "content": "a" * 10_000}], 256, None)
    with pytest.raises(InputError, match=r"at least .* the encoder takes 256"):
        tokenizer.limited(256, "the encoder").encode("a" * 10_000)


@pytest.mark.parametrize("make", [byte_level, sentencepiece, lambda: unigram(True)])
def test_long_texts_have_the_ids_that_short_ones_have(
    make: Callable[[], tokenizers.Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go another way through the library."""
    backend, text = make(), f"Once upon a cat, é 😀 ab{START} {START}ab  " * 9
    for special in (False, True):
        usual = long_texts.encoded_ids(backend, text, special)
        monkeypatch.setattr(long_texts, "LONG_TEXT", 0)
        assert long_texts.encoded_ids(backend, text, special) == usual
        assert long_texts.encoded(backend, text).offsets == backend.encode(text, add_special_tokens=False).offsets
        monkeypatch.undo()
