"""A server for pages: files of a folder, with HTTP Range, and what a test wants to go wrong."""

from __future__ import annotations

import gzip
import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar


class PageHost(SimpleHTTPRequestHandler):
    """GET of files below `roots`, by the first part of the path, whole or by range; the root is an empty page."""

    protocol_version = "HTTP/1.1"
    roots: dict[str, Path]
    faults: Faults
    extensions_map: ClassVar[dict[str, str]] = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].lstrip("/")
        faults, asked = self.faults, self.headers.get("Range")
        faults.requests.append((name, asked))
        faults.heard.append((name, dict(self.headers)))
        first, _, rest = name.partition("/")
        if not first:
            self.send_response(200)  # an empty page, for modules that a test imports itself
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if first == "moved":
            self.send_response(302)
            self.send_header("Location", f"/{rest}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        root = self.roots.get(first)
        path = root / rest if root is not None else None
        if path is None or not path.is_file() or name in faults.missing:
            self.send_error(404)
            return
        status = faults.status(name, asked)
        if status:
            self.send_error(status)
            return
        content = faults.prelude.get(name, b"") + path.read_bytes()
        tag = hashlib.sha256(content + faults.salt).hexdigest()[:16]
        begin, whole = 0, len(content)
        if asked and faults.ranges:
            first_byte, last_byte = asked.removeprefix("bytes=").split("-")
            begin = int(first_byte)
            content = content[begin : int(last_byte) + 1]
            self.send_response(206)
            told = 0 if faults.starts_over and begin else begin
            self.send_header("Content-Range", f"bytes {told}-{told + len(content) - 1}/{whole}")
            content += faults.surplus
        else:
            self.send_response(200)
            if faults.compressed:
                content = gzip.compress(content, 1)
                self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-cache")
        if faults.tags:
            self.send_header("ETag", f'"{tag}"')
        if faults.modified:
            self.send_header("Last-Modified", faults.modified)
        self.end_headers()
        sent = len(content)
        if len(content) > 1 and (most := faults.cut(name)) is not None:
            sent = min(sent, most)
            self.close_connection = True
        with suppress(ConnectionError):  # a page may go at any time
            self.wfile.write(content[:sent])
        faults.bytes_sent[name] = faults.bytes_sent.get(name, 0) + sent

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that goes in the middle of an answer is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Faults:
    """What goes wrong, and what was asked for; `reset` sets all back."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As a server that has no faults, and no request yet."""
        self.requests: list[tuple[str, str | None]] = []
        self.heard: list[tuple[str, dict[str, str]]] = []  # headers
        self.bytes_sent: dict[str, int] = {}
        self.ranges, self.tags, self.compressed, self.salt = True, True, False, b""
        self.modified = ""  # when, in the words of HTTP
        self.surplus = b""  # what follows a part that was asked for
        self.starts_over = False  # whether a part that does not begin the file is said to begin it
        self.missing: set[str] = set()
        self.prelude: dict[str, bytes] = {}  # what comes before a file
        self.status: Callable[[str, str | None], int] = lambda name, asked: 0
        self.cut: Callable[[str], int | None] = lambda name: None  # after how many bytes the connection ends

    def asked(self, name: str) -> list[str | None]:
        """The ranges of the requests for a file."""
        return [asked for each, asked in self.requests if each == name]


@contextmanager
def hosted(**roots: Path) -> Iterator[tuple[str, Faults]]:
    """The address of a server of these folders, and its faults."""
    faults = Faults()
    handler = type("Host", (PageHost,), {"roots": roots, "faults": faults})
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", faults
    finally:
        server.shutdown()
        server.server_close()
