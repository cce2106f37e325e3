"""The page: the files of page_source/ and a document as one HTML file that loads nothing.

The document is deflated, so that nothing in it can end the element that holds it; its text becomes text nodes and
never HTML, which the page's own policy makes sure of.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

# From the ground up: a script uses those before it when it is read, and all of them when it runs.
SCRIPTS = (
    "elements.js",
    "texts.js",
    "program.js",
    "state.js",
    "layered.js",
    "boxes.js",
    "colours.js",
    "drawing.js",
    "graph.js",
    "table.js",
    "memory.js",
    "overview.js",
    "details.js",
    "sliders.js",
    "search.js",
    "page.js",
)


def page(document: Mapping[str, Any]) -> bytes:
    """The page of a program, self-contained.

    >>> page({"program": "model.pte", "methods": []})[:15]
    b'<!doctype html>'
    """
    style, script = _source("style.css"), "\n".join(_source(name) for name in SCRIPTS)
    packed = zlib.compress(json.dumps(document, separators=(",", ":"), allow_nan=False).encode(), 9)
    parts = {
        "policy": _policy(style, script),
        "title": html.escape(str(document["program"])),
        "style": style,
        "data": base64.b64encode(packed).decode(),
        "script": script,
    }
    text = _source("page.html")
    before, *rest = text.split("{{")
    for piece in rest:
        name, _, after = piece.partition("}}")
        before += parts[name] + after
    return before.encode()


def _policy(style: str, script: str) -> str:
    hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (style, script)]
    policy = {
        "default-src": "'none'",
        "style-src": f"'sha256-{hashes[0]}'",
        "script-src": f"'sha256-{hashes[1]}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        # No text becomes HTML, whatever a file calls its tensors: the browser refuses innerHTML and its kin.
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in policy.items())


def _source(name: str) -> str:
    return resources.files("liveshape.tools.program_page").joinpath("page_source", name).read_text(encoding="utf-8")


__all__ = ["page"]
