"""What a model writes, as a client gets it: reasoning, text and tool calls, told apart while they stream.

Reasoning is what stands between `<think>` and `</think>` at the beginning. Calls are written as `<tool_call>{"name":
..., "arguments": {...}}</tool_call>` (Hermes, Qwen), as the bare JSON (Llama 3, with `parameters`), as a list of that,
or as the name before the arguments (Mistral, whose marker `[TOOL_CALLS]` is a special token and no text).
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from liveshape.llm.generation.stopping import overlap

THINK, THOUGHT = "<think>", "</think>"
_CALL, _CALLED = "<tool_call>", "</tool_call>"
# The beginning of a call up to its arguments, in the order in which models write them: these can be passed on at once.
_HEAD = re.compile(
    r'\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*'
    r'"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
_LIST = re.compile(r"\[\s*(?=\{)")
_LIST_BEGINS = re.compile(r"\[\s*")


@dataclass(frozen=True)
class TextPart:
    """Text of the answer."""

    text: str


@dataclass(frozen=True)
class ReasoningPart:
    """Text of the reasoning before the answer."""

    text: str


@dataclass(frozen=True)
class CallPart:
    """A piece of the `index`th tool call: its name and id come first, then its arguments as JSON text."""

    index: int
    arguments: str
    name: str | None = None
    identity: str | None = None


Part = TextPart | ReasoningPart | CallPart


class AnswerParser:
    """Splits text into parts as it comes. `tools` are the names that may be called, `thinking` says that the prompt
    has opened the reasoning.

    >>> AnswerParser(thinking=True).put("So.</think>Yes")
    [ReasoningPart(text='So.'), TextPart(text='Yes')]
    """

    def __init__(self, tools: Collection[str] = (), thinking: bool = False) -> None:
        self._tools = frozenset(tools)
        self._held = ""
        self._step = self._reasoning if thinking else self._opening
        self._depth = _JsonDepth()
        self._skips = thinking  # the newlines that come first
        self._marked = False  # whether the call that is read began with <tool_call>
        self._list = ""  # what opened the list of calls
        self._closes = "}"  # the end of a call that is not marked
        names = "|".join(re.escape(name) for name in sorted(self._tools, key=len, reverse=True))
        self._named = re.compile(rf"({names})\s*(?=\{{\s*[\"}}])")
        self._name_begins = re.compile(rf"({names})\s*\{{?\s*")
        self.calls = 0

    def put(self, text: str) -> list[Part]:
        """The parts that one more piece of text completes."""
        self._held += text
        parts: list[Part] = []
        while True:
            if self._skips:
                self._held = self._held.lstrip("\n")
                self._skips = not self._held
            step, held = self._step, self._held
            parts += step()
            if self._step == step and self._held == held:
                return parts

    def end(self) -> list[Part]:
        """What was held back for a marker that did not come."""
        held, self._held = self._held, ""
        if self._step == self._reasoning:
            return [ReasoningPart(held)] if held else []
        if self._step == self._call:
            return self._no_call(held)
        said = "" if self._step in (self._arguments, self._closing) or (self.calls and not held.strip()) else held
        return [TextPart(said)] if said else []

    # Each step takes what it can from what is held, and says which is next.

    def _opening(self) -> Iterator[Part]:
        """The beginning of a text, where reasoning may begin."""
        begun = self._held.lstrip()
        if begun.startswith(THINK):
            self._held, self._skips, self._step = begun.removeprefix(THINK), True, self._reasoning
        elif begun and not THINK.startswith(begun):
            self._step = self._answer
        yield from ()

    def _reasoning(self) -> Iterator[Part]:
        text, found, rest = self._held.partition(THOUGHT)
        if found:
            self._held, self._skips, self._step = rest, True, self._answer
        else:
            text = text[: len(text) - overlap(text, THOUGHT)]
            self._held = self._held[len(text) :]
        if text:
            yield ReasoningPart(text)

    def _answer(self) -> Iterator[Part]:
        """The beginning of the answer, or what follows a call: a bare call may begin here."""
        begun = self._held.lstrip()
        if self.calls:
            begun = self._held = begun.lstrip(" ,]" if self._list else " ;").lstrip()
        if not begun or (self._tools and self._may_begin(begun)):
            return
        self._marked, self._closes = False, "}"
        named = self._named.match(begun) if self._tools else None
        if named is not None:
            self._held, self._closes = begun[named.end() :], ""
            yield self._begin_call(named[1])
            return
        listed = _LIST.match(begun) if not self.calls else None
        if self._tools and listed is not None:
            self._list, begun = listed[0], begun[listed.end() :]
        bare = bool(self._tools) and begun.startswith("{")
        self._held = begun if bare or self.calls else self._held
        self._step = self._call if bare else self._text

    def _may_begin(self, begun: str) -> bool:
        """Whether one cannot tell yet whether this begins a list of calls, or the name of a tool and its arguments."""
        if _LIST_BEGINS.fullmatch(begun) or self._name_begins.fullmatch(begun):
            return True
        return any(name.startswith(begun) for name in self._tools)

    def _begin_call(self, name: str) -> CallPart:
        """A call whose arguments follow."""
        self._step, self._depth = self._arguments, _JsonDepth()
        return CallPart(self.calls, "", name, f"call_{secrets.token_hex(12)}")

    def _text(self) -> Iterator[Part]:
        if not self._tools:
            text, self._held = self._held, ""
        else:
            text, found, rest = self._held.partition(_CALL)
            if found:
                self._held, self._marked, self._step = rest, True, self._call
                text = text.rstrip()
            else:
                # Space before a call is none of the answer.
                text = text[: len(text) - overlap(text, _CALL)].rstrip()
                self._held = self._held[len(text) :]
        if text:
            yield TextPart(text)

    def _call(self) -> Iterator[Part]:
        """A call before its arguments. One that is written otherwise is read when it is whole."""
        head = _HEAD.match(self._held)
        if head is not None:
            name = _loaded(head[1])
            if self._marked or name in self._tools:
                self._held = self._held[head.end() :]
                yield self._begin_call(str(name))
                return
        if self._marked:
            text, marker, rest = self._held.partition(_CALLED)
            ended = bool(marker)
        else:
            size, marker = _JsonDepth().end_of(self._held), ""
            text, rest = self._held[:size], "" if size is None else self._held[size:]
            ended = size is not None
        whole = _loaded(text) if ended or text.rstrip().endswith("}") else None
        name, arguments = _call_of(whole)
        if name is not None and (self._marked or name in self._tools):
            self._held, self._step = rest, self._answer if ended else self._closing
            yield CallPart(self.calls, arguments, name, f"call_{secrets.token_hex(12)}")
            self.calls += 1
        elif ended or whole is not None or (head is not None and not self._marked):
            yield from self._no_call(text + marker)
            self._held = rest

    def _arguments(self) -> Iterator[Part]:
        size = self._depth.end_of(self._held)
        text = self._held if size is None else self._held[:size]
        self._held = self._held[len(text) :]
        if text:
            yield CallPart(self.calls, text)
        if size is not None:
            self.calls += 1
            self._step = self._closing

    def _closing(self) -> Iterator[Part]:
        """Behind the arguments: the brace of the call, and its marker."""
        closed = _CALLED if self._marked else self._closes
        _, found, rest = self._held.partition(closed) if closed else ("", True, self._held)
        if found:
            self._held, self._step = rest, self._answer
        yield from ()

    def _no_call(self, text: str) -> list[Part]:
        self._step = self._text
        said = f"{_CALL if self._marked else ''}{'' if self.calls else self._list}{text}"
        return [TextPart(said)] if said else []


class _JsonDepth:
    """Finds the end of a JSON object that comes in pieces."""

    def __init__(self) -> None:
        self._depth, self._quoted, self._escaped = 0, False, False

    def end_of(self, text: str) -> int | None:
        """Where in this piece the object ends; None if it goes on."""
        for place, letter in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped, self._quoted = letter == "\\", letter != '"'
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return place + 1
        return None


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _call_of(document: Any) -> tuple[str | None, str]:
    """The name and the arguments, as JSON text, of a call that is whole; no name if it is none."""
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        return None, ""
    arguments = document.get("arguments", document.get("parameters", {}))
    if isinstance(arguments, str) and isinstance(_loaded(arguments), dict):
        return document["name"], arguments
    return (document["name"], json.dumps(arguments)) if isinstance(arguments, dict) else (None, "")
