"""A server for pages: files of a folder, with HTTP Range, and what a test wants to go wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar


class PageHost(SimpleHTTPRequestHandler):
    """GET of files below `roots`, by the first part of the path, whole or by range."""

    roots: dict[str, Path]
    cut: bool  # whether answers of ranges are cut short
    extensions_map: ClassVar[dict[str, str]] = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def do_GET(self) -> None:
        first, _, rest = self.path.partition("?")[0].lstrip("/").partition("/")
        root = self.roots.get(first)
        path = root / rest if root is not None else None
        if path is None or not path.is_file():
            self.send_error(404)
            return
        content, asked = path.read_bytes(), self.headers.get("Range")
        if asked:
            begin, end = asked.removeprefix("bytes=").split("-")
            part = content[int(begin) : int(end) + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{int(begin) + len(part) - 1}/{len(content)}")
            content = part[: len(part) // 2] if type(self).cut and len(part) > 1 else part
        else:
            self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


@contextmanager
def hosted(**roots: Path) -> Iterator[tuple[str, type[PageHost]]]:
    """The address of a server of these folders, and its class, whose `cut` a test may set."""
    handler = type("Host", (PageHost,), {"roots": roots, "cut": False})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        server.server_close()
