"""/v1/embeddings with OpenAI's own client: texts to vectors, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from liveshape.cli import main
from liveshape.llm.embedding.text_encoder import TextEncoder
from liveshape.serve.embedder import Embedder
from tests.serve.serving import Served, scripted, served
from tests.serve.test_serve_command import ask, process
from tests.support.encoders import SIZE, STATIC, dynamic, hidden, static, write_encoder
from tests.support.imported_later import ImportedLater

if TYPE_CHECKING:
    import openai
else:
    openai = ImportedLater("openai")

TEXTS = ["The cat", "Once upon a time"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = write_encoder(tmp_path_factory.mktemp("encoders") / "tiny", dynamic())
    _, engine = scripted({"hi": "Hello, you."})
    with served(engine, embedder=Embedder("tiny", lambda: TextEncoder.load(folder))) as made:
        yield made


@pytest.fixture
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def expected(ids: list[int]) -> np.ndarray:
    mean = hidden(ids)[0].mean(0)
    return (mean / mean.norm()).numpy()


def test_several_texts_have_the_vectors_of_each(server: Served, client: openai.OpenAI) -> None:
    encoder = server.service.embeds().encoder
    rows = [encoder.encode(text) for text in TEXTS]
    several = client.embeddings.create(model="tiny", input=TEXTS)
    assert [each.index for each in several.data] == [0, 1]
    assert (several.model, several.object, several.data[0].object) == ("tiny", "list", "embedding")
    assert several.usage.prompt_tokens == several.usage.total_tokens == sum(map(len, rows))
    for each, ids in zip(several.data, rows, strict=True):
        np.testing.assert_allclose(each.embedding, expected(ids), atol=1e-5)
    alone = client.embeddings.create(model="tiny", input=TEXTS[0])
    assert alone.data[0].embedding == several.data[0].embedding


def test_token_ids_are_refused_with_what_to_set(client: openai.OpenAI) -> None:
    """They are those of tiktoken where LangChain sends them."""
    given: Any
    for given in ([5, 6], [[5, 6], [7]]):
        with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False") as found:
            client.embeddings.create(model="tiny", input=given)
        assert found.value.param == "input"


@pytest.mark.parametrize("form", ["float", "base64"])
def test_both_forms_are_the_same_vector(server: Served, client: openai.OpenAI, form: Any) -> None:
    raw = server.told("/v1/embeddings", {"input": TEXTS[0], "encoding_format": form, "dimensions": SIZE})
    vector = raw["data"][0]["embedding"]
    assert isinstance(vector, str) == (form == "base64")
    usual = client.embeddings.create(model="tiny", input=TEXTS[0])  # the client asks for base64, and decodes it
    given = client.embeddings.create(model="tiny", input=TEXTS[0], encoding_format="float")
    np.testing.assert_array_equal(np.float32(usual.data[0].embedding), np.float32(given.data[0].embedding))


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ({}, "input", "is missing"),
        ({"input": ""}, "input", "is empty"),
        ({"input": []}, "input", "is empty"),
        ({"input": ["a", ""]}, "input", "is empty"),
        ({"input": [["a"]]}, "input", "token ids"),
        ({"input": ["a", 1]}, "input", "token ids"),
        ({"input": {"text": "a"}}, "input", "is a text"),
        ({"input": 5}, "input", "is a text"),
        ({"input": "a" * 200}, "input", "shorten it"),
        ({"input": ["a"] * 2049}, "input", "at most 2,048"),
        ({"input": "a", "dimensions": 8}, "dimensions", "have 16"),
        ({"input": "a", "dimensions": "all"}, "dimensions", "whole number"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", "'base64'"),
        ({"input": "a", "stream": True}, "stream", "no field"),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:40],
)
def test_a_wrong_field_is_named(server: Served, body: Any, field: str, reason: str) -> None:
    status, _, content = server.ask("/v1/embeddings", body)
    error = json.loads(content)["error"]
    assert (status, error["param"]) == (400, field)
    assert reason in error["message"]


def test_the_encoder_is_among_the_models_and_is_no_model_of_chats(server: Served, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["story", "other", "tiny"]
    assert server.told("/v1/models/tiny")["max_context"] == 24
    assert server.told("/v1/models/tiny")["tasks"] == ["embedding"]
    with pytest.raises(openai.NotFoundError, match="story, other is"):
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(openai.NotFoundError, match="tiny is"):
        client.embeddings.create(model="story", input="a")


def test_a_server_without_an_encoder_says_how_to_have_one() -> None:
    _, engine = scripted({"hi": "Hello, you."})
    with served(engine) as made:
        status, _, content = made.ask("/v1/embeddings", {"input": "a"})
    assert status == 400
    assert "--embeddings ENCODER" in json.loads(content)["error"]["message"]


class Gated(TextEncoder):
    """An encoder whose device is lost when it is told so."""

    gone = False

    @property
    def lost(self) -> bool:
        return self.gone


def test_a_full_queue_and_a_lost_device(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "tiny", static())
    opened: list[Gated] = []

    def load() -> TextEncoder:
        found = Gated.load(folder)
        assert isinstance(found, Gated)
        opened.append(found)
        return found

    _, engine = scripted({"hi": "Hello, you."})
    full = Embedder("tiny", load, max_waiting=0)
    with served(engine, embedder=full) as made:
        status, headers, _ = made.ask("/v1/embeddings", {"input": "a"})
        assert (status, headers["retry-after"]) == (429, "1")
    _, engine = scripted({"hi": "Hello, you."})
    with served(engine, embedder=Embedder("tiny", load)) as made:
        before = made.told("/v1/embeddings", {"input": "a" * STATIC})
        opened[-1].gone = True
        assert made.told("/v1/embeddings", {"input": "a" * STATIC}) == before
        assert len(opened) == 3


@pytest.mark.slow
def test_the_command_serves_both(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "tiny", dynamic())
    words = ["--embeddings", str(folder), "--pooling", "cls", "--max-sequences", "2", "--cache-size", "3MiB"]
    with process("story", *words) as (_, lines, port):
        assert any(line["event"] == "ready" for line in lines)
        status, told = ask(port, "/v1/embeddings", {"input": "cat", "model": "tiny"})
        assert status == 200
        ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode("cat").ids
        first = hidden(ids)[0][0]
        np.testing.assert_allclose(told["data"][0]["embedding"], (first / first.norm()).numpy(), atol=1e-5)
        assert ask(port, "/v1/completions", {"prompt": "Once", "max_tokens": 2})[0] == 200


def test_a_pooling_without_an_encoder_is_wrong_usage(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "story", "--port", "0", "--pooling", "cls"]) == 2
    assert "name it with --embeddings" in capfd.readouterr().err
