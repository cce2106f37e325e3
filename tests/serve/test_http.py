"""What is beside the text: keys, limits, broken bodies, health, metrics, tokens, other sites."""

from __future__ import annotations

import io
import json
import logging
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from liveshape.llm.serving.serial_engine import SerialEngine
from liveshape.serve import header_deadline
from liveshape.serve.page import headers as page_headers
from liveshape.serve.page import page
from liveshape.serve.request_limits import RequestLimits
from liveshape.serve.request_log import JsonLines, logger
from liveshape.serve.service import model_name
from tests.llm.texts import FakeModel, chatty, plain
from tests.serve.serving import PATIENCE, Served, scripted, served, until

SAYS = {"hi": "Hello, you."}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
ROUTES = {
    "/metrics": None,
    "/v1/models": None,
    "/v1/models/story": None,
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "hi"},
    "/v1/messages": {**CHAT, "max_tokens": 5},
    "/v1/messages/count_tokens": CHAT,
    "/tokenize": {"content": "hi"},
    "/detokenize": {"tokens": [5]},
    "/nothing": None,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    _, engine = scripted(SAYS)
    with served(engine, limits=RequestLimits(body_bytes=100_000)) as made:
        yield made


@pytest.fixture(scope="module")
def locked() -> Iterator[Served]:
    _, engine = scripted(SAYS)
    with served(engine, key="secret", cors=("https://friend.example",), hosts=("127.0.0.1",)) as made:
        yield made


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_wants_the_key(locked: Served, route: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"x_api_key": "secre"}, {"Authorization": "Basic secret"}):
        status, told, body = locked.ask(route, ROUTES[route], **headers)
        assert status == 401
        assert told["www-authenticate"] == "Bearer"  # of which a browser makes no dialog
        error = json.loads(body)["error"]
        assert "key" in error["message"]
    for headers in ({"Authorization": "Bearer secret"}, {"x_api_key": "secret"}):
        status, _, _ = locked.ask(route, ROUTES[route], **headers)
        assert status != 401


@pytest.mark.parametrize(
    ("host", "origin", "forwarded", "own"),
    [
        ("localhost:8000", "http://localhost:8000", "", True),
        ("LOCALHOST:8000", "http://localhost:8000", "", True),
        ("[::1]:8000", "http://[::1]:8000", "", True),
        ("localhost", "http://localhost:80", "", True),
        ("chat.example", "https://chat.example", "", True),  # a proxy that ends TLS and does not say so
        ("chat.example:8443", "https://chat.example:8443", "", True),
        ("chat.example", "https://chat.example", "https", True),
        ("localhost", "https://localhost", "https", True),
        ("localhost:8000", "http://localhost:3000", "", False),
        ("localhost:8000", "http://localhost", "", False),
        ("localhost:8000", "http://127.0.0.1:8000", "", False),
        ("localhost:8000", "https://localhost:8000", "", False),
        ("chat.example", "https://chat.example:8443", "", False),
        ("chat.example", "http://chat.example", "https", False),
        ("chat.example", "https://chat.example:port", "", False),
        ("chat.example", "file://chat.example", "", False),
    ],
)
def test_a_page_of_this_server_has_its_scheme_host_and_port(
    server: Served, host: str, origin: str, forwarded: str, own: bool
) -> None:
    proxy = {"x_forwarded_proto": forwarded} if forwarded else {}
    assert server.ask("/v1/models", Host=host, Origin=origin, **proxy)[0] == (200 if own else 403)


def test_a_connection_without_a_whole_header_is_closed(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one, or the one after an answer; a slow body has its own time."""
    monkeypatch.setattr(header_deadline, "HEADER_SECONDS", 0.2)
    whole = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    body = b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 17\r\n\r\n"
    for before, sent in ((b"", b""), (b"", whole[:20]), (whole, whole[:20])):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            connection.sendall(before)
            if before:
                assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
            connection.sendall(sent)
            while connection.recv(1 << 16):  # until it is closed
                pass
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(body)
        time.sleep(0.3)
        connection.sendall(b'{"content": "hi"}')
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_health_and_the_page_want_no_key(locked: Served) -> None:
    assert locked.told("/health") == {"status": "ok"}
    for given in ({}, {"Authorization": "Bearer wrong"}):
        status, headers, body = locked.ask("/", **given)
        assert (status, body) == (200, page())
        assert {name: headers[name.lower()] for name in page_headers()} == page_headers()
    assert locked.ask("/", Host="foe.example")[0] == 403


def test_pages_of_other_sites_may_ask_where_they_are_allowed(locked: Served) -> None:
    key = {"Authorization": "Bearer secret"}
    status, headers, _ = locked.ask("/v1/models", Origin="https://friend.example", **key)
    assert (status, headers["access-control-allow-origin"]) == (200, "https://friend.example")
    wishes = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization"}
    status, _, _ = locked.ask("/v1/chat/completions", method="OPTIONS", Origin="https://friend.example", **wishes)
    assert status == 200
    assert locked.ask("/v1/models", Origin="https://foe.example", **key)[0] == 403
    assert locked.ask("/v1/models", Origin="null", **key)[0] == 403
    assert locked.ask("/v1/models", Origin=locked.url, **key)[0] == 200


def test_another_name_that_leads_here_is_not_answered(locked: Served) -> None:
    assert locked.ask("/health", Host="foe.example")[0] == 403
    assert locked.ask("/health", Host=f"127.0.0.1:{locked.port}")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"messages": NaN}',
        b"[" * 50_000,
        b'{"n": ' + b"9" * 5000 + b"}",
        b'{"messages": "hi"}',
        b'{"messages": [1]}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "hi"}], "\\ud800": 1}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": 1e999}',
    ],
    ids=range(13),
)
@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/messages", "/v1/completions", "/tokenize"])
def test_a_broken_body_is_an_error_of_the_client(server: Served, route: str, body: bytes) -> None:
    status, headers, content = server.ask(route, body)
    assert status == 400
    assert headers["content-type"] == "application/json"
    assert json.loads(content)["error"]["message"]


def test_a_body_that_is_too_long_is_refused_whatever_it_says_of_its_length(server: Served) -> None:
    assert server.ask("/tokenize", {"content": "x" * 200_000})[0] == 413
    chunk = b"%x\r\n%s\r\n" % (60_000, b"x" * 60_000)
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(chunk + chunk)
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    _, engine = scripted(SAYS)
    with (
        served(engine, limits=RequestLimits(body_seconds=0.05)) as slow,
        socket.create_connection(("127.0.0.1", slow.port), timeout=PATIENCE) as connection,
    ):
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{")
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")


def test_what_is_not_there_is_told_in_the_shape_of_its_route(server: Served) -> None:
    status, _, body = server.ask("/v1/nothing")
    assert (status, json.loads(body)["error"]["type"]) == (404, "invalid_request_error")
    status, _, body = server.ask("/v1/messages/nothing")
    assert (status, json.loads(body)["error"]["type"]) == (404, "not_found_error")
    status, _, body = server.ask("/v1/chat/completions")
    assert (status, "POST is" in json.loads(body)["error"]["message"]) == (405, True)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/responses", "/v1/chat/completions answers here"),
        ("/api/chat", "/v1/chat/completions is a chat"),
        ("/api/generate", "/v1/completions goes on"),
        ("/api/tags", "/v1/models lists"),
        ("/api/blobs/sha256", "http://HOST:PORT/v1"),
        ("/props", "/v1/models has the context"),
        ("/completion", "/v1/completions goes on"),
        ("/infill", "prompt and suffix"),
        ("/v1/rerank", "no route ranks"),
        ("/rerank", "no route ranks"),
        ("/chat/completions", "base URL that ends in /v1"),
        ("/v1/v1/chat/completions", "base URL has /v1 once"),
        ("/openai/v1/models/", "the path is /v1/models:"),
        ("/v1/v1/messages", "a base URL without it"),
        ("/v1", "base URL of OpenAI's clients"),
        ("/v1/audio/speech", "text and vectors alone"),
    ],
)
def test_a_path_of_another_server_is_told_what_does_it_here(server: Served, path: str, said: str) -> None:
    for body in (None, {}):
        status, _, content = server.ask(path, body)
        assert status == 404
        error = json.loads(content)["error"]
        assert said in error["message"]


def test_a_server_may_answer_to_any_name_of_a_model() -> None:
    _, engine = scripted(SAYS)
    with served(engine, any_model=True) as made:
        for route in ("/v1/chat/completions", "/v1/messages"):
            assert made.told(route, {**CHAT, "model": "gpt-4o-mini", "max_tokens": 9})["model"] == "story"
            assert made.told(route, {**CHAT, "model": "other", "max_tokens": 9})["model"] == "other"
        assert made.ask("/v1/chat/completions", {**CHAT, "model": 4})[0] == 400


def test_a_model_has_the_name_of_its_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the cache of the Hub, whose files are named by their digest."""
    blob, revision = tmp_path / "blobs" / "0a1b", tmp_path / "models--owner--a-model" / "snapshots" / "5c4d"
    blob.parent.mkdir()
    blob.write_bytes(b"GGUF")
    revision.mkdir(parents=True)
    (revision / "model-Q4_1.gguf").symlink_to(blob)
    (revision / "model.pte").symlink_to(blob)
    assert model_name(str(revision / "model-Q4_1.gguf")) == "model-Q4_1"
    assert model_name(str(revision)) == model_name(str(revision / "model.pte")) == "owner/a-model"
    monkeypatch.chdir(blob.parent)
    assert model_name(".") == "blobs"


def test_a_full_queue_says_when_to_ask_again() -> None:
    script, engine = scripted(SAYS, max_waiting=0)
    with served(engine) as made:
        script.gate.clear()
        with socket.create_connection(("127.0.0.1", made.port), timeout=PATIENCE) as connection:
            body = json.dumps(CHAT).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            until(lambda: engine.status.running == 1)
            status, headers, content = made.ask("/v1/chat/completions", CHAT)
            assert (status, headers["retry-after"]) == (429, "1")
            assert json.loads(content)["error"]["code"] == "queue_full"
            # One of two answers is too many, so neither is begun.
            assert made.ask("/v1/chat/completions", {**CHAT, "n": 2})[0] == 429
            assert engine.status.requests == 1
            script.gate.set()
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def test_while_the_model_is_loaded_text_is_refused_for_the_moment(caplog: pytest.LogCaptureFixture) -> None:
    with served(None) as made, caplog.at_level("INFO", "liveshape.serve"):
        for route, body in (("/health", None), ("/v1/chat/completions", CHAT), ("/v1/messages", CHAT)):
            status, headers, _ = made.ask(route, body)
            assert (status, headers["retry-after"]) == (503, "1")
        assert json.loads(made.ask("/health")[2]) == {"status": "loading"}
        waiting = [each for each in caplog.records if getattr(each, "fields", {}).get("status") == 503]
        assert len(waiting) == 1, "a client that waits asks every second"
        assert made.ask("/metrics")[0] == made.ask("/v1/models")[0] == 200
        _, made.service.engine = scripted(SAYS)
        assert made.told("/health") == {"status": "ok"}
        assert made.told("/v1/chat/completions", CHAT)["choices"][0]["message"]["content"] == "Hello, you."


def test_health_is_bad_when_requests_wait_and_nothing_moves() -> None:
    script, engine = scripted(SAYS)
    with served(engine) as made:
        now = engine.status.last_progress
        assert made.service.health(now + 1e9) == "ok"
        script.gate.clear()
        with socket.create_connection(("127.0.0.1", made.port), timeout=PATIENCE) as connection:
            body = json.dumps(CHAT).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            until(lambda: engine.status.running == 1)
            now = engine.status.last_progress
            assert made.service.health(now + made.service.limits.stall_seconds - 1) == "ok"
            assert made.service.health(now + made.service.limits.stall_seconds + 1) == "stalled"
            made.service.limits = replace(made.service.limits, stall_seconds=0)
            assert made.ask("/health")[0] == 503
            script.gate.set()
        made.until_free()
        assert made.told("/health") == {"status": "ok"}


def test_metrics_count_what_was_done() -> None:
    _, engine = scripted(SAYS)
    with served(engine) as made:
        usage = made.told("/v1/chat/completions", CHAT)["usage"]
        made.ask("/nothing")
        made.until_free()
        until(lambda: made.service.metrics.requests.total() == 2)  # counted after the last byte was sent
        status, headers, content = made.ask("/metrics")
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        rows = [line.rsplit(" ", 1) for line in content.decode().splitlines() if not line.startswith("#")]
        found = {name: float(value) for name, value in rows}
        assert found["liveshape_prompt_tokens_total"] == usage["prompt_tokens"]
        assert found["liveshape_generated_tokens_total"] == usage["completion_tokens"]
        assert found["liveshape_requests_running"] == found["liveshape_requests_waiting"] == 0
        assert found["liveshape_pages_in_use"] == 0
        assert found["liveshape_time_to_first_token_seconds_count"] == 1
        assert found["liveshape_time_between_tokens_seconds_count"] == usage["completion_tokens"] - 1
        assert found['liveshape_time_to_first_token_seconds_bucket{le="+Inf"}'] == 1
        assert found['liveshape_http_requests_total{route="/v1/chat/completions",status="200"}'] == 1
        assert found['liveshape_http_requests_total{route="other",status="404"}'] == 1


def test_a_model_without_a_template_or_whose_template_takes_no_tools_says_so() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    for tokenizer, body, field in ((plain(), CHAT, "messages"), (chatty(), {**CHAT, "tools": [tool]}, "tools")):
        model: Any = FakeModel(lambda cache: 99)
        with served(SerialEngine(model, tokenizer)) as made:
            status, _, content = made.ask("/v1/chat/completions", body)
            assert (status, json.loads(content)["error"]["param"]) == (400, field)
            tasks = ["completion"] if field == "messages" else ["completion", "chat"]
            assert made.told("/v1/models/story")["tasks"] == tasks
            assert made.told("/v1/completions", {"prompt": "Once", "max_tokens": 3})["usage"]["completion_tokens"] == 3


def test_tokens_there_and_back(server: Served) -> None:
    text = "Once upon a time 😀"
    found = server.told("/tokenize", {"content": text})
    assert found["count"] == len(found["tokens"])
    assert found["max_context"] == 4096
    assert server.told("/detokenize", {"tokens": found["tokens"]}) == {"content": text}
    chat = server.told("/tokenize", CHAT)["count"]
    assert chat == server.told("/v1/chat/completions", CHAT)["usage"]["prompt_tokens"]
    assert server.ask("/detokenize", {"tokens": [-1]})[0] == server.ask("/detokenize", {"tokens": "hi"})[0] == 400


def test_every_answer_has_an_id_which_may_be_given(server: Served) -> None:
    assert server.ask("/health", x_request_id="mine-1")[1]["x-request-id"] == "mine-1"
    assert server.ask("/health", x_request_id="a b")[1]["x-request-id"].startswith("req_")


def test_requests_are_logged_in_lines_of_json(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    monkeypatch.setattr(logger, "handlers", [handler])
    before = logger.level
    logger.setLevel(logging.INFO)

    def lines() -> list[Any]:
        """Those of this request: others may end late."""
        told = [json.loads(line) for line in written.getvalue().splitlines(keepends=True) if line.endswith("\n")]
        return [each for each in told if each.get("id") == "logged"]

    try:
        server.told("/v1/chat/completions", CHAT, x_request_id="logged")
        until(lambda: len(lines()) > 0)
    finally:
        logger.setLevel(before)
    (line,) = lines()
    assert (line["event"], line["status"], line["level"]) == ("request", 200, "info")
    assert line["generated_tokens"] > 5


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here; http.client asks the same above")
def test_curl(server: Served) -> None:
    def curl(*words: str) -> str:
        return subprocess.run(["curl", "-sS", "-N", *words], capture_output=True, text=True, check=True).stdout

    url = f"{server.url}/v1/chat/completions"
    assert json.loads(curl(url, "-d", json.dumps(CHAT)))["choices"][0]["message"]["content"] == "Hello, you."
    events = curl(url, "-d", json.dumps({**CHAT, "stream": True})).split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    texts = [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in events[:-2]]
    assert "".join(delta.get("content", "") for delta in texts) == "Hello, you."
