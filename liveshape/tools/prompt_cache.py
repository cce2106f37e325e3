"""`--prompt-cache FILE`: the KV cache of a prompt, saved and restored between runs of a command.

A file that is not this model's cache is an error, never overwritten.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from liveshape.errors import FormatError, InputError, counted
from liveshape.formats.whole_file import place_of
from liveshape.tools.wrapping import wrapped

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel


def check_prompt_cache(file: str | None) -> None:
    """Raise if the KV cache cannot be saved to this file, before a model is loaded.

    Example: `check_prompt_cache("book.cache")`.
    """
    if file is None:
        return
    try:
        place_of(file, "a saved cache")
    except InputError as error:
        raise InputError(f"--prompt-cache: {error}") from error


def take_prompt_cache(model: LanguageModel, file: str | None) -> None:
    """Restore the KV cache of a model from a file, if the file exists.

    Example: `take_prompt_cache(model, "book.cache")`.
    """
    if file is None or not Path(file).exists():
        return
    try:
        model.restore(file)
    except (FormatError, InputError) as error:
        raise type(error)(f"--prompt-cache: {error}; remove it, or name another file") from error
    _tell(f"{counted(model.position, 'token')} taken from {file}")


def keep_prompt_cache(model: LanguageModel, file: str | None) -> None:
    """Save the KV cache of a model and its tokens.

    Example: `keep_prompt_cache(model, "book.cache")`.
    """
    if file is not None:
        model.save(file)
        _tell(f"{counted(model.position, 'token')} saved to {file}")


def _tell(text: str) -> None:
    print(wrapped(f"prompt cache: {text}", sys.stderr), file=sys.stderr)
