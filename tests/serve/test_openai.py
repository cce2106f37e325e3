"""OpenAI's own client: answers, streams, tools, forms, log-probabilities, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from liveshape.llm.generation.logprobs import Logprobs
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.completion_logprobs import TokenRows
from liveshape.serve.openai_options import likely_token
from liveshape.serve.strict_schema import closed
from tests.llm.texts import sentencepiece
from tests.serve.serving import Served, scripted, scripted_together, served
from tests.support.imported_later import ImportedLater

if TYPE_CHECKING:
    import openai
else:
    openai = ImportedLater("openai")

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SAYS = {
    "weather": 'I look. <tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "both": '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>\n'
    '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>',
    "bare": '{"name": "weather", "parameters": {"city": "Bern"}}',
    "22 degrees": "It is warm.",
    "think": "<think>\nLet me see.\n</think>\n\nYes.",
    "cats": "Cats 😀 are small. The end.",
    "hi": "Hello, you.",
}


@pytest.fixture(scope="module", params=[scripted, scripted_together])
def server(request: pytest.FixtureRequest) -> Iterator[Served]:
    _, engine = request.param(SAYS)
    with served(engine) as made:
        yield made


@pytest.fixture
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


def test_an_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="story", messages=user("hi"))
    assert answer.object == "chat.completion"
    assert answer.model == "story"
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello, you.")
    assert choice.finish_reason == "stop"
    assert choice.message.tool_calls is None
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 10


def test_a_stream_says_the_same_and_ends_with_the_usage(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="story", messages=user("cats"))
    options: Any = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(model="story", messages=user("cats"), stream=True, stream_options=options)
    )
    *_, last, end = chunks
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content == SAYS["cats"]
    assert last.choices[0].finish_reason == "stop"
    assert end.choices == []
    assert end.usage is not None
    assert whole.usage is not None
    assert end.usage.model_copy(update={"prompt_tokens_details": None}) == whole.usage.model_copy(
        update={"prompt_tokens_details": None}
    )
    for told in (whole.usage, end.usage):
        assert told.prompt_tokens_details is not None
    # The same prompt again: all but what lies behind its last full page, or its last token.
    cached = end.usage.prompt_tokens_details.cached_tokens or 0  # type: ignore[union-attr]
    assert end.usage.prompt_tokens - 4 <= cached < end.usage.prompt_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stop_string_and_a_limit_end_an_answer(client: openai.OpenAI) -> None:
    stopped = client.chat.completions.create(model="story", messages=user("cats"), stop=["small"]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == ("Cats 😀 are ", "stop")
    for name in ("max_tokens", "max_completion_tokens"):
        limit: Any = {name: 3}
        cut = client.chat.completions.create(model="story", messages=user("cats"), **limit)
        assert cut.choices[0].finish_reason == "length"
        assert cut.usage is not None
        assert cut.usage.completion_tokens == 3


def test_several_answers_come_side_by_side(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="story", messages=user("hi"), n=3, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert {choice.message.content for choice in answer.choices} == {"Hello, you."}
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(model="story", messages=user("hi"), n=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == ["Hello, you."] * 3


def test_log_probabilities_are_those_of_the_text(client: openai.OpenAI) -> None:
    asked: Any = {"model": "story", "messages": user("hi"), "logprobs": True, "top_logprobs": 2}
    choice = client.chat.completions.create(**asked).choices[0]
    assert choice.logprobs is not None
    rows = choice.logprobs.content
    assert rows is not None
    assert "".join(row.token for row in rows) == choice.message.content
    assert all(row.logprob <= 0 and len(row.top_logprobs) == 2 for row in rows)
    assert all(row.top_logprobs[0].token == row.token for row in rows)
    assert bytes(byte for row in rows for byte in row.bytes or ()).decode() == "Hello, you."
    streamed = [
        row.token
        for chunk in client.chat.completions.create(**asked, stream=True)
        for each in chunk.choices
        for row in (each.logprobs.content or [] if each.logprobs else [])
    ]
    assert streamed == [row.token for row in rows]


def test_a_tool_is_called_and_its_result_is_told(client: openai.OpenAI) -> None:
    messages = user("the weather?")
    choice = client.chat.completions.create(model="story", messages=messages, tools=[TOOL]).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Paris"})
    result = {"role": "tool", "tool_call_id": call.id, "content": "22 degrees"}
    more: Any = [*messages, choice.message.model_dump(exclude_none=True), result, *user("so, 22 degrees?")]
    assert client.chat.completions.create(model="story", messages=more, tools=[TOOL]).choices[0].message.content == (
        "It is warm."
    )


def test_calls_stream_in_the_chunks_that_the_client_joins(client: openai.OpenAI) -> None:
    calls: dict[int, dict[str, str]] = {}
    finish = None
    for chunk in client.chat.completions.create(model="story", messages=user("both"), tools=[TOOL], stream=True):
        for each in chunk.choices[0].delta.tool_calls or []:
            if each.id is not None:
                assert each.type == "function"
                assert each.function is not None
                calls[each.index] = {"id": each.id, "name": each.function.name or "", "arguments": ""}
            assert each.function is not None
            calls[each.index]["arguments"] += each.function.arguments or ""
        finish = chunk.choices[0].finish_reason or finish
    assert [json.loads(call["arguments"]) for call in calls.values()] == [{"city": "Rome"}, {"city": "Oslo"}]
    assert len({call["id"] for call in calls.values()}) == 2
    assert finish == "tool_calls"
    with client.chat.completions.stream(model="story", messages=user("both"), tools=[TOOL]) as stream:
        final = stream.get_final_completion().choices[0].message
    assert [json.loads(call.function.arguments)["city"] for call in final.tool_calls or []] == ["Rome", "Oslo"]


def test_one_call_at_a_time_where_it_is_asked_for(client: openai.OpenAI) -> None:
    asked: Any = {"model": "story", "messages": user("both"), "tools": [TOOL], "parallel_tool_calls": False}
    choice = client.chat.completions.create(**asked).choices[0]
    assert [json.loads(call.function.arguments) for call in choice.message.tool_calls or []] == [{"city": "Rome"}]
    assert choice.finish_reason == "tool_calls"


def test_a_bare_call_is_a_call_and_without_tools_it_is_text(client: openai.OpenAI) -> None:
    asked: Any = {"model": "story", "messages": user("bare")}
    called = client.chat.completions.create(**asked, tools=[TOOL]).choices[0].message
    assert called.content is None
    assert json.loads((called.tool_calls or [])[0].function.arguments) == {"city": "Bern"}
    for options in ({}, {"tools": [TOOL], "tool_choice": "none"}):
        assert client.chat.completions.create(**asked, **options).choices[0].message.content == SAYS["bare"]


def test_a_call_that_must_be_is_one(client: openai.OpenAI) -> None:
    named: Any = {"type": "function", "function": {"name": "weather"}}
    for choice in ("required", named):
        answer = client.chat.completions.create(
            model="story", messages=user("hi"), tools=[TOOL], tool_choice=choice, max_tokens=60
        )
        (call,) = answer.choices[0].message.tool_calls or []
        assert call.function.name == "weather"
        assert call.function.arguments.startswith("{")


def test_reasoning_has_a_field_of_its_own(client: openai.OpenAI) -> None:
    message: Any = client.chat.completions.create(model="story", messages=user("think")).choices[0].message
    assert (message.reasoning_content, message.content) == ("Let me see.\n", "Yes.")
    parts = {"reasoning_content": "", "content": ""}
    for chunk in client.chat.completions.create(model="story", messages=user("think"), stream=True):
        for name in parts:
            parts[name] += getattr(chunk.choices[0].delta, name, None) or ""
    assert parts == {"reasoning_content": "Let me see.\n", "content": "Yes."}
    opened = {"chat_template_kwargs": {"enable_thinking": True}}
    message = client.chat.completions.create(model="story", messages=user("hi"), extra_body=opened).choices[0].message
    assert message.reasoning_content == "Hello, you."


def test_an_answer_of_a_given_form(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    forms: Any = [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}]
    for form in forms:
        answer = client.chat.completions.create(
            model="story", messages=user("hi"), response_format=form, max_tokens=40, seed=3, temperature=1.5
        )
        assert (answer.choices[0].message.content or "").startswith("{")
    bad: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "nothing"}}}
    with pytest.raises(openai.BadRequestError) as found:
        client.chat.completions.create(model="story", messages=user("hi"), response_format=bad)
    assert found.value.param == "response_format"
    assert client.chat.completions.create(model="story", messages=user("hi")).choices[0].message.content


def test_a_strict_form_is_closed(client: openai.OpenAI) -> None:
    """All properties are required and there are no others, in tools that must be called, too."""
    schema = {"type": "object", "properties": {"n": {"enum": [1]}, "in": {"properties": {"m": {"enum": [2]}}}}}
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    asked: Any = {"model": "story", "messages": user("hi"), "max_tokens": 80, "seed": 3}
    answer = client.chat.completions.create(**asked, response_format=form).choices[0].message
    assert json.loads(answer.content or "") == {"n": 1, "in": {"m": 2}}
    tool: Any = {"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}
    answer = client.chat.completions.create(**asked, tools=[tool], tool_choice="required").choices[0].message
    assert json.loads(answer.tool_calls[0].function.arguments) == {"n": 1, "in": {"m": 2}}
    form["json_schema"]["schema"] = {"type": "object", "additionalProperties": {"type": "integer"}}
    with pytest.raises(openai.BadRequestError, match="leave strict out"):
        client.chat.completions.create(**asked, response_format=form)


def test_a_form_is_closed_where_it_says_nothing_of_more(client: openai.OpenAI) -> None:
    """What is written fits the schema either way, and ends."""
    inner = {"type": "object", "properties": {"m": {"enum": [2]}}, "required": ["m"]}
    schema = {"type": "object", "properties": {"n": {"enum": [1]}, "in": inner}, "required": ["n", "in"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    asked: Any = {"model": "story", "messages": user("hi"), "max_tokens": 80, "seed": 3}
    answer = client.chat.completions.create(**asked, response_format=form).choices[0].message
    assert json.loads(answer.content or "") == {"n": 1, "in": {"m": 2}}
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": schema}}
    answer = client.chat.completions.create(**asked, tools=[tool], tool_choice="required").choices[0].message
    assert json.loads(answer.tool_calls[0].function.arguments) == {"n": 1, "in": {"m": 2}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {}}, "required": ["a", "b"]},
        {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
        {"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["b"]}, {"required": ["c"]}]},
        {"type": "object", "properties": {"a": {}}, "patternProperties": {"^b": {}}},
        {"enum": [{"properties": {"a": 1}}]},
        True,
        5,
    ],
    ids=str,
)
def test_a_form_stays_open_where_something_else_may_be_wanted(schema: Any) -> None:
    assert closed(schema) == schema


def test_an_answer_goes_on_from_what_the_assistant_began(client: openai.OpenAI) -> None:
    begun: Any = [*user("hi"), {"role": "assistant", "content": "Hel"}]
    for stream in (False, True):
        answer: Any = client.chat.completions.create(model="story", messages=begun, stream=stream)
        text = "".join(each.choices[0].delta.content or "" for each in answer) if stream else None
        assert (text or answer.choices[0].message.content) == "lo, you."
    empty: Any = [*user("hi"), {"role": "assistant", "content": ""}]
    assert client.chat.completions.create(model="story", messages=empty).choices[0].message.content == "Hello, you."
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    called: Any = [*user("hi"), {"role": "assistant", "content": "So.", "tool_calls": [call]}]
    with pytest.raises(openai.BadRequestError, match="add their results"):
        client.chat.completions.create(model="story", messages=called)


def test_a_bias_decides_what_is_said(server: Served, client: openai.OpenAI) -> None:
    (token,) = server.engine.tokenizer.encode("x", add_special_tokens=False)
    bias = {str(token): 100}
    asked: Any = {"model": "story", "messages": user("hi"), "max_tokens": 3, "presence_penalty": 1, "temperature": 0}
    answer = client.chat.completions.create(**asked, logit_bias=bias, frequency_penalty=-2)
    assert answer.choices[0].message.content == "xxx"


def test_texts_to_go_on_from(client: openai.OpenAI) -> None:
    opening = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    answer = client.completions.create(model="story", prompt=opening, max_tokens=50, logprobs=1)
    assert answer.choices[0].text == "Hello, you."
    rows = answer.choices[0].logprobs
    assert rows is not None
    assert "".join(rows.tokens or []) == "Hello, you."
    several = client.completions.create(model="story", prompt=[opening, opening.replace("hi", "cats")], n=2)
    assert [choice.text[:3] for choice in several.choices] == ["Hel", "Hel", "Cat", "Cat"]
    assert several.usage is not None
    assert several.usage.completion_tokens <= 4 * 16
    chunks = client.completions.create(model="story", prompt=opening, max_tokens=50, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hello, you."


def test_log_probabilities_with_the_spaces_of_words() -> None:
    """As sentencepiece has them; of tokens with one text, such as parts of characters, the likeliest is told."""
    tokenizer = Tokenizer(sentencepiece())
    cat, comma = tokenizer.encode("cat,", add_special_tokens=False)
    likely, rows = TokenRows(tokenizer), []
    for token in (cat, comma, cat):
        found = Logprobs(-0.1, ((token, -0.1), (3 + 0xC3, -3.0), (3 + 0xE2, -9.0)))
        row = likely.row(GenerationResponse("", token, 1, 0.0, 1, 0.0, 0.0, logprobs=found))
        assert row is not None
        rows.append(row)
    assert [row["tokens"] for row in rows] == [[" cat"], [","], [" cat"]]
    assert [row["text_offset"] for row in rows] == [[0], [4], [5]]
    assert rows[0]["top_logprobs"] == [{" cat": -0.1, "\N{REPLACEMENT CHARACTER}": -3.0}]
    assert likely_token(tokenizer, cat, -0.1) == {"token": " cat", "logprob": -0.1, "bytes": list(b" cat")}


def test_models_are_listed_and_others_are_not_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["story", "other"]
    assert client.models.retrieve("other").id == "other"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")
    with pytest.raises(openai.NotFoundError) as found:
        client.chat.completions.create(model="gpt", messages=user("hi"))
    assert found.value.code == "model_not_found"


LONG = "x" * (1 << 18)


def form(schema: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}


def tool(parameters: Any) -> Any:
    return {"type": "function", "function": {"name": "tool", "parameters": parameters}}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "temperature": ({"temperature": -1}, "temperature"),
    "a word for a number": ({"temperature": "hot"}, "temperature"),
    "top_p": ({"top_p": 0}, "top_p"),
    "n": ({"n": 99}, "n"),
    "stop": ({"stop": [""]}, "stop"),
    "a long stop string": ({"stop": ["x" * 4097]}, "stop"),
    "a long schema": ({"response_format": form({"enum": [LONG]})}, "response_format"),
    "a long schema of a tool": ({"tools": [tool({"enum": [LONG]})], "tool_choice": "required"}, "tools"),
    "max_tokens": ({"max_tokens": 0}, "max_tokens"),
    "top_logprobs alone": ({"top_logprobs": 2}, "top_logprobs"),
    "a penalty": ({"frequency_penalty": 2.5}, "frequency_penalty"),
    "another penalty": ({"presence_penalty": "much"}, "presence_penalty"),
    "a bias": ({"logit_bias": {"5": 101}}, "logit_bias"),
    "a bias of no token": ({"logit_bias": {"cat": 1}}, "logit_bias"),
    "a bias of a token beyond": ({"logit_bias": {"99999999": 1}}, "logit_bias"),
    "an unknown field": ({"extra_body": {"magic": 1}}, "magic"),
    "no messages": ({"messages": []}, "messages"),
    "an unknown role": ({"messages": [{"role": "king", "content": "Hi"}]}, "messages[0].role"),
    "no content": ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    "a picture": ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
    "a tool without a name": ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    "a choice of no tool": ({"tool_choice": "required"}, "tool_choice"),
    "too long": ({"messages": [{"role": "user", "content": "hi " * 5000}]}, "messages"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_with_its_field(client: openai.OpenAI, name: str) -> None:
    given, field = WRONG[name]
    with pytest.raises(openai.BadRequestError) as found:
        client.chat.completions.create(**{"model": "story", "messages": user("hi"), **given})
    assert found.value.param == field
    assert found.value.type == "invalid_request_error"


def test_harmless_fields_change_nothing(client: openai.OpenAI) -> None:
    harmless: Any = {"user": "me", "metadata": {"a": "b"}, "store": False, "frequency_penalty": 0, "logit_bias": {}}
    assert client.chat.completions.create(model="story", messages=user("hi"), **harmless).choices[0].message.content


def test_sixteen_at_once_get_their_own_answers(server: Served) -> None:
    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:

            async def one(index: int) -> str | None:
                asked: Any = {"model": "story", "messages": user(("hi", "cats")[index % 2])}
                if index % 3:
                    return (await client.chat.completions.create(**asked)).choices[0].message.content
                stream = await client.chat.completions.create(**asked, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return await asyncio.gather(*(one(index) for index in range(16)))

    assert asyncio.run(ask()) == [SAYS[("hi", "cats")[index % 2]] for index in range(16)]
