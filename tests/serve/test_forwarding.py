"""Requests that pass from one process to another: nothing is lost, and every way to end is told."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from liveshape.llm.serving.serial_engine import SerialEngine
from liveshape.serve.app import app_of
from liveshape.serve.forwarding import Forwarded, Messages, ReplicaLost, answered, plain_scope
from liveshape.serve.refusals import Refusal
from liveshape.serve.service import Service
from tests.serve.serving import PATIENCE, Script, scripted

HI = {"messages": [{"role": "user", "content": "hi"}]}


def scope(path: str = "/v1/chat/completions") -> dict[str, Any]:
    made = {"type": "http", "method": "POST", "path": path, "headers": [(b"host", b"x")], "query_string": b""}
    return plain_scope({**made, "app": object(), "extensions": {}})


def service(script_and_engine: tuple[Script, SerialEngine]) -> Service:
    made = Service(("story",))
    made.engine = script_and_engine[1]
    return made


async def collected(messages: Messages) -> tuple[int, bytes]:
    flat = [message async for batch in messages for message in batch]
    assert flat[0]["type"] == "http.response.start"
    assert [message.get("more_body", False) for message in flat[1:]] == [True] * (len(flat) - 2) + [False]
    return flat[0]["status"], b"".join(message["body"] for message in flat[1:])


def test_an_app_answers_a_request_whose_body_is_there() -> None:
    made = service(scripted({"hi": "Hello, you."}))

    async def main() -> None:
        app = app_of(made)
        pickle.dumps(scope())
        status, body = await collected(answered(app, scope(), json.dumps(HI).encode()))
        assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "Hello, you.")
        status, body = await collected(answered(app, scope(), json.dumps({**HI, "stream": True}).encode()))
        assert body.endswith(b"data: [DONE]\n\n")
        assert (await collected(answered(app, scope(), b"{")))[0] == 400
        assert (await collected(answered(app, scope("/nothing"), b"")))[0] == 404
        assert made.engine is not None
        await made.engine.close()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["close", "cancel"])
def test_leaving_frees_the_request(how: str) -> None:
    script, engine = scripted({"hi": "a b c d e f g h " * 50})
    made = service((script, engine))
    script.pause_at(10)

    async def main() -> None:
        stream = answered(app_of(made), scope(), json.dumps({**HI, "stream": True}).encode())
        got = asyncio.Event()

        async def read() -> None:
            async for _ in stream:
                got.set()

        if how == "close":
            await anext(stream)
            script.go_on()
            await stream.aclose()
        else:
            reading = asyncio.create_task(read())
            await got.wait()
            reading.cancel()
            script.go_on()
            await asyncio.gather(reading, return_exceptions=True)
        async with asyncio.timeout(PATIENCE):
            while engine.status.requests:
                await asyncio.sleep(0.002)
        await engine.close()

    asyncio.run(main())


START = {"type": "http.response.start", "status": 200, "headers": [(b"Content-Type", b"text/event-stream; charset=x")]}
JSON = {**START, "headers": [(b"content-type", b"application/json")]}
PART = {"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True}
END = {"type": "http.response.body", "body": b"", "more_body": False}


def replicas(*turns: list[Any]) -> Callable[[], Messages]:
    """Asked for the first time, the second: batches of messages, or an error."""
    waiting = list(turns)

    async def stream(turn: list[Any]) -> AsyncGenerator[list[Any], None]:
        for each in turn:
            if isinstance(each, Exception):
                raise each
            yield each

    return lambda: stream(waiting.pop(0))


def sent(ask: Callable[[], Messages], path: str = "/v1/chat/completions") -> list[Any]:
    told: list[Any] = []

    async def send(message: Any) -> None:
        told.append(message)

    async def receive() -> Any:
        raise AssertionError("the body was read before")

    asyncio.run(Forwarded(ask, path)(scope(), receive, send))
    return told


def test_messages_are_sent_on_and_another_replica_is_asked_once() -> None:
    assert sent(replicas([[START, PART], [PART, END]])) == [START, PART, PART, END]
    assert sent(replicas([ReplicaLost()], [[START, END]])) == [START, END]
    start, body = sent(replicas([ReplicaLost()], [ReplicaLost()]))
    assert (start["status"], json.loads(body["body"])["error"]["code"]) == (503, "replica_lost")
    assert (b"retry-after", b"1") in start["headers"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_stream_whose_replica_is_lost_ends_with_an_error(path: str) -> None:
    *before, last = sent(replicas([[START, PART], ReplicaLost()]), path)
    assert before == [START, PART]
    assert last["more_body"] is False
    *named, data = last["body"].decode().rstrip().split("\n")
    assert named == (["event: error"] if path == "/v1/messages" else [])
    assert "ask again" in json.loads(data.removeprefix("data: "))["error"]["message"]


def test_a_part_of_a_whole_answer_breaks_the_connection() -> None:
    with pytest.raises(ReplicaLost):
        sent(replicas([[JSON, PART], ReplicaLost()]))


def test_a_refusal_has_its_status() -> None:
    start, body = sent(replicas([Refusal(429, "full", code="queue_full")]))
    assert (start["status"], json.loads(body["body"])["error"]["code"]) == (429, "queue_full")
