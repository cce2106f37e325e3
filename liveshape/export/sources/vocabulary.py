"""Converts a vocabulary with merges or scores to a tokenizer.json, which `tokenizers` and ExecuTorch's runners load.

Two kinds exist: byte-level BPE (GPT-2's, with one of several pre-tokenizer regexes) and sentencepiece BPE, whose
merges follow from the token scores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.errors import FormatError, LiveshapeError, UnsupportedError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_SPACE = "▁"
_LONGEST = 1024  # characters of a token; merges_of_scores tries every split of one

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_WORDS}|\p{{N}}|{_REST}"
# Words end where lowercase is followed by uppercase; contractions ('s, 't) belong to their word.
_LARGE, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE, _SHORT = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT_4O = (
    rf"{_BEFORE}{_LARGE}*{_SMALL}+{_SHORT}|{_BEFORE}{_LARGE}+{_SMALL}*{_SHORT}|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Pre-tokenizer regex by tokenizer.ggml.pre; None is GPT-2's own.
_SPLITS: Mapping[str, str | None] = {
    "gpt-2": None,
    "smollm": "digits",
    "starcoder": "digits",
    "refact": "digits",
    "command-r": "digits",
    "codeshell": "digits",
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "smaug-bpe": _LLAMA3,
    "glm4": _LLAMA3,
    "chatglm-bpe": _LLAMA3,
    "gpt-4o": _GPT_4O,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "stablelm2": _QWEN2,
}
# ignore_merges: a whole word in the vocabulary is one token, without merging.
_WHOLE_WORDS = ("llama-bpe", "llama3")


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer's vocabulary: tokens, token types, BPE merges or scores, special tokens, chat template.

    Example: `tokenizer_files(Vocabulary("gpt2", tokens, kinds, merges=["a b"], flavour="smollm"))`.
    """

    model: str
    tokens: Sequence[str]
    kinds: Sequence[int]
    flavour: str = "default"
    scores: Sequence[float] | None = None
    merges: Sequence[str] | None = None
    begin: int | None = None
    end: int | None = None
    padding: int | None = None
    adds_begin: bool = False
    adds_space: bool = True
    chat_template: str | None = None

    def __post_init__(self) -> None:
        if len(self.kinds) != len(self.tokens):
            raise FormatError(f"the tokenizer has {len(self.tokens)} pieces, but {len(self.kinds)} kinds of them")
        if any(len(token) > _LONGEST for token in self.tokens):
            raise FormatError(f"the tokenizer has a piece of more than {_LONGEST} characters")
        if self.scores is not None and len(self.scores) != len(self.tokens):
            raise FormatError(f"the tokenizer has {len(self.tokens)} pieces, but {len(self.scores)} scores of them")

    def piece(self, index: int | None) -> str | None:
        return self.tokens[index] if index is not None and 0 <= index < len(self.tokens) else None

    def of_kind(self, *kinds: int) -> list[str]:
        return [token for token, kind in zip(self.tokens, self.kinds, strict=True) if kind in kinds]


def tokenizer_files(vocabulary: Vocabulary) -> Iterator[tuple[str, bytes]]:
    """Names and contents of tokenizer.json, tokenizer_config.json, and chat_template.jinja if there is one."""
    try:
        text = build_tokenizer(vocabulary).to_str(pretty=False)
    except LiveshapeError:
        raise
    except Exception as error:  # the library raises Exception itself
        raise FormatError(f"no tokenizer can be made of the vocabulary: {error}") from error
    yield "tokenizer.json", text.encode()
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": vocabulary.piece(vocabulary.begin),
        "eos_token": vocabulary.piece(vocabulary.end),
        "pad_token": vocabulary.piece(vocabulary.padding),
        "add_bos_token": vocabulary.adds_begin,
        "clean_up_tokenization_spaces": False,
    }
    kept = {key: value for key, value in settings.items() if value is not None}
    yield "tokenizer_config.json", (json.dumps(kept, indent=2, ensure_ascii=False) + "\n").encode()
    if vocabulary.chat_template:
        yield "chat_template.jinja", vocabulary.chat_template.encode("utf-8", "replace")


def build_tokenizer(vocabulary: Vocabulary) -> Any:
    """Build a `tokenizers.Tokenizer`.

    Example: `build_tokenizer(vocabulary).encode("Once upon a time").ids`.
    """
    from tokenizers import AddedToken, processors

    if vocabulary.model == "gpt2":
        tokenizer = _byte_level(vocabulary)
    elif vocabulary.model == "llama":
        tokenizer = _sentencepiece(vocabulary)
    else:
        raise UnsupportedError(f"a tokenizer of kind {vocabulary.model}: only gpt2 and llama can be converted")
    special = vocabulary.of_kind(CONTROL, UNKNOWN)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    own = vocabulary.of_kind(USER_DEFINED)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in own])
    begin = vocabulary.piece(vocabulary.begin)
    if vocabulary.adds_begin and begin is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[begin, "$A"], pair=[begin, "$A", begin, "$B:1"], special_tokens=[(begin, vocabulary.begin)]
        )
    return tokenizer


def _byte_level(vocabulary: Vocabulary) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    if vocabulary.flavour not in _SPLITS:
        raise UnsupportedError(
            f"a tokenizer that splits text in the way {vocabulary.flavour!r}: those known are {', '.join(_SPLITS)}"
        )
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in vocabulary.merges or ())]
    broken = [merge for merge in merges if "".join(merge) not in ids or not all(part in ids for part in merge)]
    if broken:
        raise FormatError(f"{len(broken)} merges of the tokenizer lead to no piece of it, such as {broken[0]}")
    whole = vocabulary.flavour in _WHOLE_WORDS
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=whole))
    split = _SPLITS[vocabulary.flavour]
    if split is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif split == "digits":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(split), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(vocabulary: Vocabulary) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers

    if vocabulary.scores is None:
        raise FormatError("a sentencepiece tokenizer without scores cannot be merged")
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    unknown = next(iter(vocabulary.of_kind(UNKNOWN)), None)
    tokenizer = Tokenizer(
        models.BPE(vocab=ids, merges=merges_of_scores(vocabulary), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    replace = [normalizers.Replace(" ", _SPACE)]
    prepend = [normalizers.Prepend(_SPACE)] if vocabulary.adds_space else []
    tokenizer.normalizer = normalizers.Sequence(prepend + replace)
    strip = [decoders.Strip(" ", 1, 0)] if vocabulary.adds_space else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def merges_of_scores(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """BPE merges from sentencepiece scores, in the order in which sentencepiece applies them.

    Only normal tokens take part: byte and control tokens must never come out of a merge.
    """
    assert vocabulary.scores is not None
    listed = enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
    ids = {token: index for index, (token, kind) in listed if kind == NORMAL}
    merges: list[tuple[float, int, int, str, str]] = []
    for piece, index in ids.items():
        score = vocabulary.scores[index]
        pairs = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        inside = [pair for pair in pairs if pair[0] in ids and pair[1] in ids]
        inside.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        merges += [(score, len(left), len(right), left, right) for left, right in inside]
    merges.sort(key=lambda merge: merge[:3], reverse=True)
    return [(left, right) for *_, left, right in merges]
