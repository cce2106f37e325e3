"""A request between two processes: what an ASGI app sends in one is sent on in the other, as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from liveshape.serve.bodies import JsonBody
from liveshape.serve.refusals import ANTHROPIC, Refusal, error_body
from liveshape.serve.streaming import EventStream, event

Messages = AsyncGenerator[list[Message], None]
_KEPT = ("type", "http_version", "method", "scheme", "path", "raw_path", "query_string", "headers", "client", "server")


class ReplicaLost(Exception):
    """The replica has ended before its answer did."""


def plain_scope(scope: Scope) -> dict[str, Any]:
    """What a scope says of the request, and can be sent to another process.

    >>> plain_scope({"type": "http", "path": "/health", "app": object()})
    {'type': 'http', 'path': '/health'}
    """
    return {name: scope[name] for name in _KEPT if name in scope}


async def answered(app: ASGIApp, scope: Scope, body: bytes) -> Messages:
    """Run an app on a request whose body is here; yields what it sends, as many messages at a time as there are.

    Closing it is a client that goes away.

    Example: `async for messages in answered(app_of(service), scope, b"{}"): ...`.
    """
    sent: asyncio.Queue[Message | None] = asyncio.Queue()
    unread, gone = [body], asyncio.Event()

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.put_nowait(message)

    async def run() -> None:
        try:
            await app(scope, receive, send)
        finally:
            sent.put_nowait(None)

    running = asyncio.create_task(run())
    try:
        while (message := await sent.get()) is not None:
            messages = [message]
            while not sent.empty() and (message := sent.get_nowait()) is not None:
                messages.append(message)
            yield messages
            if message is None:
                break
        await running
    finally:
        gone.set()
        await asyncio.gather(running, return_exceptions=True)


class Forwarded(Response):
    """Sends on what `ask` yields. Where a replica is lost before it began to answer, another one is asked, once; one
    that is lost later ends its stream with an error, as every stream that fails does.

    Example: `Forwarded(lambda: asked(handle, scope, body), "/v1/completions")`.
    """

    def __init__(self, ask: Callable[[], Messages], path: str) -> None:
        super().__init__()
        self._ask, self._path = ask, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun: Message | None = None
        for again in (True, False):
            try:
                async with aclosing(self._ask()) as stream:
                    async for messages in stream:
                        for message in messages:
                            begun = begun or message
                            await send(message)
                return
            except (ReplicaLost, Refusal) as error:
                if begun is None and again and isinstance(error, ReplicaLost):
                    continue
                await self._fail(error, begun, scope, receive, send)
                return

    async def _fail(self, error: Exception, begun: Message | None, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = (
            error
            if isinstance(error, Refusal)
            else Refusal(503, "the replica that was answering has ended; ask again", None, "replica_lost")
        )
        told = error_body(refusal, self._path)
        if begun is None:
            await JsonBody(told, refusal.status, refusal.headers)(scope, receive, send)
        elif (b"content-type", EventStream.media_type.encode()) in _content_types(begun):
            last = event(told, "error" if self._path.startswith(ANTHROPIC) else None)
            await send({"type": "http.response.body", "body": last, "more_body": False})
        else:
            raise error  # a part of a whole answer: the connection breaks


def _content_types(start: Message) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value.partition(b";")[0]) for name, value in start.get("headers", ())]
