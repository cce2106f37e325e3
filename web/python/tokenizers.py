"""What liveshape asks of `tokenizers`, by the npm package of the same authors: its Rust does not run in a page.

A tokenizer is its tokenizer.json; the npm package reads it when the first text is encoded or decoded.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from liveshape_js import makeTokenizer


class AddedToken:
    """A token that is added to a vocabulary, and never split."""

    def __init__(self, content: str, normalized: bool = True, special: bool = False) -> None:
        self.content, self.normalized, self.special = content, normalized, special


class Encoding:
    """The ids of a text; where its special tokens are is found when somebody asks."""

    def __init__(self, ids: list[int], text: str, document: dict[str, Any]) -> None:
        self.ids = ids
        self._text, self._document = text, document

    @cached_property
    def offsets(self) -> list[tuple[int, int]]:
        """The places of the special tokens; an empty one for every other token, of which none is known."""
        found = _special_places(self._text, self._document)
        spelled = {index for index, _ in found}
        # The model itself makes one special token, of letters that it does not know.
        special = {token["id"] for token in self._document.get("added_tokens", ()) if token.get("special")}
        special -= {_unknown(self._document["model"])} - spelled
        if [index for index in self.ids if index in special] != [index for index, _ in found]:
            raise ValueError(
                "this text spells a control token of the model that is looked for in normalized text, where a page "
                "cannot tell it apart: leave it out"
            )
        places = iter(place for _, place in found)
        return [next(places) if index in special else (0, 0) for index in self.ids]


def _unknown(model: dict[str, Any]) -> int | None:
    """The token of letters that are not in the vocabulary."""
    return model.get("unk_id") if "unk_id" in model else model["vocab"].get(model.get("unk_token"))


def _special_places(text: str, document: dict[str, Any]) -> list[tuple[int, tuple[int, int]]]:
    """The special tokens that a text spells, each with its place and the spaces that it takes.

    The npm package tells no places. It splits a text at the longest of its added tokens, as here, before it normalizes.
    """
    added = {
        token["content"]: token
        for token in document.get("added_tokens", ())
        if not token.get("normalized", not token.get("special")) or document.get("normalizer") is None
    }
    pattern = "|".join(re.escape(content) for content in sorted(added, key=len, reverse=True) if content)
    found, before = [], 0
    for match in re.finditer(pattern, text) if pattern else ():
        token, (start, end) = added[match[0]], match.span()
        if token.get("lstrip"):
            start = max(before, len(text[:start].rstrip()))
        if token.get("rstrip"):
            end = len(text) - len(text[end:].lstrip())
        if token.get("special"):
            found.append((token["id"], (start, end)))
        before = end
    return found


def _section(name: str) -> property:
    return property(lambda self: self._document.get(name), lambda self, made: self._change({name: made}))


class Tokenizer:
    """A tokenizer.json, or one that is made of its parts."""

    def __init__(self, model: dict[str, Any]) -> None:
        sections = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"))
        self._document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], **sections}
        self._change({"model": model})
        self.encode_special_tokens = False

    normalizer, pre_tokenizer = _section("normalizer"), _section("pre_tokenizer")
    post_processor, decoder = _section("post_processor"), _section("decoder")

    @classmethod
    def from_buffer(cls, content: bytes) -> Tokenizer:
        return cls.from_str(bytes(content).decode())

    @classmethod
    def from_str(cls, content: str) -> Tokenizer:
        made = cls({})
        made._change(json.loads(content))
        made._made[False] = makeTokenizer(content)  # now, so that a document that it cannot read is refused
        return made

    def to_str(self, pretty: bool = False) -> str:
        return json.dumps(self._document, ensure_ascii=False)

    def _change(self, sections: dict[str, Any]) -> None:
        self._document |= sections
        self._made: dict[bool, Any] = {}  # by whether special tokens that a text spells are plain text

    def _npm(self, plain: bool = False) -> Any:
        if plain not in self._made:
            found = [token for token in self._document.get("added_tokens", ()) if not (plain and token.get("special"))]
            self._made[plain] = makeTokenizer(json.dumps({**self._document, "added_tokens": found}, ensure_ascii=False))
        return self._made[plain]

    def no_truncation(self) -> None:
        """Nothing is truncated."""

    def no_padding(self) -> None:
        """Nothing is padded."""

    @property
    def _vocabulary(self) -> dict[str, int]:
        known = self._document["model"]["vocab"]
        return {name: index for index, (name, *_) in enumerate(known)} if isinstance(known, list) else known

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        known = self._vocabulary
        added = {token["content"] for token in self._document.get("added_tokens", ())} if with_added_tokens else set()
        return len(known) + len(added - known.keys())

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        return {
            token["id"]: AddedToken(token["content"], token.get("normalized", True), token.get("special", False))
            for token in self._document.get("added_tokens", ())
        }

    def add_tokens(self, tokens: list[AddedToken]) -> None:
        known, following = self._vocabulary, self.get_vocab_size()
        added = {token["content"]: token for token in self._document.get("added_tokens", ())}
        for token in (token for token in tokens if token.content):
            index = added[token.content]["id"] if token.content in added else known.get(token.content, following)
            following += index == following
            flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": token.normalized}
            added[token.content] = {"id": index, "content": token.content, **flags, "special": token.special}
        self._change({"added_tokens": sorted(added.values(), key=lambda token: token["id"])})

    add_special_tokens = add_tokens

    def token_to_id(self, token: str) -> int | None:
        found = self._npm().token_to_id(token)
        return None if found is None else int(found)

    def id_to_token(self, index: int) -> str | None:
        return self._npm().id_to_token(index)

    def encode(self, text: str, add_special_tokens: bool = True) -> Encoding:
        plain = self.encode_special_tokens
        if plain and add_special_tokens:
            raise ValueError("special tokens are plain text here: none can be added")
        ids = [int(each) for each in self._npm(plain).encode(text, add_special_tokens)]
        return Encoding(ids, text, self._document)

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return self._npm().decode(json.dumps(ids), skip_special_tokens)


# The parts of a tokenizer.json that vocabularies of GGUF files take (liveshape/export/sources/vocabulary.py).


class Regex(str):
    """A pattern that is no plain text."""


def _part(kind: str, **settings: Any) -> dict[str, Any]:
    return {"type": kind, **settings}


def _pattern(text: str) -> dict[str, str]:
    return {"Regex" if isinstance(text, Regex) else "String": str(text)}


def _bpe(
    vocab: dict[str, int],
    merges: list[tuple[str, str]],
    unk_token: str | None = None,
    fuse_unk: bool = False,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> dict[str, Any]:
    return _part(
        "BPE",
        dropout=None,
        unk_token=unk_token,
        continuing_subword_prefix=None,
        end_of_word_suffix=None,
        fuse_unk=fuse_unk,
        byte_fallback=byte_fallback,
        ignore_merges=ignore_merges,
        vocab=vocab,
        merges=[list(merge) for merge in merges],
    )


def _byte_level(add_prefix_space: bool = True, use_regex: bool = True) -> dict[str, Any]:
    return _part("ByteLevel", add_prefix_space=add_prefix_space, trim_offsets=True, use_regex=use_regex)


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return _part("Replace", pattern=_pattern(pattern), content=content)


def _template(single: list[str], pair: list[str], special_tokens: list[tuple[str, int]]) -> dict[str, Any]:
    def step(text: str) -> dict[str, Any]:
        if not text.startswith("$"):
            return {"SpecialToken": {"id": text, "type_id": 0}}
        name, _, kind = text[1:].partition(":")
        return {"Sequence": {"id": name, "type_id": int(kind or 0)}}

    special = {token: {"id": token, "ids": [index], "tokens": [token]} for token, index in special_tokens}
    return _part("TemplateProcessing", single=[*map(step, single)], pair=[*map(step, pair)], special_tokens=special)


models = SimpleNamespace(BPE=_bpe)
normalizers = SimpleNamespace(
    Sequence=lambda parts: _part("Sequence", normalizers=parts),
    Prepend=lambda text: _part("Prepend", prepend=text),
    Replace=_replace,
)
pre_tokenizers = SimpleNamespace(
    Sequence=lambda parts: _part("Sequence", pretokenizers=parts),
    ByteLevel=_byte_level,
    Digits=lambda individual_digits: _part("Digits", individual_digits=individual_digits),
    Split=lambda pattern, behavior: _part(
        "Split", pattern=_pattern(pattern), behavior=behavior.capitalize(), invert=False
    ),
)
decoders = SimpleNamespace(
    Sequence=lambda parts: _part("Sequence", decoders=parts),
    ByteLevel=_byte_level,
    Replace=_replace,
    ByteFallback=lambda: _part("ByteFallback"),
    Fuse=lambda: _part("Fuse"),
    Strip=lambda content, start, stop: _part("Strip", content=content, start=start, stop=stop),
)
processors = SimpleNamespace(TemplateProcessing=_template)
