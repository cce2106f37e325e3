"""Slash commands of `liveshape chat` that take arguments: `/save FILE`, `/load FILE`, `/set NAME VALUE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from liveshape.errors import FormatError, InputError, counted
from liveshape.llm.arguments import path_of, token_limit
from liveshape.llm.generation.conversation import Conversation
from liveshape.llm.settings import GenerationSettings
from liveshape.llm.text.chat_template import as_tables
from liveshape.llm.text.messages import check_messages

_COMMANDS = ("/save", "/load", "/set")
# Sampling settings: name of the flag, keyword of `stream_generate`, type.
SETTINGS: dict[str, tuple[str, type]] = {
    "temp": ("temperature", float),
    "top-k": ("top_k", int),
    "top-p": ("top_p", float),
    "min-p": ("min_p", float),
    "repeat-penalty": ("repetition_penalty", float),
    "frequency-penalty": ("frequency_penalty", float),
    "presence-penalty": ("presence_penalty", float),
    "seed": ("seed", int),
    "max-tokens": ("max_tokens", int),
}


def command_of(text: str) -> list[str] | None:
    """A slash command split into words, or None: text that begins with any other / is a message to the model.

    >>> command_of("/set temp 0.7"), command_of("/etc is a folder")
    (['/set', 'temp', '0.7'], None)
    """
    words = text.strip().split(maxsplit=1)
    if not words or words[0].lower() not in _COMMANDS or "\n" in text.strip():
        return None
    name, rest = words[0].lower(), words[1:]
    return [name, *(rest[0].split() if rest and name == "/set" else rest)]


def run_command(words: list[str], talk: Conversation, options: dict[str, Any]) -> str:
    """Run a slash command and return a line about it; InputError where it cannot run.

    Example: `run_command(["/set", "temp", "0.7"], talk, options)`.
    """
    name, *rest = words
    if name == "/set":
        return _set(rest, options)
    if len(rest) != 1:
        raise InputError(f"{name} needs a file: {name} FILE")
    file = path_of(rest[0]).expanduser()
    return _save(file, talk) if name == "/save" else _load(file, talk)


def _set(rest: list[str], options: dict[str, Any]) -> str:
    if not rest:
        values = {name: options.get(known) for name, (known, _) in SETTINGS.items()}
        return "\n".join(f"{name} {'as the model recommends' if v is None else v}" for name, v in values.items())
    name = rest[0].removeprefix("--").replace("_", "-").replace("temperature", "temp")
    if name not in SETTINGS or len(rest) != 2:
        raise InputError(f"/set NAME VALUE, such as /set temp 0.7: the names are {', '.join(SETTINGS)}")
    known, kind = SETTINGS[name]
    try:
        value = kind(rest[1])
    except ValueError:
        number = "a whole number" if kind is int else "a number"
        raise InputError(f"{name} is {number}, {rest[1]!r:.40} was given") from None
    if known == "max_tokens":
        token_limit(value)
    else:
        GenerationSettings().sampling(**{known: value})
    options[known] = value
    return f"{name} is {value}"


def _save(file: Path, talk: Conversation) -> str:
    if file.exists():
        _read(file)  # never overwrite a file that is no saved conversation
    try:
        file.write_text(json.dumps(talk.messages, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from error
    return f"{counted(len(talk.messages), 'message')} saved to {file}"


def _load(file: Path, talk: Conversation) -> str:
    messages = _read(file)
    if messages:
        check_messages(messages, talk.tokenizer.chat_template or "")
    talk.messages = list(messages)
    return f"{counted(len(messages), 'message')} loaded from {file}"


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        raise InputError(f"{file} is no file with a conversation" if file.exists() else f"{file} does not exist")
    try:
        found = as_tables(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, FormatError) as error:
        raise InputError(f"{file} is no conversation that /save has written: {error}") from error
    wrong = [place for place, each in enumerate(found) if not isinstance(each.get("content"), str)]
    if wrong:
        raise InputError(f"{file} is no conversation that /save has written: message {wrong[0]} has no text")
    return found
