"""A server from its start to its end: it listens while the model is loaded, and lets running answers end."""

from __future__ import annotations

import _imp
import _thread
import asyncio
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType

import uvicorn

from liveshape.errors import InputError
from liveshape.llm.serving.async_engine import AsyncEngine
from liveshape.serve.app import app_of
from liveshape.serve.header_deadline import HeaderDeadline
from liveshape.serve.request_log import log
from liveshape.serve.service import Service

_THREADS = 32
_WARM_PROMPTS, _WARM_TOKENS = (9, 60), 3
_AGAIN = 0.01  # seconds until an interrupt that came at the wrong moment
_LAST_BYTES = 5  # seconds for clients to read the end of an answer


class GracefulServer(uvicorn.Server):
    """A server whose engine is closed with it: running answers have `grace` seconds to end.

    Example: `GracefulServer(service, grace=30).run(sockets=[listening("127.0.0.1", 8000)])`.
    """

    def __init__(self, service: Service, grace: float) -> None:
        super().__init__(
            uvicorn.Config(
                app_of(service),
                http=HeaderDeadline,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=int(grace) + _LAST_BYTES,
            )
        )
        self._service, self._grace = service, grace

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first one stops the server, a second one does not wait for answers."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        # Requests are read and queued in threads: one that is slow must not keep the others waiting.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "liveshape requests"))
        await super().serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        engine, embedder = self._service.engine, self._service.embedder
        closing = None if engine is None else asyncio.create_task(engine.close(self._grace))
        self._service.long.close()
        await super().shutdown(sockets)
        if embedder is not None:
            await asyncio.to_thread(embedder.close)
        if engine is None or closing is None:
            return
        if self.force_exit:
            closing.cancel()
            await engine.close()
        else:
            await closing


def listening(host: str, port: int) -> socket.socket:
    """A socket that is bound; port 0 is any that is free.

    Example: `listening("127.0.0.1", 0).getsockname()[1]`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"the server cannot listen at {host}, port {port}: {error}; choose --host and --port"
        ) from error


def warm(engine: AsyncEngine) -> None:
    """Generate a few tokens, so that the kernels of short prompts and of decode are compiled when a client asks.

    Example: `warm(SerialEngine(*load("folder")))`.
    """

    async def generate() -> None:
        for length in _WARM_PROMPTS:
            ids = [next(iter(engine.tokenizer.encode("a", add_special_tokens=False)), 0)] * length
            if length + _WARM_TOKENS <= engine.max_context:
                async for _ in engine.generate(ids, max_tokens=_WARM_TOKENS):
                    pass

    asyncio.run(generate())


def serve_until_stopped(service: Service, load: Callable[[], AsyncEngine], bound: socket.socket, grace: float) -> None:
    """Serve until SIGINT or SIGTERM. The model is loaded in this thread, where Ctrl-C ends it as in any command, while
    another one answers that it is being loaded.

    Example: `serve_until_stopped(service, lambda: SerialEngine(*load("folder")), listening("127.0.0.1", 8000), 30)`.
    """
    server = GracefulServer(service, grace)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="liveshape server")
    try:
        with _on_signals(_interrupt):
            thread.start()
            service.engine = load()
        log("ready", model=service.names[0], max_context=service.engine.max_context)
        with _on_signals(server.stop):
            thread.join()
    finally:
        server.should_exit = True
        if thread.ident is not None:
            thread.join()
        log("ended")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Not while the lock of all imports is held: where Python has acquired it and not begun the `try` that releases it,
    the thread of the server would wait for it for ever."""
    if not _imp.lock_held():
        raise KeyboardInterrupt
    # Not by `threading`, whose own lock the interrupted line may hold.
    _thread.start_new_thread(_interrupt_again, (number,))


def _interrupt_again(number: int) -> None:
    time.sleep(_AGAIN)
    _thread.interrupt_main(signal.Signals(number))


@contextmanager
def _on_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM, in the main thread, which alone may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, signal.SIG_DFL if handled is None else handled)
