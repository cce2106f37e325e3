"""openai: chats, streams, tools, structured output, completions with echo and penalties, embeddings."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest

from tests.serve.clients.asked import CITIES, LIMITS, QUESTION, Weather
from tests.serve.clients.conftest import Server

TOOL = {
    "type": "function",
    "function": {"name": "weather", "strict": True, "parameters": Weather.model_json_schema()},
}


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.base, api_key="none", max_retries=0) as made:
        yield made


def test_a_chat_and_its_stream(client: openai.OpenAI) -> None:
    asked = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": QUESTION}], **LIMITS}
    asked |= {"frequency_penalty": 0.3, "presence_penalty": 0.2, "logit_bias": {"5": -100}}
    whole = client.chat.completions.create(**asked).choices[0].message.content
    chunks = client.chat.completions.create(**asked, stream=True)
    assert whole
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


def test_a_tool_and_a_form(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": QUESTION}]
    asked = {"model": "story", "messages": messages, **LIMITS}
    called = client.chat.completions.create(**asked, tools=[TOOL], tool_choice="required").choices[0].message
    assert Weather(**json.loads(called.tool_calls[0].function.arguments)).city in CITIES
    answer = client.chat.completions.parse(**asked, response_format=Weather).choices[0].message
    assert answer.parsed.city in CITIES


def test_texts_to_go_on_from(client: openai.OpenAI) -> None:
    told = client.completions.create(model="story", prompt="Once upon", echo=True, logprobs=1, max_tokens=0)
    assert told.choices[0].text == "Once upon"
    best = client.completions.create(model="story", prompt="Once upon", best_of=3, max_tokens=5, temperature=1)
    assert len(best.choices) == 1


def test_vectors(client: openai.OpenAI, server: Server) -> None:
    several = client.embeddings.create(model=server.encoder, input=["a cat", "a dog"])
    assert [len(each.embedding) for each in several.data] == [16, 16]


def test_the_responses_api_names_the_chat(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="/v1/chat/completions answers here"):
        client.responses.create(model="story", input="Hi")
