"""Cross-entropy and perplexity of a model on a text, computed as llama.cpp does.

The text is split into non-overlapping windows of one context; the incomplete last one is dropped. Each window starts
from an empty KV cache, its first token replaced by BOS where the tokenizer adds one. Only the second half of a window
is scored, so that each scored token has at least half a context before it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from liveshape.errors import InputError
from liveshape.llm.program.context import larger_context
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.tools.console import counted, work_bar

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel

CONTEXT = 512  # default tokens per window, if the model's context is as long
LEAST = 4  # tokens per window


@dataclass(frozen=True)
class Measured:
    """The perplexity of a text, and the counts behind it."""

    perplexity: float
    deviation: float  # standard error of the perplexity over tokens
    counted: int  # scored tokens
    tokens: int  # tokens evaluated, the unscored half included
    windows: int
    context: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Evaluated tokens per second."""
        return self.tokens / self.seconds


def measure(model: LanguageModel, tokenizer: Tokenizer, text: str, context: int | None = None) -> Measured:
    """Compute the perplexity of a text. Resets the model's KV cache.

    Example: `measure(*load("SmolLM2-135M-Instruct"), text, 256).perplexity`.
    """
    context = min(CONTEXT, model.max_context) if context is None else context
    windows = windows_of(model, tokenizer, text, context)
    start = time.perf_counter()
    losses: list[Any] = []
    with work_bar(len(windows)) as progress:
        for number, window in enumerate(windows):
            progress(f"{_perplexity_text(losses)} window {number + 1}")
            losses += [losses_of(*piece) for piece in foretold(model, window)]
    return measured(np.concatenate(losses), context, len(windows), time.perf_counter() - start)


def windows_of(model: LanguageModel, tokenizer: Tokenizer, text: str, context: int) -> list[list[int]]:
    """Tokenize a text into whole windows of one context, each starting with BOS where the tokenizer adds it.

    Example: `windows_of(model, tokenizer, text, 256)`.
    """
    if not LEAST <= context <= model.max_context:
        advice = larger_context(model.trained_context, context - 1)
        raise InputError(
            f"a context of {context} tokens: {LEAST} to {model.max_context:,} are possible as the model is loaded; "
            f"for more, {advice}"
        )
    return whole_windows(tokenizer, text, context)


def whole_windows(tokenizer: Tokenizer, text: str, context: int) -> list[list[int]]:
    """`windows_of` without a check against a model's context.

    Example: `len(whole_windows(tokenizer, text, 256))`.
    """
    ids = tokenizer.encode(text)
    windows = [ids[start : start + context] for start in range(0, len(ids) - context + 1, context)]
    if not windows:
        raise InputError(
            f"a text of {counted(len(ids), 'token')} is shorter than a context of {context}; give a longer text, or "
            "a smaller --context"
        )
    # A tokenizer that adds BOS adds it to an empty text, too.
    begin = tokenizer.encode("")[:1]
    return [[*begin, *window[len(begin) :]] for window in windows]


def measured(losses: Any, context: int, windows: int, seconds: float) -> Measured:
    """Perplexity and its standard error from per-token losses (negative log-likelihoods).

    >>> measured(np.log([2.0, 8.0]), 4, 2, 1.0).perplexity
    4.0
    """
    value = math.exp(losses.mean())
    spread = float(losses.std(ddof=1)) / math.sqrt(len(losses)) if len(losses) > 1 else 0.0
    return Measured(value, value * spread, len(losses), windows * context, windows, context, seconds)


def foretold(model: LanguageModel, window: Sequence[int]) -> Iterator[tuple[Any, Sequence[int]]]:
    """Log-softmax rows of the second half of a window and their target tokens, chunk by chunk.

    Example: `for rows, tokens in foretold(model, window): rows[range(len(tokens)), tokens]`.
    """
    place = len(window) // 2
    model.reset()
    model.prefill(window[:place])
    for rows in model.evaluate_chunks(window[place:-1]):
        wide = rows.astype(np.float64)
        wide -= wide.max(-1, keepdims=True)
        wide -= np.log(np.exp(wide).sum(-1, keepdims=True))
        yield wide, window[place + 1 : place + 1 + len(rows)]
        place += len(rows)


def losses_of(rows: Any, tokens: Sequence[int]) -> Any:
    """Negative log-likelihoods of the target tokens.

    >>> losses_of(np.array([[-1.0, -2.0]]), [1])
    array([2.])
    """
    return -rows[np.arange(len(tokens)), tokens]


def _perplexity_text(losses: list[Any]) -> str:
    return f"{math.exp(np.concatenate(losses).mean()):.4f}" if losses else ""
