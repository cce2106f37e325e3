"""Arguments of text generation commands: prompts, JSON schema, sampling options; checked before a model is loaded."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from liveshape.errors import InputError
from liveshape.export.sources.opening import located
from liveshape.llm.arguments import draft_limit, path_of, stop_strings, token_limit
from liveshape.llm.generation.constraint import grammar_of
from liveshape.llm.settings import GenerationSettings
from liveshape.tools.model_argument import NGRAM

STDIN = "-"


def read_prompts(prompt: str | Sequence[str] | None, file: str | None) -> list[str]:
    """The prompts from the arguments, a file or stdin; a trailing newline of a file or pipe is dropped.

    >>> read_prompts("Once", None)
    ['Once']
    """
    given = [] if prompt is None else [prompt] if isinstance(prompt, str) else list(prompt)
    if given and file is not None:
        raise InputError(f"-p and -f {file}: give one of the two")
    if not given and file is None:
        raise InputError("give a prompt: -p TEXT, which may be repeated, -p - for stdin, or -f FILE")
    if given.count(STDIN) > 1:
        raise InputError("stdin can be read once: give -p - once")
    if file is not None:
        return [read_text(file).removesuffix("\n")]
    return [read_text(STDIN).removesuffix("\n") if each == STDIN else each for each in given]


def read_text(file: str) -> str:
    """The text of a file, or of stdin for `-`.

    Example: `read_text("book.txt")`.
    """
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        where = "stdin" if file == STDIN else file
        raise InputError(
            f"{where} is no text in UTF-8: byte {error.start:,} is {error.object[error.start]:#04x}; convert it, "
            "such as by iconv -t utf-8"
        ) from None


def read_schema(given: str | None) -> str | None:
    """The JSON schema of `--json-schema`: inline if it begins with {, else the path of a file.

    >>> read_schema('{"type": "integer"}')
    '{"type": "integer"}'
    """
    if given is None or given.lstrip().startswith("{"):
        return given
    text = read_text(given)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"--json-schema {given}: the file is no JSON: {error}") from error
    return text


def check_form(
    schema: Any, regex: str | None, lookahead: str | None, logit_bias: Mapping[int, float] | None = None
) -> None:
    """Raise for a JSON schema or regex that constrained decoding cannot use, before a model is loaded.

    Example: `check_form(None, "yes|no", None)`.
    """
    if grammar_of(schema, regex) is not None and lookahead is not None:
        raise InputError("--lookahead cannot verify text of a given form: leave out one of both")
    if logit_bias and lookahead is not None:
        raise InputError("--lookahead cannot verify what --logit-bias chooses: leave out one of both")


def check_options(
    sampling: Mapping[str, Any] | None,
    max_tokens: int | None,
    stop: Sequence[str],
    lookahead: str | None,
    draft_tokens: int,
) -> None:
    """Raise for invalid sampling, stop or speculative decoding options, before a model is loaded.

    Example: `check_options({"temperature": 0.7}, 100, (), "ngram", 7)`.
    """
    GenerationSettings().sampling(**(sampling or {}))
    token_limit(max_tokens)
    stop_strings(stop)
    draft_limit(draft_tokens)
    if lookahead is not None and lookahead != NGRAM:
        located(str(path_of(lookahead)))
