"""Who is answered: requests with the key, of hosts and origins that may ask."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from liveshape.serve.bodies import JsonBody
from liveshape.serve.refusals import Refusal, error_body
from liveshape.serve.service import Service

_OPEN = ("/", "/health")  # the page has no secret: it asks for the key itself
_PORTS = {"http": 80, "https": 443}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Authorization:
    """Middleware: refuses requests without the key, and those that a foreign page makes through its visitor's browser.

    Example: `Middleware(Authorization, service=service)`.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        headers = dict(refusal.headers)
        if refusal.status == 401:
            headers["WWW-Authenticate"] = "Bearer"  # no Basic: a browser would ask for a password before the page does
        body = JsonBody(error_body(refusal, scope["path"]), refusal.status, headers)
        await body(scope, receive, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers, service = Headers(scope=scope), self._service
        host = _host_of(f"//{headers.get('host', '')}")
        # On loopback: another name that leads here is that of a page which was told to, and not of a person.
        if service.hosts is not None and host not in service.hosts:
            return Refusal(403, f"this server is not known by the name {host!r:.80}; start it with --host")
        origin = headers.get("origin")
        allowed = "*" in service.cors or origin in service.cors
        if origin is not None and not allowed and not _is_own(origin, headers.get("host", ""), scope["scheme"]):
            return Refusal(403, f"pages of {origin!r:.80} may not ask here: --cors allows them")
        if service.key is None or scope["path"] in _OPEN:
            return None
        if any(_same(given, service.key) for given in _keys(headers)):
            return None
        return Refusal(
            401, "the key is missing or wrong: send it as Authorization: Bearer KEY", None, "invalid_api_key"
        )


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_own(origin: str, host: str, scheme: str) -> bool:
    """Whether a page of this server asks: the same scheme, host and port.

    A proxy that ends TLS need not say so: then the page is of https, and the request came by http.

    >>> _is_own("http://localhost:8000", "localhost:8000", "http"), _is_own("http://localhost:3000", "", "http")
    (True, False)
    """
    page = _origin_of(origin)
    if page is not None and page[0] == "https" and page[1] not in LOOPBACK:
        scheme = "https"
    return page is not None and page == _origin_of(f"{scheme}://{host}")


def _origin_of(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None if it is no address of a web page."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return None if port is None or not parts.hostname else (parts.scheme, parts.hostname, port)


def _same(given: str, key: str) -> bool:
    """In constant time: how long it takes tells nothing of the key."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), key.encode("utf-8", "replace"))


def _keys(headers: Headers) -> Iterator[str]:
    """The keys that a request has: as a bearer, or in Anthropic's header."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        yield value.strip()
    if "x-api-key" in headers:
        yield headers["x-api-key"]
