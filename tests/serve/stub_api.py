"""A server with the chat page and an API that answers what a test scripts, step by step."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from liveshape.serve.page import headers, page

MODEL = "stub-1b"


@dataclass(frozen=True)
class Reasoning:
    """A piece of the reasoning text."""

    text: str


@dataclass(frozen=True)
class Refusal:
    """An error in OpenAI's shape: as the answer to a request, or in the middle of one that has begun."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class Hangup:
    """The connection ends here."""


# Text, reasoning, an event to wait for, a refusal, the end of the connection.
Step = str | Reasoning | threading.Event | Refusal | Hangup


class StubApi:
    """Each request to /v1/chat/completions takes the next script; without one it is answered with `Fine.`"""

    def __init__(self) -> None:
        self.scripts: deque[Sequence[Step]] = deque()
        self.bodies: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.refused_models: deque[Refusal] = deque()
        self.key: str | None = None
        self.models = [MODEL]
        self.tasks: dict[str, list[str]] = {}  # of a model; without them it chats
        self.loading = 0  # how often /health still says so
        self.finish = "stop"
        self.gone = threading.Event()  # a client left before its answer ended
        self.closing = threading.Event()
        stub = self

        class Handler(_Handler):
            api = stub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def script(self, *steps: Step) -> None:
        self.scripts.append(steps)

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    api: StubApi

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/":
            self._send(200, page(), dict(headers()))
        elif self.path == "/health":
            self.api.loading -= self.api.loading > 0
            status = {"status": "loading"} if self.api.loading else {"status": "ok"}
            self._send(503 if self.api.loading else 200, json.dumps(status).encode())
        elif self._may_enter():
            if self.api.refused_models:
                self._refuse(self.api.refused_models.popleft())
            else:
                tasks = self.api.tasks
                models = [{"id": each, "tasks": tasks.get(each, ["completion", "chat"])} for each in self.api.models]
                self._send(200, json.dumps({"object": "list", "data": models}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._may_enter():
            return
        self.api.bodies.append(body)
        steps = self.api.scripts.popleft() if self.api.scripts else ("Fine.",)
        if isinstance(steps[0], Refusal):
            self._refuse(steps[0])
            return
        try:
            self._stream(steps)
        except OSError:
            self.api.gone.set()

    def _may_enter(self) -> bool:
        given = self.headers.get("Authorization")
        self.api.authorizations.append(given)
        if self.api.key is None or given == f"Bearer {self.api.key}":
            return True
        self._refuse(Refusal(401, "the key is missing or wrong", "authentication_error"))
        return False

    def _refuse(self, refusal: Refusal) -> None:
        self._send(refusal.status, json.dumps(refusal.body()).encode(), refusal.headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, steps: Sequence[Step]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        tokens = 0
        for step in steps:
            match step:
                case threading.Event():
                    self._wait(step)
                case Refusal():
                    self._event(step.body())
                    return
                case Hangup():
                    return
                case Reasoning(text):
                    self._event(_chunk({"reasoning_content": text}))
                case str():
                    self._event(_chunk({"content": step}, prompt="prompt" in self.api.bodies[-1]))
            tokens += isinstance(step, str | Reasoning)
        self._event(_chunk({}, self.api.finish))
        usage = {"prompt_tokens": 1234, "completion_tokens": tokens, "total_tokens": 1234 + tokens}
        self._event({"object": "chat.completion.chunk", "choices": [], "usage": usage})
        self._write("data: [DONE]\n\n")

    def _wait(self, event: threading.Event) -> None:
        """Pings until the test goes on, so that a client that leaves is noticed."""
        while not event.wait(0.02) and not self.api.closing.is_set():
            self._write(": ping\n\n")

    def _event(self, chunk: dict[str, Any]) -> None:
        self._write(f"data: {json.dumps(chunk)}\n\n")

    def _write(self, text: str) -> None:
        self.wfile.write(text.encode())


def _chunk(delta: dict[str, str], finish: str | None = None, prompt: bool = False) -> dict[str, Any]:
    """A piece of an answer; to a prompt it has a text and no delta."""
    said = {"text": delta["content"]} if prompt else {"delta": delta}
    return {"object": "chunk", "model": MODEL, "choices": [{"index": 0, **said, "finish_reason": finish}]}
