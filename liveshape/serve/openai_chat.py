"""`/v1/chat/completions`: requests, answers and streamed chunks as OpenAI has them."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.answer_parts import CallPart, Part, ReasoningPart, TextPart
from liveshape.serve.answers import Answers
from liveshape.serve.chat_request import ChatRequest, ChosenText, ToolChoice, forced_call
from liveshape.serve.fields import Fields
from liveshape.serve.openai_messages import template_messages, template_tools
from liveshape.serve.openai_options import common_options, likely_tokens, usage, usage_wanted
from liveshape.serve.refusals import Refusal
from liveshape.serve.request_limits import RequestLimits
from liveshape.serve.streaming import DONE, PING, event

_MOST_LOGPROBS = 20


@dataclass(frozen=True)
class ChatCompletion:
    """A chat request as OpenAI's clients send it."""

    chat: ChatRequest
    model: str
    usage: bool
    identity: str
    created: int

    @classmethod
    def read(cls, fields: Fields, model: str, vocabulary: int, limits: RequestLimits) -> ChatCompletion:
        """Read and check a request."""
        fields.needed("messages")
        stream = fields.flag("stream")
        made = cls(
            _chat_request(fields, vocabulary, stream, limits),
            model,
            usage_wanted(fields, stream),
            f"chatcmpl-{secrets.token_hex(12)}",
            int(time.time()),
        )
        fields.done()
        return made

    def readers(self, tokenizer: Tokenizer, ids: Sequence[int]) -> list[ChosenText]:
        """A reader for each answer."""
        return [ChosenText.of(self.chat, tokenizer, ids) for _ in range(self.chat.count)]

    async def whole(self, answers: Answers, tokenizer: Tokenizer, ids: Sequence[int]) -> dict[str, Any]:
        """The answers at once."""
        readers = self.readers(tokenizer, ids)
        parts: list[list[Part]] = [[] for _ in readers]
        likely: list[list[dict[str, Any]]] = [[] for _ in readers]
        async for each in answers.responses():
            if each is not None:
                index, response = each
                parts[index] += readers[index].take(response)
                likely[index] += _likely(tokenizer, response)
                await _stop_behind_call(answers, index, readers[index])
        choices = [
            {
                "index": index,
                "message": _message(parts[index]),
                "logprobs": {"content": likely[index], "refusal": None} if "logprobs" in self.chat.options else None,
                "finish_reason": finish_reason(reader),
            }
            for index, reader in enumerate(readers)
        ]
        told = usage(answers, self.chat.count)
        return {**self._heading("chat.completion"), "choices": choices, "usage": told}

    async def chunks(
        self, answers: Answers, tokenizer: Tokenizer, ids: Sequence[int], ping: float
    ) -> AsyncGenerator[bytes, None]:
        """The answers as events."""
        readers = self.readers(tokenizer, ids)
        for index in range(len(readers)):
            yield self._chunk(index, {"role": "assistant", "content": ""})
        async for each in answers.responses(ping):
            if each is None:
                yield PING
                continue
            index, response = each
            reader = readers[index]
            deltas = [_delta(part) for part in reader.take(response)]
            likely = _likely(tokenizer, response)
            # A token that completes no text has its log-probability all the same.
            for place, delta in enumerate(deltas or ([{}] if likely else [])):
                yield self._chunk(index, delta, likely=likely if place == 0 else [])
            await _stop_behind_call(answers, index, reader)
            if reader.finish is not None:
                yield self._chunk(index, {}, finish_reason(reader))
        if self.usage:
            told = usage(answers, self.chat.count)
            yield event({**self._heading("chat.completion.chunk"), "choices": [], "usage": told})
        yield DONE

    def _chunk(
        self, index: int, delta: dict[str, Any], finish: str | None = None, likely: Sequence[dict[str, Any]] = ()
    ) -> bytes:
        logprobs = {"content": list(likely), "refusal": None} if likely else None
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        told = {"usage": None} if self.usage else {}
        return event({**self._heading("chat.completion.chunk"), "choices": [choice], **told})

    def _heading(self, kind: str) -> dict[str, Any]:
        return {"id": self.identity, "object": kind, "created": self.created, "model": self.model}


def _chat_request(fields: Fields, vocabulary: int, stream: bool, limits: RequestLimits) -> ChatRequest:
    messages = template_messages(fields.objects("messages", limits.messages))
    tools = template_tools(fields.objects("tools", limits.tools))
    options = common_options(fields, vocabulary, limits)
    most = fields.whole("max_tokens", 1)
    newer = fields.whole("max_completion_tokens", 1)
    options["max_tokens"] = most if newer is None else newer
    options |= _logprobs(fields)
    choice = _tool_choice(fields, tools)
    if choice.mode == "required":
        if "json_schema" in options:
            raise Refusal(400, "an answer is a call or of a given form: leave out one of both", "response_format")
        options["json_schema"] = forced_call(tools, choice.name, limits)
    elif "json_schema" in options and tools and choice.mode != "none":
        raise Refusal(400, "response_format allows no calls: leave out tools, or set tool_choice", "response_format")
    fields.only("modalities", ["text"])
    fields.only("functions", [], advice="tools are")
    fields.only("function_call", "auto", "none", advice="tool_choice is")
    effort = fields.text("reasoning_effort")
    variables = fields.raw("chat_template_kwargs")
    if variables is not None and not isinstance(variables, dict):
        raise fields.wrong("chat_template_kwargs", "an object")
    return ChatRequest(
        messages=messages,
        options=options,
        tools=tools,
        choice=choice,
        parallel=fields.flag("parallel_tool_calls", True),
        count=fields.whole("n", 1, limits.choices) or 1,
        stream=stream,
        template={**({} if effort is None else {"reasoning_effort": effort}), **(variables or {})},
    )


def _logprobs(fields: Fields) -> dict[str, Any]:
    wanted, top = fields.flag("logprobs"), fields.whole("top_logprobs", 0, _MOST_LOGPROBS)
    if top is not None and not wanted:
        raise Refusal(400, "top_logprobs needs logprobs: set it to true", "top_logprobs")
    return {"logprobs": top or 0} if wanted else {}


def _tool_choice(fields: Fields, tools: Sequence[dict[str, Any]]) -> ToolChoice:
    given = fields.raw("tool_choice")
    if given is None:
        return ToolChoice("auto" if tools else "none")
    if isinstance(given, str):
        mode, name = fields.choice("tool_choice", ("none", "auto", "required")) or "auto", None
    else:
        asked = Fields(given, "tool_choice")
        asked.only("type", "function")
        function = asked.inner("function")
        mode, name = "required", None if function is None else function.text("name")
        if name not in [each["function"]["name"] for each in tools]:
            raise Refusal(400, f"tool_choice names {name!r:.60}, which is none of tools", "tool_choice")
    if mode == "required" and not tools:
        raise Refusal(400, "tool_choice is 'required', and there are no tools", "tool_choice")
    return ToolChoice(mode, name)


def finish_reason(reader: ChosenText) -> str:
    """Why an answer ended, in OpenAI's words."""
    assert reader.finish is not None
    if reader.finish.finish_reason == "length":
        return "length"
    return "tool_calls" if reader.called else "stop"


async def _stop_behind_call(answers: Answers, index: int, reader: ChosenText) -> None:
    if reader.cut:
        await answers.stop(index)


def _likely(tokenizer: Tokenizer, response: GenerationResponse) -> list[dict[str, Any]]:
    """The log-probabilities of a token; the one that ends an answer is none of its text."""
    ends = response.finish_reason == "stop" and response.stop_string is None
    return [] if response.logprobs is None or ends else [likely_tokens(tokenizer, response.token, response.logprobs)]


def _delta(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"content": text}
        case ReasoningPart(text):
            return {"reasoning_content": text}
        case CallPart(index, arguments, None):
            return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}
        case CallPart(index, arguments, name, identity):
            function = {"name": name, "arguments": arguments}
            return {"tool_calls": [{"index": index, "id": identity, "type": "function", "function": function}]}


def _message(parts: Sequence[Part]) -> dict[str, Any]:
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    thought = "".join(part.text for part in parts if isinstance(part, ReasoningPart))
    calls = joined_calls(parts)
    made: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
    if thought:
        made["reasoning_content"] = thought
    if calls:
        made["tool_calls"] = [
            {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
            for identity, name, arguments in calls
        ]
    return made


def joined_calls(parts: Sequence[Part]) -> list[tuple[str, str, str]]:
    """The calls of an answer: id, name, arguments as JSON text.

    >>> joined_calls([CallPart(0, "", "f", "call_1"), CallPart(0, "{}")])
    [('call_1', 'f', '{}')]
    """
    made: list[tuple[str, str, str]] = []
    for part in parts:
        if isinstance(part, CallPart) and part.name is not None:
            made.append((part.identity or "", part.name, part.arguments))
        elif isinstance(part, CallPart):
            identity, name, arguments = made[part.index]
            made[part.index] = identity, name, arguments + part.arguments
    return made
