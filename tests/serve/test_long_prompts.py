"""A text that cannot fit is refused at once, on every route, and a long one never stands in the way of others."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from liveshape.llm.text import tokenizer as tokenizer_module
from liveshape.serve.request_limits import RequestLimits
from tests.serve.serving import PATIENCE, Served, scripted, served

LONG = "a " * 100_000
SAID = [{"role": "user", "content": LONG}]
BODIES: dict[str, Any] = {
    "/v1/completions": {"prompt": LONG},
    "/v1/chat/completions": {"messages": SAID},
    "/v1/messages": {"messages": SAID, "max_tokens": 5},
}
COUNTED: dict[str, Any] = {
    "/v1/messages/count_tokens": {"messages": SAID},
    "/tokenize": {"content": LONG},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    _, engine = scripted({"hi": "Hello."}, context=256)
    with served(engine, limits=RequestLimits(counted_characters=50_000)) as made:
        yield made


@pytest.mark.parametrize("route", [*BODIES, *COUNTED])
def test_what_cannot_fit_is_refused_unencoded(server: Served, route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "encoded_ids", None)  # a call of it is status 500
    status, _, body = server.ask(route, {**BODIES, **COUNTED}[route])
    error = json.loads(body)["error"]
    assert status == 400, error
    if route in BODIES:
        assert "at least" in error["message"]
        assert "the context of this model takes 256" in error["message"]
        assert route == "/v1/messages" or error["code"] == "context_length_exceeded"
    else:
        assert "at most 50,000" in error["message"]


def test_long_texts_are_encoded_aside_and_end_with_their_clients(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six clients whose texts take for ever: others are answered meanwhile, and all ends when they leave."""
    monkeypatch.setattr(server.service, "limits", RequestLimits())
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)

    def endless(text: str, add_special_tokens: bool, mark: str | None, left: threading.Event) -> list[int]:
        begun.release()
        assert left.wait(PATIENCE)
        ended.release()
        raise ValueError("nobody reads this")

    monkeypatch.setattr(
        server.service.long._process("the context of this model", server.engine.tokenizer), "encode", endless
    )
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE) for _ in range(6)]
    for connection in connections:
        connection.request("POST", "/tokenize", json.dumps({"content": LONG}))
    assert begun.acquire(timeout=PATIENCE)
    assert server.told("/tokenize", {"content": "hi"})["count"] == 2
    for connection in connections:
        connection.close()
    for _ in range(4):  # the others had not begun
        assert ended.acquire(timeout=PATIENCE)
