"""An engine in a process of its own, of which this is the inside: requests come by a pipe, and what a step gave to all
of them goes back as one message. A server in the process of its engine would delay every step: Python runs one thread
at a time.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from liveshape.errors import LiveshapeError
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.serving.answer_channel import AnswerChannel
from liveshape.llm.serving.async_engine import AsyncEngine, EngineFacts, EngineStatus
from liveshape.llm.text.tokenizer import Tokenizer

Opening = Callable[[AnswerChannel], AsyncEngine]

_PREPARING = 8  # requests that are validated side by side
_CONSTRAINED = 4  # of those whose grammar is compiled, which may take seconds


@dataclass(frozen=True)
class Generate:
    """A request, by a number of its sender."""

    identity: int
    prompt: Any
    options: dict[str, Any]


@dataclass(frozen=True)
class Leave:
    """The reader of an answer wants no more."""

    identity: int


@dataclass(frozen=True)
class Close:
    """Take no more requests, and end within some seconds."""

    grace: float


@dataclass(frozen=True)
class Exit:
    """End the process."""


@dataclass(frozen=True)
class Ready:
    """The engine is loaded."""

    tokenizer: Tokenizer
    facts: EngineFacts
    max_context: int
    vocab_size: int
    status: EngineStatus


@dataclass(frozen=True)
class Accepted:
    """A request is queued, or why it is not; or, without a number, why the engine could not be loaded."""

    identity: int | None
    error: BaseException | None


@dataclass(frozen=True)
class Ended:
    """The end of an answer."""

    error: BaseException | None


@dataclass(frozen=True)
class Responses:
    """What a step gave, by the numbers of the requests, and the status after it."""

    items: list[tuple[int, GenerationResponse | Ended]]
    status: EngineStatus


@dataclass(frozen=True)
class Closed:
    """All requests have ended."""


@dataclass(eq=False)
class PipedAnswer:
    """The engine's end of an answer whose reader is in another process."""

    identity: int
    channel: PipeChannel
    leave: Callable[[Any], None]
    closed: bool = False
    ended: bool = False

    def put(self, response: GenerationResponse) -> None:
        """Add a response to the next message."""
        if not self.closed:
            self.channel.add(self.identity, response)

    def end(self, error: BaseException | None = None) -> None:
        """Send all, and the end."""
        if not self.ended:
            self.ended = True
            self.channel.add(self.identity, Ended(None if error is None else portable(error)))
            self.channel.flush([self])


@dataclass(eq=False)
class PipeChannel:
    """Answers for readers in another process."""

    connection: Connection
    engine: AsyncEngine | None = None
    _answers: dict[int, PipedAnswer] = field(default_factory=dict)
    _items: list[tuple[int, GenerationResponse | Ended]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of the items
    _sending: threading.Lock = field(default_factory=threading.Lock)  # of the pipe, which may be full
    _asking: threading.local = field(default_factory=threading.local)  # the number of the request of a thread

    def open(self, leave: Callable[[Any], None]) -> PipedAnswer:
        """The answer of the request that this thread accepts."""
        answer = self._answers[self._asking.identity] = PipedAnswer(self._asking.identity, self, leave)
        return answer

    def accept(self, request: Generate) -> None:
        """Queue a request, and tell what came of it."""
        assert self.engine is not None
        self._asking.identity = request.identity
        failure = None
        try:
            self.engine.generate(request.prompt, **request.options)
        except BaseException as error:
            self._answers.pop(request.identity, None)
            failure = portable(error)
        self.send(Accepted(request.identity, failure))

    def leave(self, identity: int) -> None:
        """End an answer that nobody reads."""
        answer = self._answers.pop(identity, None)
        if answer is not None:
            answer.closed = True
            answer.leave(answer)

    def add(self, identity: int, item: GenerationResponse | Ended) -> None:
        """Put something into the next message."""
        with self._lock:
            self._items.append((identity, item))

    def flush(self, answers: Iterable[PipedAnswer]) -> None:
        """Send what was put, one message for all."""
        for answer in answers:
            if answer.ended:
                self._answers.pop(answer.identity, None)
        if self.engine is None:  # not opened yet: there are no requests
            return
        status = self.engine.status  # before the pipe: who holds the engine may wait for that
        with self._sending:  # from before they are taken, or another thread sends what follows them first
            with self._lock:
                items, self._items = self._items, []
            if items:
                self._send(Responses(items, status))

    def send(self, message: Any) -> None:
        """Send a message, from any thread."""
        with self._sending:
            self._send(message)

    def _send(self, message: Any) -> None:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with suppress(OSError):  # the server is gone, and this process ends soon
            self.connection.send_bytes(data)


def start_uninterrupted(process: BaseProcess) -> None:
    """Start a process that the Ctrl-C of a terminal does not meet before it says by `ignore` what it does with that.

    Example: `start_uninterrupted(context.Process(target=run_engine, args=(connection, opening)))`.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        process.start()
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))  # which the process inherits
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore(*numbers: signal.Signals) -> None:
    """Ignore signals in a process that was started uninterrupted, and take the others.

    Example: `ignore(signal.SIGINT)`.
    """
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))


def run_engine(connection: Connection, opening: Opening) -> None:
    """The main function of the process: open the engine, serve it, and end when the server closes it or is gone.

    Example: `Process(target=run_engine, args=(connection, partial(opened, "SmolLM2-135M-Instruct")))`.
    """
    # The terminal sends its signals to both processes; when to end is the server's to say.
    ignore(signal.SIGINT, signal.SIGTERM)
    channel = PipeChannel(connection)
    try:
        engine = channel.engine = opening(channel)
    except BaseException as error:
        channel.send(Accepted(None, portable(error)))
        return
    channel.send(Ready(engine.tokenizer, engine.facts, engine.max_context, engine.vocab_size, engine.status))
    # This thread only reads, so that the server is never kept from sending: what ends an answer may wait for the pipe.
    with (
        ThreadPoolExecutor(_PREPARING, "liveshape requests") as preparing,
        ThreadPoolExecutor(_CONSTRAINED, "liveshape grammars") as compiling,
        ThreadPoolExecutor(1, "liveshape departures") as leaving,
    ):
        with suppress(EOFError, OSError):  # the server is gone
            while not isinstance(message := connection.recv(), Exit):
                if isinstance(message, Generate):
                    constrained = any(message.options.get(name) is not None for name in ("json_schema", "regex"))
                    (compiling if constrained else preparing).submit(channel.accept, message)
                elif isinstance(message, Leave):
                    leaving.submit(channel.leave, message.identity)
                else:
                    threading.Thread(target=_close, args=(channel, message.grace), daemon=True).start()
        asyncio.run(engine.close())


def _close(channel: PipeChannel, grace: float) -> None:
    assert channel.engine is not None
    asyncio.run(channel.engine.close(grace))
    channel.send(Closed())


def portable(error: BaseException) -> BaseException:
    """An error that can be sent; one that cannot is known by its text.

    >>> portable(ValueError("no"))
    ValueError('no')
    """
    try:
        pickle.loads(pickle.dumps(error))
        return error.with_traceback(None)
    except Exception:
        return LiveshapeError(f"{type(error).__name__}: {error}")
