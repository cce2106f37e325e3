"""Servers on loopback, in a thread of the test: with a model that says what it is told to, or with the shipped one."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar
from weakref import WeakSet

import numpy as np

from liveshape.llm.serving.async_engine import AsyncEngine
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.serving.serial_engine import SerialEngine
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.running import GracefulServer, listening
from liveshape.serve.service import Service
from tests.llm.batch.fake_runner import FakeRunner, fake_engine
from tests.llm.texts import END, START, FakeModel, byte_level

PATIENCE = 1800  # seconds after which a test that waits will wait for ever
# With tools and calls, as Hermes and Qwen have them.
TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endif %}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{% for call in message.tool_calls or [] %}{{ '<tool_call>' }}{{ call.function.name }}:"
    "{{ call.function.arguments.city }}{{ '</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking %}{{ '<think>\n' }}{% endif %}{% endif %}"
)


@dataclass(frozen=True)
class Served:
    """A running server."""

    service: Service
    engine: AsyncEngine
    port: int
    server: GracefulServer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, path: str, body: Any = None, method: str = "", **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        """A request without any client's help; a body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, content, named)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def told(self, path: str, body: Any = None, **headers: str) -> Any:
        """The JSON of an answer that must be one."""
        status, _, content = self.ask(path, body, **headers)
        assert status == 200, content
        return json.loads(content)

    def stop(self) -> None:
        self.server.should_exit = True

    def refuses_connections(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE).close()
        except ConnectionRefusedError:
            return True
        return False

    def until_free(self) -> None:
        until(lambda: self.engine.status.requests == 0)
        assert self.engine.status.pages_in_use == 0


def until(holds: Callable[[], bool]) -> None:
    last = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < last, "it never came about"
        time.sleep(0.002)


@contextmanager
def served(engine: AsyncEngine | None, grace: float = 0, sends: int = 0, **options: Any) -> Iterator[Served]:
    """Serve an engine, and stop the server at the end, with everything free. Its sockets hold about `sends` bytes."""
    service = Service(**{"names": ("story", "other"), **options})
    service.engine = engine
    server = GracefulServer(service, grace)
    with listening("127.0.0.1", 0) as bound:
        if sends:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sends)
        made: Any = Served(service, engine, bound.getsockname()[1], server)  # type: ignore[arg-type]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            until(lambda: server.started)
            yield made
            if engine is not None:
                made.until_free()
        except BaseException:
            for script in Script.instances:  # a test that failed holds its model back no longer, nor the server
                script.release()
            raise
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
        assert not thread.is_alive()


def chatting() -> Tokenizer:
    """A byte-level tokenizer with a chat template that takes tools."""
    return Tokenizer(byte_level(), {"bos_token": START, "eos_token": END}, chat_templates={"default": TEMPLATE})


class Script:
    """What a model says: the text of the first key that its prompt has in it. A gate may hold it back."""

    instances: ClassVar[WeakSet[Script]] = WeakSet()

    def __init__(self, tokenizer: Tokenizer, says: Mapping[str, str]) -> None:
        self._tokenizer, self._says = tokenizer, says
        self._opening = tokenizer.encode(f"{START}assistant\n", add_special_tokens=False)
        self._thinking = tokenizer.encode("<think>\n", add_special_tokens=False)
        self.gate = threading.Event()
        self.gate.set()
        self.tokens = 0
        self._changed, self._pause_at = threading.Condition(), -1
        self._row = lru_cache(self._row_of)
        self.instances.add(self)

    def __call__(self, cache: list[int]) -> int:
        assert self.gate.wait(PATIENCE)
        with self._changed:
            assert self._changed.wait_for(lambda: self.tokens != self._pause_at, PATIENCE)
            self.tokens += 1
        # From the end: an opening is not far before the answer that it begins.
        size, begin = len(self._opening), len(cache)
        while cache[begin - size : begin] != self._opening:
            begin -= 1
            assert begin >= size, "the prompt opens no answer"
        row, thinking = self._row(tuple(cache[:begin])), self._thinking
        # Opened by the template, and not by the model itself.
        if cache[begin : begin + len(thinking)] == thinking != row[: len(thinking)]:
            begin += len(thinking)
        return row[min(len(cache) - begin, len(row) - 1)]

    def pause_at(self, tokens: int) -> None:
        """Say so many tokens and wait, until `go_on`."""
        self._pause_at = tokens

    def go_on(self) -> None:
        """Say the rest, whether the pause has begun or is still to come."""
        with self._changed:
            self._pause_at = -1
            self._changed.notify_all()

    def release(self) -> None:
        """Say all there is, without a pause."""
        self.gate.set()
        self.go_on()

    def _row_of(self, prompt: tuple[int, ...]) -> list[int]:
        text = self._tokenizer.decode(list(prompt))
        said = next(said for key, said in self._says.items() if key in text.rpartition("user\n")[2])
        return self._tokenizer.encode(said + END, add_special_tokens=False)


class ScriptedStream(Iterator[int]):
    """The tokens of a FakeModel with the logits that they were chosen from."""

    def __init__(self, model: FakeModel, tokens: Iterator[int]) -> None:
        self._model, self._tokens = model, tokens
        self.logits: Any = None

    def __next__(self) -> int:
        token = next(self._tokens)
        self.logits = np.zeros(self._model.vocab_size, np.float32)
        self.logits[token] = 10
        return token


class ScriptedModel(FakeModel):
    """A FakeModel whose streams have logits."""

    def stream(self, *args: Any, **options: Any) -> Iterator[int]:
        return ScriptedStream(self, super().stream(*args, **options))


def scripted(says: Mapping[str, str], *, context: int = 4096, **options: Any) -> tuple[Script, SerialEngine]:
    """An engine that says what it is told to."""
    tokenizer = chatting()
    script = Script(tokenizer, says)
    model: Any = ScriptedModel(script, context=context)
    return script, SerialEngine(model, tokenizer, **options)


def scripted_together(says: Mapping[str, str], *, context: int = 4096) -> tuple[Script, BatchEngine]:
    """The same as an engine that runs its requests together."""
    tokenizer = chatting()
    script = Script(tokenizer, says)
    runner = FakeRunner(script, sequences=4, pages=context, rows=64, context=context)
    return script, fake_engine(runner, tokenizer)
