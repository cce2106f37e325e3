"""anthropic: messages, streams, tools, structured output, an answer that was begun."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import pytest

from tests.serve.clients.asked import CITIES, QUESTION, Weather
from tests.serve.clients.conftest import Server

ASKED = {"model": "claude-sonnet-4-5", "max_tokens": 60, "messages": [{"role": "user", "content": QUESTION}]}


@pytest.fixture
def client(server: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as made:
        yield made


def test_a_message_and_a_stream(client: anthropic.Anthropic) -> None:
    assert client.messages.create(**ASKED).content[0].text
    with client.messages.stream(**ASKED) as stream:
        assert "".join(stream.text_stream)
    begun = [*ASKED["messages"], {"role": "assistant", "content": "There was a little"}]
    assert client.messages.create(**{**ASKED, "messages": begun}).content[0].text
    assert client.messages.count_tokens(model="story", messages=begun).input_tokens > 3


def test_a_tool_and_a_form(client: anthropic.Anthropic) -> None:
    tool = {"name": "weather", "input_schema": Weather.model_json_schema(), "strict": True}
    called = client.messages.create(**ASKED, tools=[tool], tool_choice={"type": "any"}).content[0]
    assert called.type == "tool_use"
    assert Weather(**called.input).city in CITIES
    assert client.messages.parse(**ASKED, output_format=Weather).parsed_output.city in CITIES
