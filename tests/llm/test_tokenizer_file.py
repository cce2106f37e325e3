"""Tokenizers of strangers: each works, or is refused in our words; none takes the process or its memory along."""

from __future__ import annotations

import base64
import copy
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import liveshape.demo
from liveshape.errors import InputError
from liveshape.llm.text import tokenizer_file
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.llm.text.tokenizer_file import TokenizerFile

STORY = Path(liveshape.demo.__file__).parent / "story" / "tokenizer.json"
LETTERS = {"type": "BPE", "vocab": {chr(97 + i): i for i in range(26)}, "merges": []}


def document(**parts: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return {"version": "1.0", "added_tokens": [], "model": LETTERS, **empty, **parts}


def charsmap(blob: bytes) -> dict[str, Any]:
    return document(normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()})


def chain(*steps: Any, **names: str) -> dict[str, Any]:
    return {"type": "Sequence", names.get("name", "normalizers"): list(steps)}


def replace(old: Any, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": old if isinstance(old, dict) else {"String": old}, "content": new}


def split(pattern: str) -> dict[str, Any]:
    return document(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    )


def template(*pieces: Any, ids: int = 1) -> dict[str, Any]:
    token = {"id": "a", "ids": [0] * ids, "tokens": ["a"] * ids}
    single = list(pieces)
    made = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {"a": token}}
    return document(post_processor=made)


PIECE, TEXT = {"SpecialToken": {"id": "a", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]], "byte_fallback": False}
REFUSED: dict[str, Any] = {
    "trie of 4 GB": charsmap(b"\xff\xff\xff\xff"),
    "trie of 1 GB": charsmap(b"\0\0\0\x40"),
    "trie longer than it is": charsmap(b"\xfc\xff\xff\xff" + bytes(16)),
    "trie of no words": charsmap(b"\x03\0\0\0" + bytes(16)),
    "no trie": charsmap(b""),
    "texts that are none": charsmap(b"\0\0\0\0\xff\xfe"),
    "no base64": document(normalizer={"type": "Precompiled", "precompiled_charsmap": "***"}),
    "replace by more": document(normalizer=chain(*[replace("a", "a" * 1000)] * 3)),
    "replace nothing": document(normalizer=chain(*[replace("", "aaa")] * 20)),
    "replace by expressions": document(normalizer=chain(*[replace({"Regex": "a?"}, "aa")] * 12)),
    "chains of chains": document(normalizer=chain(chain(replace("a", "a" * 500)), chain(replace("a", "a" * 500)))),
    "bytes of bytes": document(pre_tokenizer=chain(*[{"type": "ByteLevel"}] * 40, name="pretokenizers")),
    "bytes of bytes before": document(normalizer=chain(*[{"type": "ByteLevel"}] * 40)),
    "decoders": document(decoder=chain(*[replace("a", "a" * 1000)] * 3, name="decoders")),
    "deep chains": document(normalizer=eval("chain(" * 30 + "replace('a', 'b')" + ")" * 30)),
    "deep lists": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "many steps": document(normalizer=chain(*[{"type": "Lowercase"}] * 1000)),
    "a text many times": template(*[TEXT] * 1000),
    "tokens around it": template(*[PIECE] * 200, TEXT, ids=200),
    "repeated repetitions": split("(a+)+$"),
    "repeated alternatives": split("(?:a|a*)*b"),
    "repetitions in a row": split("a*" * 30 + "b"),
    "counted repetitions": split("(a{1,3000}){1,3000}"),
    "references": split(r"(a*)\1b"),
    "no scores": document(model={**UNIGRAM, "vocab": []}),
    "unknown piece": document(model={**UNIGRAM, "unk_id": 1 << 40}),
    "a score that is none": json.dumps(document(model={**UNIGRAM, "vocab": [["a", float("nan")]]})),
    "long words": document(model={"type": "WordPiece", "max_input_chars_per_word": 1 << 60, "vocab": {"a": 0}}),
    "twice": '{"model": {}, "model": {}}',
    "no object": "[]",
    "no JSON": "{",
    "nothing": "",
}
# These may be refused or work, but must do neither harm nor nothing.
STRANGE: dict[str, Any] = {
    "a huge id": document(added_tokens=[{"id": 4_000_000_000, "content": "zz", "special": True}]),
    "a huge id of the model": document(model={**LETTERS, "vocab": {"a": 4_294_967_295, "b": 0}}),
    "padding": document(padding={"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_id": 0, "pad_type_id": 0}),
    "truncation": document(truncation={"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 9}),
    "no post id": template(PIECE, {"Sequence": {"id": "B", "type_id": 9}}),
    "empty token": document(added_tokens=[{"id": 0, "content": "", "special": True}]),
    "half a character": document(added_tokens=[{"id": 0, "content": "\ud800", "special": True}]),
    "unigram": document(model=UNIGRAM),
    "strip": document(decoder={"type": "Strip", "content": "a", "start": 1 << 62, "stop": 1 << 62}),
    "fixed length 0": document(pre_tokenizer={"type": "FixedLength", "length": 0}),
    "a merge of nothing": document(model={**LETTERS, "merges": [["", ""]]}),
    "a merge of strangers": document(model={**LETTERS, "merges": [["x", "é"]]}),
    "dropout": document(model={**LETTERS, "dropout": 7.5}),
    "no unknown": document(model={**LETTERS, "unk_token": "nobody", "fuse_unk": True}),
    "word level": document(model={"type": "WordLevel", "vocab": {}, "unk_token": "u"}),
    "empty pattern": split(""),
    "bad pattern": split("(("),
    "a cycle of a trie": charsmap(b"\x10\0\0\0" + b"\xff\xff\xff\x00" * 4 + b"a\0b\0"),
    "charsmap": charsmap(b"\x04\0\0\0\x01\0\0\0" + b"abc\0" * 5),
    "a long prefix": document(normalizer={"type": "Prepend", "prepend": "a" * 900}),
    "metaspace": document(pre_tokenizer={"type": "Metaspace", "replacement": "aa", "prepend_scheme": "always"}),
    "ctc": document(decoder={"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True}),
    "suffix": document(decoder={"type": "BPEDecoder", "suffix": ""}),
    "delimiter": document(pre_tokenizer={"type": "CharDelimiterSplit", "delimiter": ""}),
}


def outcomes(documents: dict[str, Any]) -> dict[str, str]:
    pytest.importorskip("resource")
    child = subprocess.run(
        [sys.executable, "-m", "tests.llm.hostile_tokenizers"],
        input=json.dumps(documents),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    lines = [line.split("\t") for line in child.stdout.splitlines()]
    assert child.returncode == 0, (lines[-1], child.stderr[-400:])
    found = dict(lines)
    assert found.keys() == documents.keys()
    assert set(found.values()) <= {"works", "FormatError", "InputError"}
    return found


def test_bombs_are_refused_and_strange_ones_do_no_harm() -> None:
    found = outcomes(REFUSED | STRANGE)
    assert {name: found[name] for name in REFUSED} == dict.fromkeys(REFUSED, "FormatError")


NUMBERS = (0, -1, 1 << 31, 1 << 32, 1 << 63, 1e308, 0.5, True, None, "", "a", "a" * 5000, [], {}, [[]], "\0")


def mutated(source: Any, chance: random.Random) -> Any:
    """A copy with one to three places changed: a value, a key, or an item that is there once more."""
    made = copy.deepcopy(source)
    for _ in range(chance.randint(1, 3)):
        node = made
        while True:
            places = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not places:
                break
            place = chance.choice(places)
            inner = node[place]
            if isinstance(inner, (dict, list)) and inner and chance.random() < 0.8:
                node = inner
                continue
            how = chance.random()
            if how < 0.6:
                node[place] = copy.deepcopy(chance.choice(NUMBERS))
            elif how < 0.8:
                del node[place]
            elif isinstance(node, list):
                node.append(copy.deepcopy(inner))
            break
    return made


def small_story() -> dict[str, Any]:
    """The shipped tokenizer with a small vocabulary, so that mutations find the rest, and with each kind of step."""
    made: dict[str, Any] = json.loads(STORY.read_text())
    alphabet = {token: place for token, place in made["model"]["vocab"].items() if len(token) == 1}
    made["model"]["vocab"] = {
        token: place for place, token in enumerate(["<|endoftext|>", "<|unfinished|>", *alphabet])
    }
    made["model"]["merges"] = []
    made["normalizer"] = chain({"type": "NFC"}, replace(" ", "▁"), {"type": "Prepend", "prepend": "▁"})
    made["pre_tokenizer"] = chain(
        split(r"\s?\p{L}+|\p{N}{1,3}")["pre_tokenizer"], made["pre_tokenizer"], name="pretokenizers"
    )
    made["decoder"] = chain(
        made["decoder"], replace("▁", " "), {"type": "Strip", "content": " ", "start": 1, "stop": 0}, name="decoders"
    )
    return made


@pytest.mark.parametrize("seed", [0, 1])
def test_mutations_of_a_real_one(seed: int) -> None:
    chance, story = random.Random(seed), small_story()
    sources = [story, document(model=UNIGRAM, normalizer=charsmap(b"\x04\0\0\0\x01\0\0\0abc\0")["normalizer"])]
    found = outcomes({f"{seed}-{place}": mutated(chance.choice(sources), chance) for place in range(150)})
    assert {"works", "FormatError"} <= set(found.values())


# What models have


@pytest.mark.parametrize(
    "pattern",
    [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{M}]+(?i:'s|'t|'re|'ve)?|\p{N}{1,3}| ?[^\s\p{L}]+[\r\n/]*|\s+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*",
        " {2,}",
        r"[\p{Han}]+",
    ],
)
def test_patterns_of_models_are_taken(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(split(pattern)))
    assert Tokenizer.load(tmp_path).encode("abc") == [0, 1, 2]


def test_the_shipped_one_does_not_lengthen_a_text_by_much() -> None:
    assert TokenizerFile.read(STORY).growth == 4
    with pytest.raises(InputError, match="is a folder, and an ordinary file is needed"):
        TokenizerFile.read(STORY.parent)


def test_a_text_that_grows_too_long_is_refused_where_it_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(document(normalizer=replace("a", "b" * 100))))
    tokenizer = Tokenizer.load(tmp_path)
    monkeypatch.setattr(tokenizer_file, "_LONGEST_TEXT", 5000)
    assert len(tokenizer.encode("a" * 50)) == 5000
    assert len(tokenizer.encode("c" * 4000)) == 4000
    with pytest.raises(InputError, match="a text of 51 characters is too long for what this tokenizer makes of it"):
        tokenizer.encode("a" * 51)
