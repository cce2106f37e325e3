"""Clients that go away, read slowly or break off: nobody else notices, and everything is free at the end."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from liveshape.errors import EngineClosed
from liveshape.llm import generate, open_engine
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.serving.async_engine import AsyncEngine
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.request_limits import RequestLimits
from liveshape.shipped import shipped_model
from tests.serve.serving import PATIENCE, Served, scripted, scripted_together, served, until

LONG = "a b c d e f g h " * 20
TELL = "{{ messages[0]['content'] }}"  # the story goes on from what is said
SAYS = {"long": LONG, "hi": "Hello, you.", "fail": "x", "cats": "Cats are small."}


def chat(text: str, **options: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **options}


@contextlib.contextmanager
def asked(server: Served, path: str, body: dict[str, Any], receives: int = 0) -> Iterator[socket.socket]:
    """A connection with a request on it, whose answer nobody has read; it holds about `receives` bytes of it."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.socket() as connection:
        if receives:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        connection.settimeout(PATIENCE)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head.encode() + content)
        yield connection


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_request_wherever_it_is(path: str, stream: bool) -> None:
    script, engine = scripted(SAYS)
    prompt = "<|im_start|>user\nlong<|im_end|>\n<|im_start|>assistant\n"
    body = {"prompt": prompt} if path == "/v1/completions" else chat("long")
    body |= {"stream": stream, "max_tokens": 3000}
    with served(engine) as server:
        ended = server.service.metrics.requests
        script.gate.clear()
        with asked(server, path, body) as running:
            until(lambda: engine.status.running == 1)
            with asked(server, path, body):
                until(lambda: engine.status.waiting == 1)
            until(lambda: engine.status.waiting == 0)
            script.pause_at(10)
            script.gate.set()
            until(lambda: script.tokens == 10)
            running.close()
            until(lambda: ended.total() == 2)
        script.go_on()
        server.until_free()
        assert script.tokens <= 11
        assert server.told("/v1/chat/completions", chat("hi"))["choices"][0]["message"]["content"] == "Hello, you."


@pytest.mark.parametrize("made", [scripted, scripted_together])
def test_a_slow_reader_delays_nobody(made: Callable[[dict[str, str]], tuple[Any, AsyncEngine]]) -> None:
    words = 900
    _, engine = made({"long": " the" * words, "hi": "Hello, you."})
    with (
        served(engine, sends=4096) as server,
        asked(server, "/v1/chat/completions", chat("long", stream=True), receives=4096) as slow,
    ):
        # Nothing of it is read, and what the sockets hold is full long before its end.
        assert server.told("/v1/chat/completions", chat("hi"))["choices"][0]["message"]["content"] == "Hello, you."
        server.until_free()
        until(lambda: server.service.metrics.requests.total() > 0)  # counted after its last byte was sent
        assert server.service.metrics.requests.total() == 1
        content = b""
        while not content.endswith(b"0\r\n\r\n"):
            content += slow.recv(1 << 16)
        assert content.count(b" the") == words  # those that waited were sent together
        assert b"data: [DONE]" in content


def test_a_silent_stream_says_that_it_is_there() -> None:
    script, engine = scripted(SAYS)
    with served(engine, limits=RequestLimits(ping_seconds=0.01)) as server:
        for path, ping in (("/v1/chat/completions", b": ping\n\n"), ("/v1/messages", b"event: ping\n")):
            script.gate.clear()
            with asked(server, path, chat("hi", stream=True, max_tokens=99)) as connection:
                content = b""
                while content.count(ping) < 3:
                    content += connection.recv(4096)
                script.gate.set()
                while not content.endswith(b"0\r\n\r\n"):
                    content += connection.recv(4096)
                assert b"[DONE]" in content or b"message_stop" in content


def test_an_error_in_a_stream_is_told_in_it_and_stays_there() -> None:
    script, engine = scripted({"hi": "Hello, you."})  # which knows no other prompt
    with served(engine) as server:
        for path, mark in (("/v1/chat/completions", b'data: {"error":'), ("/v1/messages", b"event: error\ndata: ")):
            status, _, content = server.ask(path, chat("what?", stream=True, max_tokens=9))
            assert status == 200
            assert mark in content
            assert b"[DONE]" not in content
            assert server.ask(path, chat("what?", max_tokens=9))[0] == 500
        assert server.told("/v1/chat/completions", chat("hi"))["choices"][0]["message"]["content"] == "Hello, you."
        assert script.tokens > 0


@pytest.mark.parametrize("grace", [0, PATIENCE])
def test_running_answers_end_within_the_grace_and_others_are_told(grace: float) -> None:
    script, engine = scripted(SAYS)
    script.gate.clear()
    told: list[bytes] = []
    with served(engine, grace) as server:
        thread = threading.Thread(
            target=lambda: told.append(server.ask("/v1/chat/completions", chat("hi", stream=True))[2])
        )
        thread.start()
        until(lambda: engine.status.running == 1)
        server.stop()
        until(server.refuses_connections)
        with pytest.raises(EngineClosed):
            engine.generate([1])
        if not grace:
            until(lambda: len(told) == 1)
        script.gate.set()
        thread.join(PATIENCE)
    assert (b"[DONE]" in told[0]) == bool(grace)
    assert (b"the engine was closed before this answer ended" in told[0]) == (not grace)


def mixed_load(server: Served, texts: dict[str, str], requests: int, connections: int) -> int:
    """Requests of every kind from many connections, some of which break off; returns how many were answered."""
    wrong: list[str] = []
    answered = [0] * connections
    numbers = iter(range(requests))
    lock = threading.Lock()

    def work(place: int) -> None:
        chance = random.Random(place)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            text = chance.choice(list(texts))
            kind = chance.choice(["whole", "stream", "stream", "leave", "leave at once", "broken", "slow"])
            try:
                answered[place] += one(server, kind, text, texts[text], chance)
            except (AssertionError, OSError, http.client.HTTPException) as error:
                wrong.append(f"{kind}: {error!r}")
                return

    threads = [threading.Thread(target=work, args=(place,)) for place in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    return sum(answered)


def one(server: Served, kind: str, text: str, says: str, chance: random.Random) -> int:
    path = "/v1/chat/completions"
    options = {"max_tokens": 8, "temperature": 0}
    if kind == "broken":
        status, _, _ = server.ask(path, chance.choice([b"{", b'{"messages": 1}', b"\xff"]))
        assert status == 400
        return 0
    if kind in ("leave", "leave at once"):
        with asked(server, path, chat(text, stream=True, **options)) as connection:
            if kind == "leave":
                connection.recv(100)
        return 0
    if kind == "whole":
        status, _, content = server.ask(path, chat(text, **options))
        if status == 429:
            return 0
        assert status == 200, content
        assert json.loads(content)["choices"][0]["message"]["content"] == says
        return 1
    with asked(server, path, chat(text, stream=True, **options)) as connection:
        content = b""
        while not content.endswith(b"0\r\n\r\n") and b"HTTP/1.1 429" not in content:
            content += connection.recv(64 if kind == "slow" else 1 << 16)
    if b"HTTP/1.1 429" in content:
        return 0
    lines = [line for line in content.decode().replace("\r", "").split("\n") if line.startswith("data: {")]
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines]
    assert "".join(delta.get("content", "") for delta in deltas) == says
    return 1


@pytest.fixture(scope="module")
def alone() -> dict[str, str]:
    """What the shipped model says to some prompts when nothing runs beside them."""
    tokenizer = Tokenizer.load(shipped_model()).with_chat_template(TELL)
    prompts = [
        "Once upon a time there was a cat",
        "Tom and",
        "Lily had a red ball. She",
        "The sun is big. One day a boy",
    ]
    with LanguageModel.load(shipped_model()) as model:
        chats = [[{"role": "user", "content": each}] for each in prompts]
        texts = generate(model, tokenizer, chats, max_tokens=8, temperature=0)
    assert len({*texts}) == len(prompts), "who got another one's text would not be seen"
    return dict(zip(prompts, texts, strict=True))


# As many pages as a few sequences need: others are preempted, and beginnings given up.
ENGINES = {"together": {"sequences": 8, "cache_bytes": 16 << 17}, "one at a time": {"sequences": 1}}


@pytest.fixture(
    scope="module", params=["together", pytest.param("one at a time", marks=pytest.mark.slow)], ids=lambda name: name
)
def story(request: pytest.FixtureRequest) -> Iterator[Served]:
    """The shipped model with a chat template, on either engine."""
    engine = open_engine(shipped_model(), chat_template=TELL, **ENGINES[request.param])
    assert (engine.facts.one_at_a_time is None) == (request.param == "together")
    with served(engine) as server:
        yield server


@pytest.mark.slow
def test_sixteen_connections_with_cancels_slow_readers_and_broken_bodies(story: Served, alone: dict[str, str]) -> None:
    assert mixed_load(story, alone, requests=48, connections=16) > 12
    story.until_free()


def test_the_clients_of_both_apis_are_told_what_the_model_says_alone(story: Served, alone: dict[str, str]) -> None:
    from anthropic import Anthropic  # here, since they take seconds
    from openai import OpenAI

    text, says = next(iter(alone.items()))
    chats = OpenAI(base_url=f"{story.url}/v1", api_key="none").chat.completions
    messages: list[Any] = [{"role": "user", "content": text}]
    with chats.create(model="story", messages=messages, max_tokens=8, temperature=0, stream=True) as stream:
        next(stream)  # and goes away
    chunks = chats.create(model="story", messages=messages, max_tokens=8, temperature=0, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == says
    three = chats.create(model="story", messages=messages, max_tokens=8, temperature=0, n=3)
    assert [choice.message.content for choice in three.choices] == [says] * 3
    client = Anthropic(base_url=story.url, api_key="none")
    with client.messages.stream(model="story", messages=messages, max_tokens=8, extra_body={"temperature": 0}) as told:
        assert "".join(told.text_stream) == says
    story.until_free()


@pytest.mark.slow
def test_two_thousand_requests_of_64_connections_leave_nothing_behind(story: Served, alone: dict[str, str]) -> None:
    server = story
    mixed_load(server, alone, requests=500, connections=64)
    server.until_free()
    before = resident_bytes()
    assert mixed_load(server, alone, requests=2000, connections=64) > 400
    server.until_free()
    assert resident_bytes() - before < 16 << 20


def resident_bytes() -> int:
    """The memory of this process, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
