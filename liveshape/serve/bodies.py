"""The JSON bodies of requests, bounded while they are read, and of responses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from liveshape.serve.fields import Fields
from liveshape.serve.refusals import Refusal
from liveshape.serve.request_limits import RequestLimits


async def read_fields(request: Request, limits: RequestLimits) -> Fields:
    """Read the JSON object of a request.

    Example: `fields = await read_fields(request, RequestLimits())`.
    """
    return await asyncio.to_thread(fields_of, await read_body(request, limits))


async def read_body(request: Request, limits: RequestLimits) -> bytes:
    """Read the body of a request, within the limits of its length and time.

    Example: `content = await read_body(request, RequestLimits())`.
    """
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _read(request, limits.body_bytes)
    except TimeoutError:
        raise Refusal(408, f"the body took longer than {limits.body_seconds:g} seconds to arrive") from None
    except ClientDisconnect:
        raise Refusal(400, "the body ended before it was whole") from None


async def _read(request: Request, most: int) -> bytes:
    told = request.headers.get("content-length", "")
    content = bytearray()
    if not told.isdigit() or int(told) <= most:
        async for piece in request.stream():
            content += piece
            if len(content) > most:
                break
        else:
            return bytes(content)
    raise Refusal(413, f"the body is longer than {most:,} bytes, which is the most that is taken")


def fields_of(content: bytes) -> Fields:
    """The fields of a JSON object.

    >>> fields_of(b'{"n": 2}').raw("n")
    2
    """
    try:
        return Fields(json.loads(content, parse_constant=_no_number))
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested too deep
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:200]
        raise Refusal(400, f"the body is no JSON: {reason}", None, "invalid_json") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def encoded(document: Any) -> bytes:
    """A JSON document as bytes; what is no text in UTF-8 becomes a question mark.

    >>> encoded({"text": "\\ud800"})
    b'{"text":"?"}'
    """
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


class JsonBody(Response):
    """A JSON response.

    Example: `JsonBody({"object": "list", "data": []})`.
    """

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encoded(content)
