"""The chat page as a file: whole, with a policy that fits it, and carried by the package."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import liveshape.serve
from liveshape.serve.page import SCRIPTS, STYLES, headers, page

SOURCE = Path(liveshape.serve.__file__).parent / "page_source"


def part(tag: str) -> str:
    (found,) = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page().decode(), re.DOTALL)
    return found


def test_the_policy_allows_the_script_and_the_style_of_the_page_and_no_other() -> None:
    policy = dict(each.split(" ", 1) for each in headers()["Content-Security-Policy"].split("; "))
    for tag, directive in {"script": "script-src", "style": "style-src"}.items():
        digest = base64.b64encode(hashlib.sha256(part(tag).encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"


def test_the_page_is_whole() -> None:
    text = page().decode()
    assert "{{" not in text
    assert {path.name for path in SOURCE.iterdir()} == {"index.html", "symbols.html", *STYLES, *SCRIPTS}
    assert all((SOURCE / name).read_text() in text for name in ("symbols.html", *STYLES, *SCRIPTS))


def test_the_page_fetches_nothing_from_elsewhere() -> None:
    text = page().decode()
    assert set(re.findall(r"""\b(?:src|href)=["']?([^"'> ]{5})""", text)) <= {"data:", "#icon", "#mess"}
    assert not re.findall(r"@import|url\(", part("style"))
    asked = set(re.findall(r'(?:request|post|fetch)\("(.*?)"', part("script")))
    assert asked == {"v1/models", "v1/chat/completions", "v1/completions", "health"}


def test_no_script_makes_html_of_text() -> None:
    assert not re.findall(r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval)\b *[=(]", part("script"))
