"""Serves a site on this machine, with the standard library: a fixed table of files, by GET and HEAD, whole or by range.

A request names a key of the table and never a path of the disk, so that there is nothing outside to be reached.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
import re
import socket
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from liveshape.errors import InputError
from liveshape.tools.web_page.site_files import PAGE, SiteFiles

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm", ".json": "application/json"}
_PLAIN = "application/octet-stream"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_PIECE = 1 << 20  # bytes that are read at a time
_THREADS = 64  # connections at a time
_PATIENCE = 60.0  # seconds without a byte that end a connection
# What a site may do beside the policy of its page, which a worker does not have: Python is WebAssembly.
_POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; frame-ancestors 'none'"
_HEADERS = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def site_server(files: SiteFiles, host: str = "127.0.0.1", port: int = 0) -> SiteServer:
    """A server of these files that listens; `serve_forever` answers.

    Example: `with site_server({"index.html": b"Hello"}) as server: server.serve_forever()`.
    """
    try:
        return SiteServer(files, host, port)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"the server cannot listen at {host}, port {port}: {error}; choose --host and --port"
        ) from error


class SiteServer(ThreadingHTTPServer):
    """A server of a fixed table of files; on loopback it answers only to loopback's own names.

    Example: `site_server({"index.html": b"Hello"}).url`.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, files: SiteFiles, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.files: Mapping[str, Path | bytes] = dict(files)
        # Another name that leads to loopback is that of a foreign page which was told to, and not of a person.
        self.hosts = LOOPBACK if host in LOOPBACK else None
        self._room = threading.BoundedSemaphore(_THREADS)
        super().__init__((host, port), SiteRequest)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for a connection; beyond a few dozen they wait."""
        self._room.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of ours."""


class SiteRequest(BaseHTTPRequestHandler):
    """GET and HEAD of a file."""

    server: SiteServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "liveshape", ""
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """The file, or a range of it."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """The headers of the file."""
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        hosts = self.server.hosts
        if hosts is not None and _host_of(self.headers.get("Host", "")) not in hosts:
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        name = unquote(self.path.partition("?")[0]).removeprefix("/") or PAGE
        content = self.server.files.get(name)
        if content is None:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        try:
            file, tag, size = _opened(content)
        except OSError:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        with file:
            self._send(name, file, tag, size, with_body)

    def _send(self, name: str, file: BinaryIO, tag: str, size: int, with_body: bool) -> None:
        headers = {"Content-Type": _type_of(name), "ETag": tag, "Accept-Ranges": "bytes"}
        if name != PAGE:  # which has its own
            headers["Content-Security-Policy"] = _POLICY
        if tag in self.headers.get("If-None-Match", ""):
            self._begin(HTTPStatus.NOT_MODIFIED, headers)
            return
        asked = self.headers.get("Range") if self.headers.get("If-Range", tag) == tag else None
        begin, end, status = 0, size, HTTPStatus.OK
        if asked is not None and (found := _RANGE.fullmatch(asked.strip())) is not None and any(found.groups()):
            begin, end = _range(found[1], found[2], size)
            if begin >= end:
                self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{size}"})
                return
            status = HTTPStatus.PARTIAL_CONTENT
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        self._begin(status, {**headers, "Content-Length": str(end - begin)})
        if not with_body:
            return
        file.seek(begin)
        while begin < end and (piece := file.read(min(_PIECE, end - begin))):
            self.wfile.write(piece)
            begin += len(piece)
        self.close_connection |= begin < end  # the file has become shorter: fewer bytes than promised

    def _begin(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus, headers: Mapping[str, str] | None = None) -> None:
        text = f"{status.value} {status.phrase}\n".encode()
        plain = {"Content-Type": "text/plain", "Content-Length": str(len(text)), "Content-Security-Policy": _POLICY}
        self._begin(status, {**plain, **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: a page reads a model by hundreds of ranges."""


def _opened(content: Path | bytes) -> tuple[BinaryIO, str, int]:
    """A file with its entity tag and size."""
    if isinstance(content, bytes):
        return BytesIO(content), f'"{hashlib.sha256(content).hexdigest()[:32]}"', len(content)
    file = open(content, "rb")  # noqa: SIM115  # closed by the caller
    facts = os.fstat(file.fileno())
    return file, f'"{facts.st_ino:x}-{facts.st_size:x}-{facts.st_mtime_ns:x}"', facts.st_size


def _range(first: str, last: str, size: int) -> tuple[int, int]:
    """Where a range begins and ends: `5-9`, `5-`, or the last bytes, `-5`.

    >>> _range("5", "9", 8), _range("5", "", 8), _range("", "5", 8), _range("9", "", 8)
    ((5, 8), (5, 8), (3, 8), (9, 8))
    """
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


def _type_of(name: str) -> str:
    found = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or _PLAIN
    return f"{found}; charset=utf-8" if found.startswith("text/") else found


def _host_of(header: str) -> str | None:
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None
