"""Frameworks that speak OpenAI's API: chats, streams, tools or structured output, embeddings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.serve.clients.asked import CITIES, LIMITS, QUESTION, Weather
from tests.serve.clients.conftest import Server

USER = [{"role": "user", "content": QUESTION}]


def test_litellm(server: Server) -> None:
    litellm = pytest.importorskip("litellm")
    asked: dict[str, Any] = {
        "model": "openai/story",
        "api_base": server.base,
        "api_key": "none",
        "messages": USER,
        **LIMITS,
    }
    assert litellm.completion(**asked).choices[0].message.content
    chunks = list(litellm.completion(**asked, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    formed = litellm.completion(**asked, response_format=Weather).choices[0].message.content
    assert Weather.model_validate_json(formed).city in CITIES
    by_anthropic = {**asked, "model": "anthropic/story", "api_base": server.url}
    by_anthropic.pop("seed")
    assert litellm.completion(**by_anthropic).choices[0].message.content
    vectors = litellm.embedding(model="openai/tiny", api_base=server.base, api_key="none", input=["a cat"])
    assert len(vectors.data[0]["embedding"]) == 16


def test_langchain(server: Server) -> None:
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(base_url=server.base, api_key="none", model="gpt-4o-mini", **LIMITS)
    assert model.invoke(QUESTION).content
    assert "".join(str(each.content) for each in model.stream(QUESTION))
    assert model.with_structured_output(Weather, method="json_schema").invoke(QUESTION).city in CITIES
    called = model.bind_tools([Weather], tool_choice="required").invoke(QUESTION)
    assert called.tool_calls[0]["args"]["city"] in CITIES
    address = {"base_url": server.base, "api_key": "none", "model": server.encoder}
    vectors = langchain.OpenAIEmbeddings(**address, check_embedding_ctx_length=False)
    assert len(vectors.embed_query("a cat")) == 16


def test_langchain_is_told_what_to_set(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default it sends token ids of OpenAI's tokenizer, which it would fetch from the net."""
    langchain = pytest.importorskip("langchain_openai")
    import openai
    import tiktoken

    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda *_: _Codes())
    monkeypatch.setattr(tiktoken, "get_encoding", lambda *_: _Codes())
    vectors = langchain.OpenAIEmbeddings(base_url=server.base, api_key="none", model=server.encoder)
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        vectors.embed_query("a cat")


class _Codes:
    """An encoding of bytes."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(text.encode())

    encode_ordinary = encode


def test_llama_index(server: Server) -> None:
    models = pytest.importorskip("llama_index.llms.openai_like")
    from llama_index.core.llms import ChatMessage
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding

    model = models.OpenAILike(
        model="story", api_base=server.base, api_key="none", is_chat_model=True, max_tokens=40, context_window=512
    )
    said = [ChatMessage(role="user", content=QUESTION)]
    assert model.chat(said).message.content
    assert "".join(each.delta or "" for each in model.stream_chat(said))
    formed = models.OpenAILike(
        model="story",
        api_base=server.base,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_tokens=60,
    )
    program = formed.as_structured_llm(Weather)
    assert program.chat(said).raw.city in CITIES
    plain = models.OpenAILike(model="story", api_base=server.base, api_key="none", is_chat_model=False, max_tokens=9)
    assert plain.complete("Once upon a time").text
    vectors = OpenAILikeEmbedding(model_name=server.encoder, api_base=server.base, api_key="none")
    assert len(vectors.get_text_embedding("a cat")) == 16


@pytest.mark.parametrize("mode", ["JSON_SCHEMA", "TOOLS", "TOOLS_STRICT"])
def test_instructor(server: Server, mode: str) -> None:
    instructor = pytest.importorskip("instructor")
    from openai import OpenAI

    plain = OpenAI(base_url=server.base, api_key="none")
    client = instructor.from_openai(plain, mode=getattr(instructor.Mode, mode))
    made = client.chat.completions.create(model="story", messages=USER, response_model=Weather, max_retries=0, **LIMITS)
    assert made.city in CITIES


def test_pydantic_ai(server: Server) -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("story", provider=OpenAIProvider(base_url=server.base, api_key="none"))
    settings: Any = {"max_tokens": 60, "seed": 3}
    assert Agent(model).run_sync(QUESTION, model_settings=settings).output
    for kind in (Weather, NativeOutput(Weather)):
        assert Agent(model, output_type=kind).run_sync(QUESTION, model_settings=settings).output.city in CITIES

    async def told() -> str:
        async with Agent(model).run_stream(QUESTION, model_settings=settings) as answer:
            return "".join([text async for text in answer.stream_text(delta=True)])

    assert asyncio.run(told())


def test_openai_agents(server: Server) -> None:
    agents = pytest.importorskip("agents")
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=server.base, api_key="none")
    model = agents.OpenAIChatCompletionsModel(model="story", openai_client=client)
    settings = agents.ModelSettings(max_tokens=60, frequency_penalty=0.2)
    plain = agents.Agent(name="teller", model=model, model_settings=settings)
    assert agents.Runner.run_sync(plain, QUESTION).final_output
    formed = agents.Agent(name="reporter", model=model, model_settings=settings, output_type=Weather)
    assert agents.Runner.run_sync(formed, QUESTION).final_output.city in CITIES


def test_smolagents(server: Server) -> None:
    smolagents = pytest.importorskip("smolagents")
    model = smolagents.OpenAIModel(model_id="story", api_base=server.base, api_key="none", **LIMITS)
    said = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    assert model(said).content
    assert "".join(each.content or "" for each in model.generate_stream(said))
    agent = smolagents.ToolCallingAgent(tools=[], model=model, max_steps=1)
    assert agent.run(QUESTION) is not None  # the one tool that it may call is the final answer


def test_dspy(server: Server) -> None:
    dspy = pytest.importorskip("dspy")
    # By this name, at a server with --any-model, it knows that schemas are followed.
    model = dspy.LM("openai/gpt-4o-mini", api_base=server.base, api_key="none", cache=False, max_tokens=60)
    assert model(QUESTION)

    class Report(dspy.Signature):
        """Tell the weather."""

        question: str = dspy.InputField()
        report: Weather = dspy.OutputField()

    with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
        assert dspy.Predict(Report)(question=QUESTION).report.city in CITIES
