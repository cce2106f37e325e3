"""The chat page at `/`: the files of page_source/ as one HTML file that needs nothing but the server's own API.

`liveshape web` makes its pages of the same files, with another `api.js` that runs the model in the page itself.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from importlib import resources

# From the ground up: a script uses those before it when it is read, and all of them when it runs.
SCRIPTS = (
    "dom.js",
    "storage.js",
    "theme.js",
    "highlight.js",
    "tex_symbols.js",
    "tex.js",
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
STYLES = ("base.css", "style.css", "prose.css")


def page() -> bytes:
    """The page, self-contained.

    >>> page()[:15]
    b'<!doctype html>'
    """
    style, script = _parts()
    parts = {"policy": "", "symbols": source("symbols.html"), "host": "server", "style": style, "script": script}
    return joined(source("index.html"), **parts)


@functools.cache
def headers() -> Mapping[str, str]:
    """What to send with the page: it may run its own script, talk to its own server, and nothing else.

    >>> headers()["Content-Type"]
    'text/html; charset=utf-8'
    """
    style, script = map(digest, _parts())
    policy = {
        "default-src": "'none'",
        "script-src": script,
        "style-src": style,
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


def source(name: str) -> str:
    """A file of the page.

    >>> source("index.html")[:15]
    '<!doctype html>'
    """
    return resources.files("liveshape.serve").joinpath("page_source", name).read_text(encoding="utf-8")


def joined(template: str, **parts: str) -> bytes:
    """A page of its parts, which stand in it as `{{name}}`; what they hold is not looked at.

    >>> joined("<p>{{text}}</p>", text="{{text}}")
    b'<p>{{text}}</p>'
    """
    page, *rest = template.split("{{")
    for piece in rest:
        name, _, after = piece.partition("}}")
        page += parts[name] + after
    return page.encode()


def digest(part: str) -> str:
    """A style or a script, as a policy allows it.

    >>> digest("")[:15]
    "'sha256-47DEQpj"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"


def _parts() -> tuple[str, str]:
    """The style and the script, as they stand in the page."""
    return "\n".join(map(source, STYLES)), "\n".join(map(source, SCRIPTS))
