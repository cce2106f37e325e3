"""Fill-in-the-middle: the prompt of a text between what comes before and what comes behind it, by the control tokens
that models of code were trained with."""

from __future__ import annotations

from collections.abc import Sequence

from liveshape.errors import UnsupportedError
from liveshape.llm.text.tokenizer import Tokenizer

# The tokens before the prefix, before the suffix, and before the middle, which comes last.
_MARKS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma, Granite 4
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek  # noqa: RUF001
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
)
_SUFFIX_FIRST = ("[SUFFIX]", "[PREFIX]")  # Codestral: the suffix, and then the prefix, which the middle follows


def fill_in_ids(tokenizer: Tokenizer, prefix: str | Sequence[int], suffix: str) -> list[int]:
    """The token ids of a prompt whose answer stands between a prefix and a suffix.

    Example: `fill_in_ids(tokenizer, "def add(a, b):\\n    return ", "\\n\\nprint(add(1, 2))")`.
    """
    before = tokenizer.encode(prefix, add_special_tokens=False) if isinstance(prefix, str) else list(prefix)
    behind = tokenizer.encode(suffix, add_special_tokens=False)
    # What the tokenizer puts before every text: BOS, or nothing.
    empty = tokenizer.encode("")
    begin = empty[:1] if empty[:1] == [tokenizer.bos_id] and before[:1] != empty[:1] else []
    for marks in _MARKS:
        ids = [tokenizer.token_id(mark) for mark in marks]
        if None not in ids:
            first, second, third = (each for each in ids if each is not None)
            return [*begin, first, *before, second, *behind, third]
    first_id, second_id = (tokenizer.token_id(mark) for mark in _SUFFIX_FIRST)
    if first_id is not None and second_id is not None:
        return [*begin, first_id, *behind, second_id, *before]
    raise UnsupportedError(
        "this model has no tokens for a text between two others (fill-in-the-middle, such as <|fim_prefix|>): take a "
        "model of code that has, or leave suffix out"
    )
