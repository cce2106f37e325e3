"""A chat request, whichever API it came by: messages for the template, tools, options, and how the answer is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from liveshape.llm.arguments import token_biases
from liveshape.llm.generation.constraint import grammar_of
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.settings import GenerationSettings
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.answer_parts import THINK, AnswerParser, CallPart, Part
from liveshape.serve.fields import Fields
from liveshape.serve.refusals import Refusal, refused
from liveshape.serve.request_limits import RequestLimits
from liveshape.serve.strict_schema import closed

_SEEDS = 1 << 32
_LONGEST_ID = 10  # digits of a token id
_TAIL = 16  # tokens of a prompt in which its last line is looked for
_DEFINITIONS = ("$defs", "definitions")
_SAMPLED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)


@dataclass(frozen=True)
class ToolChoice:
    """Whether tools are called: "none", "auto", "required"; `name` is the one that must be."""

    mode: str = "auto"
    name: str | None = None


@dataclass(frozen=True)
class ChatRequest:
    """Messages and tools as chat templates take them, and the options of the generation."""

    messages: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any]
    tools: Sequence[Mapping[str, Any]] = ()
    choice: ToolChoice = ToolChoice()
    parallel: bool = True
    count: int = 1  # of answers
    stream: bool = False
    template: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tool_names(self) -> frozenset[str]:
        """The names that may be called."""
        return frozenset() if self.choice.mode == "none" else frozenset(each["function"]["name"] for each in self.tools)

    def prompt(self, tokenizer: Tokenizer) -> list[int]:
        """The token ids of the rendered messages; an answer goes on from a last message of the assistant."""
        if tokenizer.chat_template is None:
            raise Refusal(
                400,
                "this model has no chat template: use /v1/completions, or start the server with --chat-template FILE",
                "messages",
            )
        if self.tools and not tokenizer.takes_tools:
            raise Refusal(400, "the chat template of this model takes no tools", "tools")
        said, last = list(self.messages), self.messages[-1] if self.messages else {}
        prefilled = last.get("role") == "assistant"
        if prefilled and last.get("tool_calls"):
            raise Refusal(
                400, "the last message has calls of tools: add their results, which the answer needs", "messages"
            )
        if prefilled and not last["content"]:
            said.pop()
            prefilled = False
        if "developer" not in tokenizer.chat_template:
            said = [{**each, "role": "system"} if each["role"] == "developer" else each for each in said]
        named = {name: value for name, value in self.template.items() if name in tokenizer.chat_template}
        tools = list(self.tools) if self.choice.mode != "none" else None
        if prefilled:
            named.pop("add_generation_prompt", None)
        with refused("messages"):
            ids: list[int] = tokenizer.apply_chat_template(
                said, tools=tools or None, continue_final_message=prefilled, **named
            )
        return ids

    def requests(self, ids: list[int]) -> list[tuple[list[int], dict[str, Any]]]:
        """What the engine is asked for: each answer with a seed of its own."""
        return seeded(ids, self.options, self.count)


@dataclass
class ChosenText:
    """One answer as it is read: its parts, and how it ended."""

    parser: AnswerParser
    one_call: bool = False
    finish: GenerationResponse | None = None
    cut: bool = False  # ended behind its one call

    @classmethod
    def of(cls, request: ChatRequest, tokenizer: Tokenizer, ids: Sequence[int]) -> ChosenText:
        """The reader of an answer to a request; the template may have opened the reasoning."""
        thinking = tokenizer.decode(list(ids[-_TAIL:])).rstrip().endswith(THINK)
        return cls(AnswerParser(request.tool_names, thinking), one_call=not request.parallel)

    def take(self, response: GenerationResponse) -> list[Part]:
        """The parts of a response."""
        parts = self.parser.put(response.text)
        if response.finish_reason is not None:
            parts += self.parser.end()
            self.finish = response
        if self.one_call:
            parts = [part for part in parts if not isinstance(part, CallPart) or part.index == 0]
            if self.parser.calls and self.finish is None:
                self.finish, self.cut = response, True
        return parts

    @property
    def called(self) -> bool:
        """Whether a tool was called."""
        return self.parser.calls > 0


def sampling_options(fields: Fields, vocabulary: int) -> dict[str, Any]:
    """The sampling options of a request, each checked under its own name."""
    found = {name: value for name in _SAMPLED if (value := fields.raw(name)) is not None}
    for name, value in found.items():
        with refused(name):
            GenerationSettings().sampling(**{name: value})
    biases = fields.inner("logit_bias")
    if biases is not None:
        found["logit_bias"] = _biases(biases, vocabulary)
    seed = fields.raw("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise fields.wrong("seed", "a whole number")
    return found if seed is None else {**found, "seed": seed % _SEEDS}


def _biases(given: Fields, vocabulary: int) -> dict[int, float]:
    """Biases by token id, which JSON has as texts."""
    found = {}
    for token in given.names:
        if not token.isascii() or not token.isdecimal() or len(token) > _LONGEST_ID:
            raise Refusal(400, f"logit_bias is by token id, and {token!r:.60} is none", "logit_bias")
        found[int(token)] = given.raw(token)
    with refused("logit_bias"):
        return token_biases(found, vocabulary)


def stop_option(fields: Fields, name: str, limits: RequestLimits) -> dict[str, Any]:
    """The stop strings of a request: a text, or a list of them."""
    value = fields.raw(name)
    stops = [value] if isinstance(value, str) else fields.listed(name, limits.stops)
    if not all(isinstance(each, str) and each for each in stops):
        raise fields.wrong(name, "a text or a list of texts, none of them empty")
    longest, most = max(map(len, stops), default=0), limits.stop_characters
    if longest > most:
        message = f"{name} has a text of {longest:,} characters, at most {most:,} are taken"
        raise Refusal(400, message, fields.path(name))
    return {"stop": stops} if stops else {}


def check_schema(schema: Any, field: str, limits: RequestLimits) -> None:
    """Refuse a JSON schema that is too long to be followed beside others."""
    try:
        length = len(json.dumps(schema))
    except RecursionError as error:
        raise Refusal(400, "the JSON schema is nested too deep", field) from error
    if length > limits.schema_characters:
        most = limits.schema_characters
        raise Refusal(400, f"the JSON schema has {length:,} characters, at most {most:,} are taken", field)


def schema_option(schema: Any, field: str, limits: RequestLimits) -> dict[str, Any]:
    """The option of an answer that follows a JSON schema, which is checked.

    Example: `options |= schema_option({"type": "object"}, "response_format", limits)`.
    """
    check_schema(schema, field, limits)
    schema = closed(schema)
    with refused(field):
        grammar_of(json_schema=schema)
    return {"json_schema": schema}


def seeded(ids: list[int], options: Mapping[str, Any], count: int) -> list[tuple[list[int], dict[str, Any]]]:
    """A prompt `count` times; the first has the seed that was given, the others those that follow.

    >>> seeded([1], {"seed": 7}, 2)
    [([1], {'seed': 7}), ([1], {'seed': 8})]
    """
    seed = options.get("seed")
    seeds = [{} if seed is None else {"seed": (seed + each) % _SEEDS} for each in range(count)]
    return [(ids, {**options, **each}) for each in seeds]


def forced_call(tools: Sequence[Mapping[str, Any]], name: str | None, limits: RequestLimits) -> dict[str, Any]:
    """The JSON schema of a call of one of the tools, or of the one that is named.

    Example: `options["json_schema"] = forced_call(request.tools, "get_weather", limits)`.
    """
    forms, shared = [], dict[str, dict[str, Any]]()
    for each in tools:
        if name not in (None, each["function"]["name"]):
            continue
        arguments = dict(closed(each["function"].get("parameters")) or {"type": "object"})
        # References are from the root of a schema, so what they name moves there.
        for place in _DEFINITIONS:
            for key, value in arguments.pop(place, {}).items():
                if shared.setdefault(place, {}).setdefault(key, value) != value:
                    raise Refusal(
                        400, f"two tools define {key!r:.60} differently in {place}: give it two names", "tools"
                    )
        forms.append(
            {
                "type": "object",
                "properties": {"name": {"const": each["function"]["name"]}, "arguments": arguments},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    schema = {**(forms[0] if len(forms) == 1 else {"anyOf": forms}), **shared}
    check_schema(schema, "tools", limits)
    return schema
