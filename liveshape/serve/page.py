"""The chat page at `/`: the files of page_source/ as one HTML file that needs nothing but the server's own API."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from importlib import resources

# From the ground up: a script uses those before it when it is read, and all of them when it runs.
SCRIPTS = (
    "dom.js",
    "inline.js",
    "markdown.js",
    "conversations.js",
    "api.js",
    "answering.js",
    "thread.js",
    "composer.js",
    "sidebar.js",
    "dialogs.js",
    "page.js",
)


def page() -> bytes:
    """The page, self-contained.

    >>> page()[:15]
    b'<!doctype html>'
    """
    style, script = _parts()
    return _source("index.html").replace("{{style}}", style).replace("{{script}}", script).encode()


@functools.cache
def headers() -> Mapping[str, str]:
    """What to send with the page: it may run its own script, talk to its own server, and nothing else.

    >>> headers()["Content-Type"]
    'text/html; charset=utf-8'
    """
    style, script = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in _parts())
    policy = {
        "default-src": "'none'",
        "script-src": f"'sha256-{script}'",
        "style-src": f"'sha256-{style}'",
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        # No text becomes HTML, whatever a model writes: the browser refuses innerHTML and its kin.
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _parts() -> tuple[str, str]:
    """The style and the script, as they stand in the page."""
    return _source("style.css"), "\n".join(_source(name) for name in SCRIPTS)


def _source(name: str) -> str:
    return resources.files("liveshape.serve").joinpath("page_source", name).read_text(encoding="utf-8")
