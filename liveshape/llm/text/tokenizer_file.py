"""Validation of an untrusted tokenizer.json before the library loads it: a failed allocation or unbounded growth inside
of the library aborts the whole process.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liveshape.disk import open_file
from liveshape.errors import FormatError
from liveshape.formats.file_kinds import HEAD, foreign_kind
from liveshape.llm.text.token_bound import TokenBound, token_bound

_LARGEST_FILE = 1 << 28
_LARGEST_GROWTH = 1 << 14  # of a text, by encoding
_LARGEST_GROWTH_BACK = 64  # of a text, by decoding
_LONGEST_TEXT = 1 << 27  # characters after normalization
_PIECE = 1024
_LONGEST_WORD = 1 << 12  # characters: WordPiece takes quadratic time per word
_MOST_STEPS = 64  # in one Sequence
_MOST_ADDED = 256  # special tokens around a text
_MOST_REPEATS = 8  # unbounded quantifiers in one alternative of a regex
# The most characters that one becomes, by Unicode normalization or case mapping.
_UNICODE_GROWTH = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "Nmt": 1, "BertNormalizer": 12}
_CHAINS = ("normalizers", "pretokenizers", "decoders", "processors")


@dataclass(frozen=True)
class TokenizerFile:
    """The bytes of a tokenizer.json that is safe to load, its growth factor (output per input character), and how few
    tokens a text can have."""

    content: bytes
    growth: int
    bound: TokenBound | None

    @classmethod
    def read(cls, path: Path) -> TokenizerFile:
        """Read and validate a tokenizer.json.

        Example: `TokenizerFile.read(Path("folder/tokenizer.json")).growth`.
        """
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _LARGEST_FILE:
                raise FormatError(f"{path} has {size:,} bytes, a tokenizer.json at most {_LARGEST_FILE:,}")
            content = file.read()
        try:
            return cls.of(content)
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from error.__cause__

    @classmethod
    def of(cls, content: bytes) -> TokenizerFile:
        """Validate the bytes of a tokenizer.json.

        Example: `TokenizerFile.of(backend.to_str().encode()).bound`.
        """
        try:
            document = json.loads(content, object_pairs_hook=_without_twins)
        except (ValueError, RecursionError) as error:
            kind = foreign_kind(content[:HEAD])
            why = f"it is {kind}" if kind else error or "it is nested too deep"
            raise FormatError(f"this is no JSON that can be read: {why}") from error
        try:
            growth = _checked(document)
        except FormatError:
            raise
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise FormatError(f"it is no tokenizer.json: {error!r}") from error
        return cls(content, growth, token_bound(document, growth))

    def fits(self, text: str, normalizer: Any) -> bool:
        """Whether a text is short enough after normalization; long ones are normalized in pieces, to measure.

        Example: `file.fits(text, backend.normalizer)`.
        """
        if len(text) * self.growth <= _LONGEST_TEXT:
            return True
        if normalizer is None:
            return len(text) <= _LONGEST_TEXT
        length = 0
        for start in range(0, len(text), _PIECE):
            length += len(normalizer.normalize_str(text[start : start + _PIECE]))
            if length > _LONGEST_TEXT:
                return False
        return True


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # With duplicate keys, the library may use another one than was checked.
    made = dict(pairs)
    if len(made) != len(pairs):
        raise FormatError("a key is there twice in one object")
    return made


def _checked(document: Any) -> int:
    """Validate a tokenizer.json and return its growth factor."""
    if not isinstance(document, dict):
        raise FormatError(f"an object is expected, this is a {type(document).__name__}")
    growth = _growth(document.get("normalizer")) * _growth(document.get("pre_tokenizer"))
    if growth > _LARGEST_GROWTH:
        raise FormatError(f"it makes a text {growth:,} times as long, at most {_LARGEST_GROWTH:,} are allowed")
    back = _growth(document.get("decoder"))
    if back > _LARGEST_GROWTH_BACK:
        raise FormatError(
            f"its decoder makes a text {back:,} times as long, at most {_LARGEST_GROWTH_BACK} are allowed"
        )
    _check_templates(document.get("post_processor"))
    model = document.get("model")
    if isinstance(model, dict):
        longest = model.get("max_input_chars_per_word", 0)
        if not isinstance(longest, int) or not 0 <= longest <= _LONGEST_WORD:
            raise FormatError(f"max_input_chars_per_word is a number up to {_LONGEST_WORD}, it has {longest!r:.60}")
        if model.get("type") == "Unigram" or "unk_id" in model:
            _check_scores(model)
    return growth


def _steps(part: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """The steps of a Sequence, flattened."""
    if part is None:
        return
    if not isinstance(part, dict):
        raise FormatError(f"a step is an object with its type, it has {part!r:.60}")
    chain = next((part[key] for key in _CHAINS if isinstance(part.get(key), list)), None)
    if chain is None:
        yield part
        return
    if depth > 4:
        raise FormatError("chains inside of chains are nested too deep")
    for each in chain:
        yield from _steps(each, depth + 1)


def _growth(part: Any) -> int:
    growth = 1
    for place, step in enumerate(_steps(part)):
        if place >= _MOST_STEPS:
            raise FormatError(f"a chain has more than {_MOST_STEPS} steps")
        growth = min(growth * _growth_of_step(step), 1 << 62)
    return growth


def _growth_of_step(step: dict[str, Any]) -> int:
    kind = step.get("type")
    if "precompiled_charsmap" in step:
        return _check_charsmap(step["precompiled_charsmap"])
    for key in ("pattern", "content", "prepend", "replacement"):
        if key in step and _length(step[key]) > _PIECE:
            raise FormatError(f"{key} of {kind} has {_length(step[key]):,} characters, at most {_PIECE:,} are allowed")
    regex = step["pattern"].get("Regex") if isinstance(step.get("pattern"), dict) else None
    if regex is not None:
        _check_regex(regex)
    if kind == "Replace" or ("pattern" in step and "content" in step):
        return _growth_of_replace(step)
    if kind == "ByteLevel":
        return 4
    if kind == "FixedLength" and not (isinstance(step.get("length", 5), int) and step.get("length", 5) > 0):
        raise FormatError(f"length of FixedLength is a number above 0, it has {step['length']!r:.60}")
    if kind == "Strip" and any(_count(step.get(key, 0)) > _PIECE for key in ("start", "stop")):
        raise FormatError(f"Strip takes away more than {_PIECE:,} characters")
    return _UNICODE_GROWTH.get(str(kind), 1) + len(str(step.get("prepend", "")))


def _count(value: Any) -> int:
    return 0 if isinstance(value, bool) or not isinstance(value, int) else value


def _length(value: Any) -> int:
    return max(map(len, map(str, value.values())), default=0) if isinstance(value, dict) else len(str(value))


def _growth_of_replace(step: dict[str, Any]) -> int:
    content, pattern = step.get("content"), step.get("pattern")
    literal = pattern.get("String") if isinstance(pattern, dict) else pattern
    if not isinstance(content, str) or pattern is None:
        raise FormatError("Replace has a pattern and a content")
    if isinstance(literal, str) and literal:
        return max(1, math.ceil(len(content) / len(literal)))
    # A regex may match the empty string before every character.
    return 1 + len(content)


def _check_charsmap(encoded: Any) -> int:
    """The growth factor of a sentencepiece charsmap: a length, a trie, then NUL-terminated replacements, of which the
    longest counts."""
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise FormatError(f"precompiled_charsmap is no base64: {error}") from None
    size = int.from_bytes(blob[:4], "little")
    if len(blob) < 4 or size % 4 or size > len(blob) - 4:
        raise FormatError(f"precompiled_charsmap has {len(blob)} bytes, and says that a trie of {size:,} is in them")
    try:
        texts = blob[4 + size :].decode("utf-8").split("\0")
    except UnicodeDecodeError as error:
        raise FormatError(f"precompiled_charsmap has texts that are no UTF-8: {error}") from None
    return max(1, *map(len, texts))


def _check_regex(pattern: Any) -> None:
    """Refuse regexes with exponential backtracking: nested quantifiers, backreferences, recursion."""
    if not isinstance(pattern, str):
        raise FormatError(f"a Regex is a text, it has {pattern!r:.60}")
    bare = re.sub(r"\\[pPxu]\{[^}]*\}|\\x[0-9a-fA-F]{2}", "c", pattern)
    if re.search(r"\\[1-9kg]|\(\?[&PR(]|\(\?<?[0-9]", bare):
        raise FormatError(f"the pattern {pattern!r:.60} refers to itself")
    bare = re.sub(r"\\.", "c", bare, flags=re.DOTALL)
    # Nested character classes, innermost first.
    for _ in range(3):
        bare = re.sub(r"\[\^?\]?[^\[\]]*\]", "c", bare)
    repeats = [0]
    endless = [False]  # whether each open group has an unbounded quantifier
    place = 0
    while place < len(bare):
        letter = bare[place]
        place += 1
        if letter == "(":
            repeats.append(0)
            endless.append(False)
        elif letter == "|":
            repeats[-1] = 0
        elif letter == ")" or letter not in "*+?{":
            inner = False
            if letter == ")":
                if len(endless) == 1:
                    return  # unbalanced: the library reports it
                inner = endless.pop()
                inside = repeats.pop()
                repeats[-1] += inside
                endless[-1] = endless[-1] or inner
            match = re.compile(r"[*+]|\{[0-9]*,?[0-9]*\}").match(bare, place)
            if match is None:
                continue
            found = match.group()
            many = [int(each) for each in re.findall("[0-9]+", found)]
            if inner or max(many, default=0) > 1000:
                raise FormatError(f"the pattern {pattern!r:.60} repeats a repetition: it can take for ever")
            if found in "*+" or found.endswith(",}"):
                repeats[-1], endless[-1] = repeats[-1] + 1, True
        if repeats[-1] > _MOST_REPEATS:
            raise FormatError(f"the pattern {pattern!r:.60} has more than {_MOST_REPEATS} repetitions in a row")


def _check_templates(part: Any) -> None:
    """Post-processing templates repeat a text a few times at most, with few special tokens around it."""
    added = sequences = 0
    for step in _steps(part):
        pieces = step.get("single")
        tokens = step.get("special_tokens")
        if pieces is None:
            continue
        counts = {
            name: len(token.get("ids", ())) for name, token in (tokens.items() if isinstance(tokens, dict) else ())
        }
        listed = pieces if isinstance(pieces, list) else str(pieces).split()
        special = [each["SpecialToken"]["id"] for each in listed if isinstance(each, dict) and "SpecialToken" in each]
        sequences += len(listed) - len(special)
        added += sum(counts.get(name, 1) for name in special)
    if added > _MOST_ADDED:
        raise FormatError(f"it puts {added:,} tokens around a text, at most {_MOST_ADDED} are allowed")
    if sequences > 4:
        raise FormatError(f"it repeats a text {sequences} times")


def _check_scores(model: dict[str, Any]) -> None:
    vocabulary, unknown = model.get("vocab"), model.get("unk_id")
    if not isinstance(vocabulary, list) or not vocabulary:
        raise FormatError("the vocabulary of Unigram is a list of pieces and their scores")
    for entry in vocabulary:
        piece, score = entry
        if not isinstance(piece, str) or isinstance(score, bool) or not isinstance(score, (int, float)):
            raise FormatError(f"a piece of Unigram has a text and a score, one is {entry!r:.60}")
        if not math.isfinite(score):
            raise FormatError(f"the score of {piece!r:.60} is no number")
    if unknown is not None and not (isinstance(unknown, int) and 0 <= unknown < len(vocabulary)):
        raise FormatError(f"unk_id is {unknown!r:.60}, the vocabulary has {len(vocabulary):,} pieces")
