"""The log: a line of JSON for each request that ended, and for what else happens."""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import time
from typing import Any, TextIO

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from liveshape.serve.service import Service

logger = logging.getLogger("liveshape.serve")

TOLD = "liveshape.told"  # in a scope: what a route adds to the line of its request
_IDENTITY = re.compile(r"[\w.:-]{1,80}")


class JsonLines(logging.Formatter):
    """Log records as lines of JSON, with the fields given as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"time": f"{moment}.{int(record.msecs):03}Z", "level": record.levelname.lower()}
        line |= {"event": record.getMessage(), **getattr(record, "fields", {})}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log(event: str, /, **fields: Any) -> None:
    """Write a line.

    Example: `log("ready", model="story", seconds=1.2)`.
    """
    logger.info(event, extra={"fields": fields})


def log_failure(error: BaseException) -> None:
    """Write a line with the trace of an error that nobody expected.

    Example: `except Exception as error: log_failure(error)`.
    """
    logger.error("failed", exc_info=error)


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is by then: a program may redirect it, and close what it was."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def log_to_stderr() -> None:
    """Write the log of the server to stderr, and what uvicorn has to say from warnings on."""
    handler = _Stderr()
    handler.setFormatter(JsonLines())
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    uvicorn = logging.getLogger("uvicorn")
    uvicorn.handlers, uvicorn.propagate = [handler], False
    uvicorn.setLevel(logging.WARNING)


class RequestLog:
    """Middleware: gives each request an id, counts it and logs it when it has ended.

    Example: `Middleware(RequestLog, service=service, routes=["/v1/models"])`.
    """

    def __init__(self, app: ASGIApp, service: Service, routes: list[str]) -> None:
        self._app, self._service, self._routes = app, service, frozenset(routes)
        self._refused_loading = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 499  # of a client that went away before its answer
        given = Headers(scope=scope).get("x-request-id", "")
        identity = given if _IDENTITY.fullmatch(given) else f"req_{secrets.token_hex(8)}"
        told = scope[TOLD] = dict[str, Any]()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = identity
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            path = scope["path"]
            self._service.metrics.requests[path if path in self._routes else "other", status] += 1
            seconds = round(time.perf_counter() - begun, 6)
            line = {"id": identity, "method": scope["method"], "path": path[:200], "status": status}
            loading = status == 503 and self._service.engine is None
            if not (loading and self._refused_loading):  # who waits for the load asks every second
                log("request", **line, seconds=seconds, **told)
            self._refused_loading |= loading
