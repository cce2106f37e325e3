"""Server-sent events, and work that ends when its client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from liveshape.serve.bodies import encoded

Result = TypeVar("Result")

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"


class ClientGone(Exception):
    """The client has closed its connection."""


def event(document: Any, name: str | None = None) -> bytes:
    """A server-sent event.

    >>> event({"type": "ping"}, "ping")
    b'event: ping\\ndata: {"type":"ping"}\\n\\n'
    """
    return (b"" if name is None else f"event: {name}\n".encode()) + b"data: " + encoded(document) + b"\n\n"


async def until_gone(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Do some work; raise ClientGone, and cancel it, if the client goes away before its end.

    Example: `body = await until_gone(request.receive, collected(answers))`.
    """
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientGone
        return doing.result()
    finally:
        doing.cancel()
        leaving.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Streams events until they end or the client goes away; `close` is called then, even if none was sent.

    Example: `EventStream(chunks(answers), answers.aclose)`.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], close: Callable[[], Awaitable[None]]) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events, self._close = events, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._sent(send))
        except ClientGone:
            pass
        finally:
            await self._close()

    async def _sent(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._events) as events:
            async for each in events:
                await send({"type": "http.response.body", "body": each, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
