"""Anthropic's own client: messages, streams, tools, reasoning, counting, errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import pydantic
import pytest

from tests.serve.serving import Served, scripted, scripted_together, served
from tests.support.imported_later import ImportedLater

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = ImportedLater("anthropic")

TOOL: Any = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
SAYS = {
    "22 degrees": "It is warm.",
    "weather": 'I look. <tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>',
    "think": "<think>\nLet me see.</think>\nYes.",
    "cats": "Cats are small. The end.",
    "hi": "Hello, you.",
}


@pytest.fixture(scope="module", params=[scripted, scripted_together])
def server(request: pytest.FixtureRequest) -> Iterator[Served]:
    _, engine = request.param(SAYS)
    with served(engine) as made:
        yield made


@pytest.fixture
def client(server: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as made:
        yield made


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


def ask(client: anthropic.Anthropic, text: str, **options: Any) -> Any:
    return client.messages.create(**{"model": "story", "max_tokens": 200, "messages": user(text), **options})


def prompt_tokens(usage: Any) -> int:
    """All of them: those that were in the cache are told apart."""
    return int(usage.input_tokens + usage.cache_read_input_tokens)


def test_a_message(client: anthropic.Anthropic) -> None:
    answer = ask(client, "hi", system="Be brief.", metadata={"user_id": "me"})
    assert [(block.type, block.text) for block in answer.content] == [("text", "Hello, you.")]
    assert (answer.role, answer.stop_reason, answer.stop_sequence) == ("assistant", "end_turn", None)
    assert prompt_tokens(answer.usage) > 10
    assert answer.usage.output_tokens > 5


def test_why_it_ended(client: anthropic.Anthropic) -> None:
    assert ask(client, "cats", max_tokens=2).stop_reason == "max_tokens"
    stopped = ask(client, "cats", stop_sequences=["xyz", " The"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " The")
    assert stopped.content[0].text == "Cats are small."


def test_a_stream_says_the_same(client: anthropic.Anthropic) -> None:
    for text in SAYS:
        whole = ask(client, text, tools=[TOOL])
        asked: Any = {"model": "story", "max_tokens": 200, "messages": user(text), "tools": [TOOL]}
        with client.messages.stream(**asked) as stream:
            final = stream.get_final_message()
        for one, other in zip(whole.content, final.content, strict=True):
            assert one.model_dump(exclude={"id"}) == other.model_dump(exclude={"id", "parsed_output"})
        assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
        assert prompt_tokens(final.usage) == prompt_tokens(whole.usage)
        # The same prompt again: all but what lies behind its last full page, or its last token.
        assert 1 <= final.usage.input_tokens <= 4


def test_the_events_of_a_stream(client: anthropic.Anthropic) -> None:
    kinds = [each.type for each in ask(client, "weather", tools=[TOOL], stream=True)]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2


def test_a_tool_is_called_and_its_result_is_told(client: anthropic.Anthropic) -> None:
    answer = ask(client, "weather", tools=[TOOL])
    text, call = answer.content
    assert text.text == "I look."
    assert (call.type, call.name, call.input) == ("tool_use", "weather", {"city": "Paris"})
    assert answer.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "warm"}]}
    more = [
        *user("weather"),
        {"role": "assistant", "content": [block.model_dump() for block in answer.content]},
        {"role": "user", "content": [result, {"type": "text", "text": "so, 22 degrees?"}]},
    ]
    assert ask(client, "", messages=more, tools=[TOOL]).content[0].text == "It is warm."


def test_reasoning_is_a_block_of_its_own(client: anthropic.Anthropic) -> None:
    thought, text = ask(client, "think").content
    assert (thought.type, thought.thinking, text.text) == ("thinking", "Let me see.", "Yes.")
    (opened,) = ask(client, "hi", thinking={"type": "enabled", "budget_tokens": 1024}).content
    assert opened.thinking == "Hello, you."


def test_tokens_are_counted_as_they_are_used(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model="story", messages=user("hi"), system="Be brief.").input_tokens
    assert counted == prompt_tokens(ask(client, "hi", system="Be brief.").usage)


def test_a_call_that_must_be_is_one(client: anthropic.Anthropic) -> None:
    for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
        answer = ask(client, "hi", tools=[TOOL], tool_choice=choice, max_tokens=60)
        assert answer.content[0].name == "weather"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"extra_body": {"temperature": -1}}, "temperature"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"stop_sequences": ["x" * 4097]}, "stop_sequences"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].type"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"extra_body": {"magic": 1}}, "magic"),
        ({"messages": user("hi " * 5000)}, "messages"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_is_wrong_is_refused_with_its_field(
    client: anthropic.Anthropic, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as found:
        ask(client, "hi", **given)
    body: Any = found.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith(f"{field}:")


def test_an_answer_goes_on_from_what_the_assistant_began(client: anthropic.Anthropic) -> None:
    begun = [*user("hi"), {"role": "assistant", "content": "Hel"}]
    assert ask(client, "", messages=begun).content[0].text == "lo, you."
    counted = client.messages.count_tokens(model="story", messages=begun).input_tokens
    assert 0 < counted - client.messages.count_tokens(model="story", messages=user("hi")).input_tokens <= len("Hel")


class Answer(pydantic.BaseModel):
    yes: Literal["yes"]
    number: Literal[4]


def test_an_answer_of_a_given_form(client: anthropic.Anthropic) -> None:
    asked: Any = {"model": "story", "max_tokens": 80, "messages": user("hi")}
    message = client.messages.parse(**asked, output_format=Answer)
    assert message.parsed_output == Answer(yes="yes", number=4)
    schema = {"type": "object", "properties": {"n": {"enum": [1]}}, "required": ["n"]}
    form = {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}
    assert ask(client, "hi", extra_body={"output_config": form}).content[0].text.replace(" ", "") == '{"n":1}'
    with pytest.raises(anthropic.BadRequestError, match="allows no calls"):
        ask(client, "hi", tools=[TOOL], extra_body={"output_config": form})


def test_another_model_is_not_found(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        ask(client, "hi", model="claude")
    assert [model.id for model in client.models.list()] == ["story", "other"]


def test_many_at_once(server: Served) -> None:
    async def all_of_them() -> list[str]:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as client:

            async def one(index: int) -> str:
                asked: Any = {"model": "story", "max_tokens": 99, "messages": user(("hi", "cats")[index % 2])}
                async with client.messages.stream(**asked) as stream:
                    return await stream.get_final_text()

            return await asyncio.gather(*(one(index) for index in range(16)))

    assert asyncio.run(all_of_them()) == [SAYS[("hi", "cats")[index % 2]] for index in range(16)]
