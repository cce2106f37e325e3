"""`liveshape perplexity`: perplexity of a model on a text, computed as llama.cpp's llama-perplexity does."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace

from liveshape.errors import InputError
from liveshape.export.runnable import Conversion
from liveshape.graph.activation_kinds import AUTO
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from liveshape.tools.console import counted, print_json
from liveshape.tools.measuring.cross_entropy import CONTEXT, LEAST, measure, whole_windows
from liveshape.tools.model_argument import AS_USUAL, open_model
from liveshape.tools.text_arguments import read_text

_MOST_CHARACTERS = 64  # upper bound of characters per token, a few exotic ones aside


def perplexity(
    model: str | None,
    file: str,
    *,
    context: int | None = None,
    activations: str = AUTO,
    half_cache: bool = False,
    device: str | None = None,
    as_json: bool = False,
    conversion: Conversion = AS_USUAL,
) -> int:
    """Print the perplexity of a model on the text of a file, `-` for stdin; exit code 0 if measured.

    Example: `perplexity("SmolLM2-135M-Instruct", "book.txt", activations="int8")`.
    """
    if context is not None:
        conversion = replace(conversion, max_context=_room_for(context, conversion.max_context))
    text = read_text(file)

    def fits(tokenizer: Tokenizer, own: int | None, _: int | None) -> None:
        window = context or min(CONTEXT, own or CONTEXT)
        if len(text) < _MOST_CHARACTERS * window:  # tokenizing a longer one is slow, and it is long enough
            whole_windows(tokenizer, text, window)

    loaded, tokenizer = open_model(model, device, half_cache, activations, conversion, fits)
    with loaded:
        found = measure(loaded, tokenizer, text, context)
        about = {
            "model": model or str(shipped_model()),
            "file": file,
            "device": loaded.device.name,
            "activations": loaded.activations,
            "half_cache": half_cache,
        }
    if as_json:
        print_json({**about, **asdict(found), "tokens_per_second": found.tokens_per_second})
        return 0
    of = f"{found.counted:,} of {counted(found.tokens, 'token')}, {counted(found.windows, 'window')} of {found.context}"
    print(f"perplexity {found.perplexity:.4f} ± {found.deviation:.4f} ({of})")
    print(f"{found.tokens_per_second:.1f} tokens/s", file=sys.stderr)
    return 0


def _room_for(window: int, max_context: int | None) -> int:
    """The context length to load a model with for windows of this size: the window, or as requested."""
    if window < LEAST:
        raise InputError(f"--context {window}: a window has at least {LEAST} tokens")
    if max_context is not None and window > max_context:
        raise InputError(f"--context {window} does not fit --max-context {max_context}: give a larger one, or none")
    return window if max_context is None else max_context
