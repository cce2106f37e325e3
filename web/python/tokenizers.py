"""What liveshape asks of `tokenizers`, by the npm package of the same authors: its Rust does not run in a page."""

from __future__ import annotations

import json
from typing import Any

from liveshape_js import makeTokenizer


class AddedToken:
    """A token that is added to a vocabulary, and never split."""

    def __init__(self, content: str, normalized: bool = True, special: bool = False) -> None:
        self.content, self.normalized, self.special = content, normalized, special


class Encoding:
    """The ids of a text."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    @property
    def offsets(self) -> list[tuple[int, int]]:
        raise ValueError("this text spells a control token of the model, which a page cannot tell apart: leave it out")


class Tokenizer:
    """A tokenizer.json."""

    def __init__(self, content: str) -> None:
        self._content = content
        self._document = json.loads(content)
        self._made = makeTokenizer(content)
        self.encode_special_tokens = False

    @classmethod
    def from_buffer(cls, content: bytes) -> Tokenizer:
        return cls(bytes(content).decode())

    @classmethod
    def from_str(cls, content: str) -> Tokenizer:
        return cls(content)

    def to_str(self) -> str:
        return self._content

    def no_truncation(self) -> None:
        """Nothing is truncated."""

    def no_padding(self) -> None:
        """Nothing is padded."""

    @property
    def normalizer(self) -> Any:
        return self._document.get("normalizer")

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        vocabulary = self._document["model"]["vocab"]
        known = {name for name, *_ in vocabulary} if isinstance(vocabulary, list) else set(vocabulary)
        added = {token["content"] for token in self._document.get("added_tokens", ())}
        return len(known | added) if with_added_tokens else len(known)

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        return {
            token["id"]: AddedToken(token["content"], token.get("normalized", True), token.get("special", False))
            for token in self._document.get("added_tokens", ())
        }

    def add_tokens(self, tokens: list[AddedToken]) -> None:
        for token in tokens:
            entry = {"id": self.get_vocab_size(), "content": token.content, "special": token.special}
            flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": token.normalized}
            self._document.setdefault("added_tokens", []).append(entry | flags)
        self._content = json.dumps(self._document)
        self._made = makeTokenizer(self._content)

    def token_to_id(self, token: str) -> int | None:
        found = self._made.token_to_id(token)
        return None if found is None else int(found)

    def id_to_token(self, index: int) -> str | None:
        return self._made.id_to_token(index)

    def encode(self, text: str, add_special_tokens: bool = True) -> Encoding:
        return Encoding([int(each) for each in self._made.encode(text, add_special_tokens)])

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return self._made.decode(json.dumps(ids), skip_special_tokens)
