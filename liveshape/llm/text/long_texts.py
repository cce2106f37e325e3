"""Texts to token ids by the library: long ones while other Python threads run, and the memory of that given back."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers

LONG_TEXT = 1 << 14  # characters: some ten milliseconds
VERY_LONG_TEXT = 1 << 17  # some hundred


def encoded_ids(backend: tokenizers.Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    """The token ids of a text.

    Example: `encoded_ids(backend, "Once upon a time", add_special_tokens=True)`.
    """
    if len(text) <= LONG_TEXT:
        return list(backend.encode(text, add_special_tokens=add_special_tokens).ids)
    # `encode` keeps the lock of the interpreter; a batch does not, and this one needs no offsets, half of the time.
    ids = list(backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids)
    return_freed_memory()
    return ids


def encoded(backend: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding:
    """The tokens of a text with their places in it, and no special tokens around them.

    Example: `encoded(backend, "Hi<|im_end|>").offsets`.
    """
    if len(text) <= LONG_TEXT:
        return backend.encode(text, add_special_tokens=False)
    return backend.encode_batch([text], add_special_tokens=False)[0]


def return_freed_memory() -> None:
    """Give the system what was freed: glibc keeps hundreds of bytes per token of a long text otherwise.

    >>> return_freed_memory()
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], Any] | None:
    """glibc's; None in other C libraries."""
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
        return found
    except (AttributeError, OSError, TypeError):
        return None
