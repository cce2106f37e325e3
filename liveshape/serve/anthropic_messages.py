"""`/v1/messages`: requests, answers and events as Anthropic has them."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.answer_parts import CallPart, Part, ReasoningPart, TextPart
from liveshape.serve.answers import Answers
from liveshape.serve.chat_request import (
    ChatRequest,
    ChosenText,
    ToolChoice,
    forced_call,
    sampling_options,
    schema_option,
    stop_option,
)
from liveshape.serve.fields import Fields
from liveshape.serve.refusals import Refusal
from liveshape.serve.request_limits import RequestLimits
from liveshape.serve.streaming import event
from liveshape.serve.strict_schema import strict

_HARMLESS = ("metadata", "service_tier", "inference_geo")
_MODES = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}


@dataclass(frozen=True)
class AnthropicMessage:
    """A request as Anthropic's clients send it."""

    chat: ChatRequest
    model: str
    identity: str

    @classmethod
    def read(
        cls, fields: Fields, model: str, vocabulary: int, limits: RequestLimits, *, counts: bool = False
    ) -> AnthropicMessage:
        """Read and check a request, or one that asks for its number of tokens alone."""
        fields.needed("messages")
        options = {**sampling_options(fields, vocabulary), **stop_option(fields, "stop_sequences", limits)}
        if not counts:
            fields.needed("max_tokens")
        options["max_tokens"] = fields.whole("max_tokens", 1)
        tools = _tools(fields.objects("tools", limits.tools))
        choice, parallel = _tool_choice(fields, tools)
        if choice.mode == "required":
            options["json_schema"] = forced_call(tools, choice.name, limits)
        system = _text_of(fields, "system")
        messages = [] if system is None else [{"role": "system", "content": system}]
        for each in fields.objects("messages", limits.messages):
            messages += _messages(each)
        form, effort = _output(fields, limits)
        if form and tools and choice.mode != "none":
            raise Refusal(
                400, "output_config.format allows no calls: leave out tools, or set tool_choice", "output_config"
            )
        chat = ChatRequest(
            messages=messages,
            options={**options, **form},
            tools=tools,
            choice=choice,
            parallel=parallel,
            stream=fields.flag("stream"),
            template={**_thinking(fields), **effort},
        )
        fields.ignore(*_HARMLESS)
        fields.done()
        return cls(chat, model, f"msg_{secrets.token_hex(12)}")

    async def whole(self, answers: Answers, tokenizer: Tokenizer, ids: Sequence[int]) -> dict[str, Any]:
        """The answer at once."""
        reader, parts = ChosenText.of(self.chat, tokenizer, ids), list[Part]()
        async for each in answers.responses():
            if each is not None:
                parts += reader.take(each[1])
                if reader.cut:
                    await answers.stop(0)
        made = self._message(_usage(answers))
        blocks: list[dict[str, Any]] = []
        for part in parts:
            if not blocks or not _continues(blocks[-1], part):
                blocks.append(_block(part))
            _extend(blocks[-1], part)
        for block in blocks:
            if block["type"] == "tool_use":
                block["input"] = _arguments(block["input"])
        made["content"] = blocks
        made |= _ending(reader)
        return made

    async def events(
        self, answers: Answers, tokenizer: Tokenizer, ids: Sequence[int], ping: float
    ) -> AsyncGenerator[bytes, None]:
        """The answer as events."""
        reader = ChosenText.of(self.chat, tokenizer, ids)
        yield _event(
            {"type": "message_start", "message": self._message({"input_tokens": len(ids), "output_tokens": 0})}
        )
        yield _event({"type": "ping"})
        index, open_block = -1, dict[str, Any]()
        async for each in answers.responses(ping):
            if each is None:
                yield _event({"type": "ping"})
                continue
            for part in reader.take(each[1]):
                if not open_block or not _continues(open_block, part):
                    if open_block:
                        yield _event({"type": "content_block_stop", "index": index})
                    index, open_block = index + 1, _block(part)
                    shown = {**open_block, "input": {}} if open_block["type"] == "tool_use" else open_block
                    yield _event({"type": "content_block_start", "index": index, "content_block": shown})
                delta = _delta(part)
                if delta is not None:
                    yield _event({"type": "content_block_delta", "index": index, "delta": delta})
            if reader.cut:
                await answers.stop(0)
        if open_block:
            yield _event({"type": "content_block_stop", "index": index})
        yield _event({"type": "message_delta", "delta": _ending(reader), "usage": _usage(answers)})
        yield _event({"type": "message_stop"})

    def _message(self, usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": self.identity,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }


def _usage(answers: Answers) -> dict[str, int]:
    """The tokens of an answer; those of the prompt that were in the cache are told apart from the others."""
    cached = answers.cached_tokens[0]
    return {
        "input_tokens": answers.prompt_tokens[0] - cached,
        "cache_read_input_tokens": cached,
        "output_tokens": answers.generated_tokens[0],
    }


# Requests


def _messages(message: Fields) -> list[dict[str, Any]]:
    """A message for a chat template; results of tools are messages of their own there."""
    message.needed("role")
    role = message.choice("role", ("user", "assistant", "system"))
    content = message.needed("content")
    message.done()
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    texts, thoughts, calls, results = list[str](), list[str](), list[dict[str, Any]](), list[dict[str, Any]]()
    for block in message.objects("content", 4096):
        match block.needed("type"):
            case "text":
                texts.append(block.text("text") or "")
            case "thinking":
                thoughts.append(block.text("thinking") or "")
            case "redacted_thinking":
                pass
            case "tool_use":
                function = {"name": block.text("name"), "arguments": block.raw("input") or {}}
                calls.append({"id": block.text("id"), "type": "function", "function": function})
            case "tool_result":
                said = _text_of(block, "content") or ""
                results.append({"role": "tool", "content": said, "tool_call_id": block.text("tool_use_id")})
            case kind:
                raise Refusal(400, f"blocks of the type {kind!r:.40} are not taken", block.path("type"))
    made: dict[str, Any] = {"role": role, "content": "\n".join(texts)}
    made |= {"tool_calls": calls} if calls else {}
    made |= {"reasoning_content": "\n".join(thoughts)} if thoughts else {}
    return [*results, made] if texts or calls or thoughts or not results else results


def _text_of(fields: Fields, name: str) -> str | None:
    """A text, or the texts of a list of blocks."""
    value = fields.raw(name)
    if value is None or isinstance(value, str):
        return value
    blocks = fields.objects(name, 4096)
    for block in blocks:
        if block.needed("type") != "text":
            raise Refusal(400, f"blocks of the type {block.raw('type')!r:.40} are not taken here", block.path("type"))
    return "\n".join(block.text("text") or "" for block in blocks)


def _tools(tools: list[Fields]) -> list[dict[str, Any]]:
    """Tools in OpenAI's form, which chat templates take."""
    made = []
    for tool in tools:
        if tool.raw("type") not in (None, "custom"):
            raise Refusal(
                400, f"tools of the type {tool.raw('type')!r:.40} are not taken: describe it", tool.path("type")
            )
        tool.needed("name")
        name, about, form = tool.text("name"), tool.text("description"), tool.needed("input_schema")
        if not isinstance(form, dict):
            raise tool.wrong("input_schema", "a JSON schema")
        if tool.flag("strict"):
            form = strict(form, tool.path("input_schema"), all_required=False)
        described = {"name": name} if about is None else {"name": name, "description": about}
        made.append({"type": "function", "function": {**described, "parameters": form}})
    return made


def _tool_choice(fields: Fields, tools: Sequence[dict[str, Any]]) -> tuple[ToolChoice, bool]:
    """Which tools are called, and whether several at once."""
    asked = fields.inner("tool_choice")
    if asked is None:
        return ToolChoice("auto" if tools else "none"), True
    asked.needed("type")
    kind = asked.choice("type", tuple(_MODES)) or "auto"
    name, alone = asked.text("name"), asked.flag("disable_parallel_tool_use")
    asked.done()
    names = [each["function"]["name"] for each in tools]
    if (kind == "tool" and name not in names) or (kind == "any" and not tools):
        raise Refusal(400, f"{name or 'a tool'!r:.60} must be called, and is none of tools", "tool_choice")
    return ToolChoice(_MODES[kind], name if kind == "tool" else None), not alone


def _thinking(fields: Fields) -> dict[str, Any]:
    """Whether the model thinks first, as templates call it."""
    asked = fields.inner("thinking")
    if asked is None:
        return {}
    asked.needed("type")
    return {"enable_thinking": asked.choice("type", ("enabled", "disabled", "adaptive")) != "disabled"}


def _output(fields: Fields, limits: RequestLimits) -> tuple[dict[str, Any], dict[str, Any]]:
    """The form of the answer, as an option of the generation, and the effort, as a variable of the template."""
    asked = fields.inner("output_config") or Fields({})
    form, effort = asked.inner("format"), asked.text("effort")
    asked.done()
    given = {} if effort is None else {"reasoning_effort": effort}
    if form is None:
        return {}, given
    form.needed("type")
    form.choice("type", ("json_schema",))
    schema = form.needed("schema")
    form.done()
    return schema_option(strict(schema, "output_config", all_required=False), "output_config", limits), given


# Answers


def _event(document: dict[str, Any]) -> bytes:
    return event(document, document["type"])


def _continues(block: dict[str, Any], part: Part) -> bool:
    match part:
        case TextPart():
            return bool(block["type"] == "text")
        case ReasoningPart():
            return bool(block["type"] == "thinking")
        case CallPart():
            return part.name is None


def _block(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": ""}
        case ReasoningPart():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case CallPart():
            identity = (part.identity or "").replace("call_", "toolu_")
            return {"type": "tool_use", "id": identity, "name": part.name, "input": ""}


def _extend(block: dict[str, Any], part: Part) -> None:
    match part:
        case TextPart(text):
            block["text"] += text
        case ReasoningPart(text):
            block["thinking"] += text
        case CallPart():
            block["input"] += part.arguments


def _delta(part: Part) -> dict[str, Any] | None:
    match part:
        case TextPart(text):
            return {"type": "text_delta", "text": text}
        case ReasoningPart(text):
            return {"type": "thinking_delta", "thinking": text}
        case CallPart():
            return {"type": "input_json_delta", "partial_json": part.arguments} if part.arguments else None


def _arguments(text: str) -> Any:
    """The arguments of a call; those that ended too soon are none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


def _ending(reader: ChosenText) -> dict[str, Any]:
    assert reader.finish is not None
    if reader.finish.stop_string is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": reader.finish.stop_string}
    if reader.finish.finish_reason == "length":
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    return {"stop_reason": "tool_use" if reader.called else "end_turn", "stop_sequence": None}
