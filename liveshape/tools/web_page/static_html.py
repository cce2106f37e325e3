"""The pages of a site, each one HTML file beside the runtime and the model: a chat, and a form for other programs.

The chat is the server's page with `model_api.js` in the place of its `api.js`. Their policy is a meta tag, since a
static server sends none: scripts and files of the site alone, and the worker of the runtime.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from liveshape.serve.page import SCRIPTS, STYLES, digest, joined, source

# From the ground up, as in the server's page.
_ENGINE = ("worker_policy.js", "support.js", "engine_line.js")
_FORM = (
    "dom.js",
    "storage.js",
    "theme.js",
    *_ENGINE,
    "dtypes.js",
    "npy.js",
    "contents.js",
    "pictures.js",
    "sizes.js",
    "input_cards.js",
    "plot.js",
    "output_cards.js",
    "form.js",
)


def chat_html(site: Mapping[str, Any]) -> bytes:
    """The chat page of a language model; `site` says its name, its files and how to load it.

    >>> chat_html({"name": "story"})[:15]
    b'<!doctype html>'
    """
    scripts = [name for script in SCRIPTS for name in ((*_ENGINE, "model_api.js") if script == "api.js" else (script,))]
    return _html(source("index.html"), (*STYLES, "engine.css"), scripts, site)


def form_html(site: Mapping[str, Any]) -> bytes:
    """The form of a program; `site` has its inputs and outputs.

    >>> form_html({"name": "block.pte"})[:15]
    b'<!doctype html>'
    """
    return _html(_text("form.html"), ("base.css", "engine.css", "form.css"), _FORM, site)


def _html(template: str, styles: Sequence[str], scripts: Sequence[str], site: Mapping[str, Any]) -> bytes:
    # Nothing in a name can end the script that holds it.
    facts = json.dumps(site, allow_nan=False).replace("<", "\\u003c")
    style = "\n".join(map(_text, styles))
    script = "\n".join([f"const SITE = {facts};", *map(_text, scripts)])
    policy = {
        "default-src": "'none'",
        "script-src": f"{digest(script)} 'self'",
        "style-src": digest(style),
        "img-src": "data:",
        "connect-src": "'self'",
        "worker-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        # No text becomes HTML, whatever a model writes; worker_policy.js lets the runtime's worker start.
        "require-trusted-types-for": "'script'",
        "trusted-types": "default",
    }
    content = "; ".join(f"{name} {value}" for name, value in policy.items())
    meta = f'<meta http-equiv="Content-Security-Policy" content="{content}">\n'
    parts = {"policy": meta, "symbols": source("symbols.html"), "host": "model", "style": style, "script": script}
    return joined(template, **parts)


def _text(name: str) -> str:
    """A file of these pages, or one that they share with the server's."""
    own = resources.files("liveshape.tools.web_page").joinpath("page_source", name)
    return own.read_text(encoding="utf-8") if own.is_file() else source(name)


__all__ = ["chat_html", "form_html"]
