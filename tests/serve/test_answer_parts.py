"""Reasoning, text and calls are told apart however the text is cut into pieces."""

from __future__ import annotations

from typing import Any

import pytest

from liveshape.serve.answer_parts import AnswerParser, CallPart, Part, ReasoningPart, TextPart
from liveshape.serve.openai_chat import joined_calls

HERMES = '<tool_call>\n{"name": "f", "arguments": {"a": [1, {"b": "}"}]}}\n</tool_call>'
# What is written, and what it is: reasoning, text, calls.
CASES: dict[str, tuple[str, str, str, list[tuple[str, str]]]] = {
    "text": ("Hello, you.", "", "Hello, you.", []),
    "empty": ("", "", "", []),
    "space": (" \n ", "", " \n ", []),
    "leading space": ("  Hi", "", "  Hi", []),
    "reasoning": ("<think>\nWell\nso.</think>\n\nYes", "Well\nso.", "Yes", []),
    "reasoning that does not end": ("<think>Well", "Well", "", []),
    "reasoning that is none": ("<thin air", "", "<thin air", []),
    "later reasoning is text": ("So <think>x</think>", "", "So <think>x</think>", []),
    "a call": (HERMES, "", "", [("f", '{"a": [1, {"b": "}"}]}')]),
    "text and a call": (f"I look.\n\n{HERMES}", "", "I look.", [("f", '{"a": [1, {"b": "}"}]}')]),
    "two calls": (
        f'{HERMES}\n<tool_call>{{"name": "g", "arguments": {{}}}}</tool_call>',
        "",
        "",
        [("f", '{"a": [1, {"b": "}"}]}'), ("g", "{}")],
    ),
    "reasoning and a call": (f"<think>a</think>{HERMES}", "a", "", [("f", '{"a": [1, {"b": "}"}]}')]),
    "arguments first": ('<tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call>', "", "", [("f", '{"x": 1}')]),
    "arguments as text": (
        '<tool_call>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_call>',
        "",
        "",
        [("f", '{"x": 1}')],
    ),
    "an escaped quote": ('{"name": "f", "parameters": {"x": "\\"}"}}', "", "", [("f", '{"x": "\\"}"}')]),
    "bare": ('{"name": "f", "parameters": {"x": 1}}', "", "", [("f", '{"x": 1}')]),
    "bare, with its type": ('{"type": "function", "name": "f", "parameters": {}}', "", "", [("f", "{}")]),
    "bare, two": (
        '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"y": 2}}',
        "",
        "",
        [("f", "{}"), ("g", '{"y": 2}')],
    ),
    "bare, of no tool": ('{"name": "h", "parameters": {}}', "", '{"name": "h", "parameters": {}}', []),
    "JSON that is no call": ('{"answer": 42} it is', "", '{"answer": 42} it is', []),
    "a brace": ("{x} it is", "", "{x} it is", []),
    "a call that is no JSON": ("<tool_call>f(1)</tool_call>", "", "<tool_call>f(1)</tool_call>", []),
    "a call that does not begin": ('<tool_call>{"na', "", '<tool_call>{"na', []),
    "a call that does not end": ('<tool_call>{"name": "f", "arguments": {"x": ', "", "", [("f", '{"x": ')]),
    "a list": ('[{"name": "f", "arguments": {"x": [1]}}]', "", "", [("f", '{"x": [1]}')]),
    "a list of two": (
        '[ {"name": "f", "arguments": {}},\n {"arguments": {"y": 2}, "name": "g"} ]',
        "",
        "",
        [("f", "{}"), ("g", '{"y": 2}')],
    ),
    "a list of no calls": ('[{"name": "h"}] it is', "", '[{"name": "h"}] it is', []),
    "a list of numbers": ("[1, 2]", "", "[1, 2]", []),
    "a bracket": ("[ ", "", "[ ", []),
    "a name and arguments": ('f{"x": {"y": 1}}', "", "", [("f", '{"x": {"y": 1}}')]),
    "names and arguments": ('f {} g{"x": "}"}', "", "", [("f", "{}"), ("g", '{"x": "}"}')]),
    "a name in a text": ("f is {x}", "", "f is {x}", []),
    "a name and a brace": ("f {x}", "", "f {x}", []),
    "a name alone": ("g", "", "g", []),
    "less than": ("1 <tool 2", "", "1 <tool 2", []),
}


def read(pieces: list[str], **options: Any) -> list[Part]:
    parser = AnswerParser(**options)
    return [part for piece in pieces for part in parser.put(piece)] + parser.end()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("name", CASES)
def test_parts_do_not_depend_on_the_pieces(name: str, size: int) -> None:
    text, reasoning, said, calls = CASES[name]
    parts = read([text[at : at + size] for at in range(0, len(text), size)], tools=("f", "g"))
    assert "".join(part.text for part in parts if isinstance(part, ReasoningPart)) == reasoning
    assert "".join(part.text for part in parts if isinstance(part, TextPart)) == said
    assert [(name, arguments) for _, name, arguments in joined_calls(parts)] == calls


def test_arguments_stream_while_they_are_written() -> None:
    parser = AnswerParser(("f",))
    first, second = parser.put('<tool_call>{"name": "f", "arguments": {')
    assert isinstance(first, CallPart)
    assert (first.index, first.name, first.arguments) == (0, "f", "")
    assert first.identity is not None
    assert second == CallPart(0, "{")
    assert parser.put('"a": "b') == [CallPart(0, '"a": "b')]
    assert parser.put('c"}}') == [CallPart(0, 'c"}')]


def test_without_tools_a_call_is_text() -> None:
    assert read([HERMES]) == [TextPart(HERMES)]


def test_a_prompt_may_have_opened_the_reasoning() -> None:
    assert read(["So.</thi", "nk>\nYes"], thinking=True) == [ReasoningPart("So."), TextPart("Yes")]
