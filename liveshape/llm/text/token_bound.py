"""The fewest tokens that a text can have, from its length alone: what cannot fit is refused before it is encoded."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.errors import InputError, counted

_COMPOSED = 4  # characters that Unicode composes to one, at most: the longest canonical decomposition
_CHAINS = ("normalizers", "pretokenizers", "processors")
# Steps that keep every character, and those that may take space away.
_KEEPS_ALL = frozenset("ByteLevel Metaspace Digits UnicodeScripts FixedLength Prepend Lowercase NFD NFKD".split())
_TAKES_SPACE = {"Strip", "Whitespace", "WhitespaceSplit"}
_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_COMPOSES = {"NFC", "NFKC"}
_REWRITES = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Replace"}


@dataclass(frozen=True)
class TokenBound:
    """The most characters of a text that one token stands for; where space may be dropped, it does not count.

    >>> TokenBound(14).fewest("a " * 100)
    15
    """

    longest: int
    drops_space: bool = False

    def fewest(self, text: str) -> int:
        """A lower bound of the tokens of a text."""
        counted = len(text) - sum(map(text.count, _SPACE)) if self.drops_space else len(text)
        return -(-counted // self.longest)


class TooManyTokensError(InputError):
    """A text must have more tokens than are taken; `tokens` is how many at least.

    Example: `raise TooManyTokensError(4_000_000, 285_715, 256, "the context of this model")`.
    """

    def __init__(self, characters: int, tokens: int, most: int, holder: str) -> None:
        super().__init__(
            f"a text of {characters:,} characters is at least {counted(tokens, 'token')} long, and {holder} takes "
            f"{most:,}: shorten it"
        )
        self.tokens = tokens


class _UnboundedError(Exception):
    """A step may make one token of any number of characters, or none."""


def token_bound(document: Any, growth: int) -> TokenBound | None:
    """The bound of a tokenizer.json whose normalizer makes a text `growth` times as long at most; None where a token
    may stand for any number of characters.

    Example: `token_bound(json.loads(backend.to_str()), growth=1)`.
    """
    try:
        steps = [*_steps(document.get("normalizer")), *_steps(document.get("pre_tokenizer"))]
        added = document.get("added_tokens") or []
        _check_template(document.get("post_processor"))
        # What is looked for in the normalized text is normalized itself.
        contents = [len(each["content"]) * (growth if each.get("normalized") else 1) for each in added]
        longest = max([1, *contents, *map(len, _pieces(document["model"], steps))])
        factor = math.prod(map(_shrinking, steps))
    except (_UnboundedError, AttributeError, KeyError, TypeError, ValueError):
        return None
    drops = any(each.get("lstrip") or each.get("rstrip") for each in added)
    drops = drops or any(step["type"] in _TAKES_SPACE for step in steps)
    makes = any(step["type"] == "Replace" and any(map(str.isspace, step["content"])) for step in steps)
    return None if drops and makes else TokenBound(longest * factor, drops)


def _steps(part: Any) -> Iterator[Mapping[str, Any]]:
    """The steps of a Sequence, flattened."""
    chain = None if part is None else next((part[key] for key in _CHAINS if key in part), [part])
    for each in chain or ():
        if each is part:
            yield each
        else:
            yield from _steps(each)


def _shrinking(step: Mapping[str, Any]) -> int:
    """How many characters before a step one behind it may stand for."""
    kind = step["type"]
    if kind in _COMPOSES:
        return _COMPOSED
    if kind == "Replace":
        pattern, content = step["pattern"].get("String"), step["content"]
        if not pattern or not content:  # a regular expression matches any number
            raise _UnboundedError
        return max(1, math.ceil(len(pattern) / len(content)))
    if kind in ("Split", "Punctuation") and step["behavior"] != "Removed":
        return 1
    if kind in _KEEPS_ALL or kind in _TAKES_SPACE:
        return 1
    raise _UnboundedError


def _check_template(part: Any) -> None:
    """Raise for a template that leaves the text out."""
    for step in _steps(part):
        pieces = step.get("single")
        if pieces is not None and not any("Sequence" in piece for piece in pieces):
            raise _UnboundedError


def _pieces(model: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """The pieces of a model that makes at least a token of every character, whether or not it is in one of them."""
    kind = model["type"]
    if kind == "BPE":
        vocabulary: Mapping[str, int] = model["vocab"]
        affixed = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
        # Without all bytes what is unknown is dropped, unless each character of it becomes <unk>.
        bytewise = not affixed and (_falls_back(model, vocabulary) or _has_letters(vocabulary, steps))
        if bytewise or (model.get("unk_token") in vocabulary and not model.get("fuse_unk")):
            return vocabulary
    if kind == "Unigram":
        pieces = {piece for piece, _ in model["vocab"]}
        if _falls_back(model, pieces):  # else a run of unknown characters is one <unk>
            return pieces
    raise _UnboundedError


def _falls_back(model: Mapping[str, Any], pieces: Collection[str]) -> bool:
    return bool(model.get("byte_fallback")) and all(f"<0x{byte:02X}>" in pieces for byte in range(256))


def _has_letters(pieces: Collection[str], steps: Sequence[Mapping[str, Any]]) -> bool:
    """Whether bytes become letters, all of them in the vocabulary, and stay such."""
    kinds = [step["type"] for step in steps]
    if "ByteLevel" not in kinds or not all(letter in pieces for letter in _BYTE_LETTERS):
        return False
    return not _REWRITES.intersection(kinds[kinds.index("ByteLevel") :])


_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
# GPT-2's letters of bytes: the printed ones are themselves, the others follow U+0100.
_BYTE_LETTERS = frozenset(map(chr, [*_PRINTED, *range(0x100, 0x200 - len(_PRINTED))]))
