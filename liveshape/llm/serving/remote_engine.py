"""An engine in a process of its own, of which this is the outside: the same protocol, and another process when the one
that there was has died."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import multiprocessing
import pickle
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Unpack

from liveshape.errors import DeviceError, EngineClosed, EngineDied, InputError
from liveshape.llm.generation.options import NAMES, GenerationOptions, Prompt
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.serving.async_engine import EngineFacts, EngineStatus
from liveshape.llm.serving.engine_lifetime import EngineLifetime
from liveshape.llm.serving.engine_process import (
    Accepted,
    Close,
    Closed,
    Exit,
    Generate,
    Leave,
    Opening,
    Ready,
    Responses,
    run_engine,
    start_uninterrupted,
)
from liveshape.llm.serving.queued_answer import LOCAL, QueuedAnswer
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.option_names import checks_options

_LAST_SECONDS = 5.0  # for a process to end that was asked to


class RemoteEngine(EngineLifetime):
    """An engine that `opening`, which is called in another process, opens there.

    If that process dies, its requests end with an error, and the next one starts another.

    Example: `engine = RemoteEngine(partial(opened, "SmolLM2-135M-Instruct"))`.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._starting = threading.Lock()
        self._sending = threading.Lock()  # of the pipe alone: who waits for it keeps no answer from its reader
        self._lock = threading.Lock()  # of what follows
        self._answers: dict[int, QueuedAnswer] = {}
        self._numbers: dict[QueuedAnswer, int] = {}
        self._accepting: dict[int, Future[None]] = {}
        self._next = itertools.count()
        self._closing = False
        self._closed = threading.Event()
        self._process: BaseProcess | None = None
        self._start()

    def _start(self) -> None:
        """Start the process unless it runs, and wait until its engine is loaded."""
        with self._starting:
            if self._process is None:
                self._open()

    def _open(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=run_engine, args=(theirs, self._opening), name="liveshape engine", daemon=True)
        start_uninterrupted(process)
        theirs.close()
        try:
            message = ours.recv()
        except EOFError:
            process.join()
            raise DeviceError(f"the process of the engine ended with {process.exitcode} while it was loaded") from None
        except BaseException:
            process.kill()
            raise
        if not isinstance(message, Ready):
            process.join(_LAST_SECONDS)
            raise message.error
        with self._lock:
            if self._closing:  # while it was loaded
                process.kill()
                return
            # Before multiprocessing waits for it: an engine that nobody closed would keep this process from its end.
            atexit.register(process.kill)
            self._connection, self._process, self._ready, self._status = ours, process, message, message.status
        self._reader = threading.Thread(target=self._read, args=(ours, process), name="liveshape answers", daemon=True)
        self._reader.start()

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self._ready.tokenizer

    @property
    def max_context(self) -> int:
        """The most tokens of one sequence."""
        return self._ready.max_context

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary."""
        return self._ready.vocab_size

    @property
    def facts(self) -> EngineFacts:
        """What the engine is."""
        return self._ready.facts

    @property
    def status(self) -> EngineStatus:
        """What the engine does now, as its process last told."""
        with self._lock:
            running = min(self._status.running, len(self._answers))
            return replace(self._status, running=running, waiting=len(self._answers) - running)

    @checks_options(*NAMES)
    def generate(
        self, prompt: Prompt, **options: Unpack[GenerationOptions]
    ) -> AsyncGenerator[GenerationResponse, None]:
        """Queue a request; `AsyncEngine.generate` says what raises here, and what closing it does. It waits until the
        other process has accepted it.

        Example: `async for response in engine.generate("Once upon a time"): print(response.text, end="")`.
        """
        identity, answer = next(self._next), LOCAL.open(self._leave)
        accepted: Future[None] = Future()
        try:
            while not self._registered(identity, answer, accepted):
                self._start()
            self._send(Generate(identity, prompt, {**options}))
            accepted.result()  # it may have ended by then
            return answer
        except BaseException:  # an interrupt, too: nobody will read the answer
            self._leave(answer)
            raise
        finally:
            with self._lock:
                self._accepting.pop(identity, None)

    def _registered(self, identity: int, answer: QueuedAnswer, accepted: Future[None]) -> bool:
        """Whether there is a process that answers, or whose end will be told."""
        with self._lock:
            if self._closing:
                raise EngineClosed("the engine was closed and takes no more requests")
            if self._process is None:
                return False
            self._answers[identity], self._numbers[answer] = answer, identity
            self._accepting[identity] = accepted
            return True

    def _leave(self, answer: QueuedAnswer) -> None:
        with self._lock:
            identity = self._numbers.get(answer)
        if identity is not None:
            self._forget(identity)
            self._send(Leave(identity))

    def _forget(self, identity: int) -> None:
        with self._lock:
            answer = self._answers.pop(identity, None)
            if answer is not None:
                del self._numbers[answer]

    async def close(self, grace: float = 0) -> None:
        """Take no more requests, let those that are there end within `grace` seconds, and end the others.

        Example: `await engine.close(grace=30)`.
        """
        with self._lock:
            self._closing = True
            process = self._process
        if process is None:
            return
        self._send(Close(grace))
        await asyncio.to_thread(self._closed.wait)
        self._send(Exit())
        # Its reader waits for the process: two threads that do would take its exit code from each other.
        await asyncio.to_thread(self._reader.join, _LAST_SECONDS)
        if self._reader.is_alive():
            process.kill()

    def _send(self, message: Any) -> None:
        try:
            data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise InputError(f"the engine is in another process, to which functions cannot be sent: {error}") from error
        with self._sending, suppress(OSError):  # it has ended: its reader tells
            self._connection.send_bytes(data)

    # In the thread that reads

    def _read(self, connection: Connection, process: BaseProcess) -> None:
        with suppress(EOFError, OSError):
            while True:
                message = connection.recv()
                if isinstance(message, Responses):
                    self._deliver(message)
                elif isinstance(message, Accepted):
                    self._accepted(message)
                elif isinstance(message, Closed):
                    self._closed.set()
        self._lost(process)

    def _deliver(self, message: Responses) -> None:
        reached = []
        with self._lock:
            self._status = message.status
        for identity, item in message.items:
            answer = self._answers.get(identity)
            if answer is None:  # its reader has left
                continue
            if isinstance(item, GenerationResponse):
                answer.put(item)
                reached.append(answer)
            else:
                self._forget(identity)
                answer.end(item.error)
        LOCAL.flush(reached)

    def _accepted(self, message: Accepted) -> None:
        with self._lock:
            waiting = None if message.identity is None else self._accepting.pop(message.identity, None)
        if waiting is not None:
            waiting.set_exception(message.error) if message.error is not None else waiting.set_result(None)

    def _lost(self, process: BaseProcess) -> None:
        """The process has ended, as it was asked to or not."""
        process.join(_LAST_SECONDS)
        atexit.unregister(process.kill)
        with self._lock:
            closing, self._process = self._closing, None
            answers, accepting = list(self._answers.values()), list(self._accepting.values())
            for table in (self._answers, self._numbers, self._accepting):
                table.clear()
        error: Exception = EngineClosed("the engine was closed before this answer ended; ask again")
        if not closing:
            error = EngineDied(
                f"the process of the engine ended with {process.exitcode}, and with it all that it computed; ask again"
            )
        for each in accepting:
            each.set_exception(error)
        for answer in answers:
            answer.end(error)
        if closing:  # else another process may be started, and closed with its own grace
            self._closed.set()
