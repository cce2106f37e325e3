"""OpenAI's messages and tools, as chat templates take them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from liveshape.serve.fields import Fields
from liveshape.serve.refusals import Refusal
from liveshape.serve.strict_schema import strict

_ROLES = ("system", "developer", "user", "assistant", "tool")


def template_messages(messages: list[Fields]) -> list[dict[str, Any]]:
    """Messages for a chat template: contents as text, arguments of calls as objects.

    Example: `template_messages(fields.objects("messages", 100))`.
    """
    if not messages:
        raise Refusal(400, "messages must have at least one message", "messages")
    called: dict[str, str] = {}  # the names of calls, which some templates want with their results
    return [_message(each, called) for each in messages]


def _message(message: Fields, called: dict[str, str]) -> dict[str, Any]:
    message.needed("role")
    role = message.choice("role", _ROLES)
    made: dict[str, Any] = {"role": role}
    made["content"] = text_content(message, "content")
    if made["content"] is None:
        if role != "assistant":
            raise Refusal(400, f"content is missing in a message of the role {role}", message.path("content"))
        made["content"] = ""
    name = message.text("name")
    if name is not None:
        made["name"] = name
    if role == "assistant":
        calls = [_call(each, called) for each in message.objects("tool_calls", 1024)]
        made |= {"tool_calls": calls} if calls else {}
        thought = message.text("reasoning_content")
        made |= {} if thought is None else {"reasoning_content": thought}
        message.ignore("refusal", "annotations")
    if role == "tool":
        identity = message.text("tool_call_id")
        made |= {} if identity is None else {"tool_call_id": identity}
        if identity in called:
            made.setdefault("name", called[identity])
    message.done()
    return made


def text_content(message: Fields, name: str) -> str | None:
    """The text of a field that is a text or a list of parts of text.

    >>> text_content(Fields({"content": [{"type": "text", "text": "Hi"}]}), "content")
    'Hi'
    """
    value = message.raw(name)
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise message.wrong(name, "a text or a list of parts")
    texts = []
    for part in message.objects(name, 4096):
        if part.needed("type") not in ("text", "refusal"):
            raise Refusal(400, f"parts of the type {part.raw('type')!r:.40} are not taken, text is", part.path("type"))
        texts.append(part.text("text") or part.text("refusal") or "")
    return "\n".join(texts)


def _call(call: Fields, called: dict[str, str]) -> dict[str, Any]:
    call.only("type", "function")
    function = call.inner("function")
    if function is None:
        raise Refusal(400, "function is missing", call.path("function"))
    function.needed("name")
    name, arguments = function.text("name") or "", function.raw("arguments")
    identity = call.text("id")
    if identity is not None:
        called[identity] = name
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise function.wrong("arguments", "an object as JSON text") from None
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments or {}}}


def template_tools(tools: list[Fields]) -> list[dict[str, Any]]:
    """Tools for a chat template, which takes OpenAI's own form of them.

    Example: `template_tools(fields.objects("tools", 128))`.
    """
    made, names = [], set[str]()
    for tool in tools:
        if tool.needed("type") != "function":
            raise tool.wrong("type", "'function'")
        function = tool.inner("function")
        if function is None:
            raise Refusal(400, "function is missing", tool.path("function"))
        function.needed("name")
        name, about, form = function.text("name") or "", function.text("description"), function.raw("parameters")
        if not name or name in names:
            raise Refusal(400, f"tools have names, and each its own; {name!r:.60} is none", function.path("name"))
        if form is not None and not isinstance(form, Mapping):
            raise function.wrong("parameters", "a JSON schema")
        names.add(name)
        if function.flag("strict") and form is not None:
            form = strict(form, function.path("parameters"))
        function.done()
        described = {"name": name} if about is None else {"name": name, "description": about}
        made.append({"type": "function", "function": {**described, "parameters": form or {"type": "object"}}})
    return made
