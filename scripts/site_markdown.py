"""A hook of mkdocs: what GitHub shows of the pages and docstrings, Python-Markdown shows, too.

GitHub nests lists by two spaces and begins them right below a paragraph; Python-Markdown wants four, and a blank line.
Doctests of docstrings become code, where `>>>` would be three quotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_ITEM = re.compile(r"( *)(?:[-*]|\d+\.) ")
_FENCE = re.compile(r" *(?:```|~~~)")


def converted(lines: list[str]) -> Iterator[str]:
    """Lines of GitHub's Markdown as Python-Markdown reads them.

    >>> list(converted(["Two:", "- a", "  - b", "    c"]))
    ['Two:', '', '- a', '    - b', '        c']
    >>> list(converted([">>> 1 + 1", "2", "", "Text"]))
    ['```pycon', '>>> 1 + 1', '2', '```', '', 'Text']
    """
    fenced = doctest = listed = False
    before = ""
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and line.startswith(">>> ") and not doctest:
            doctest = True
            yield "```pycon"
        elif doctest and not line.strip():
            doctest = False
            yield "```"
        if not fenced and not doctest:
            item = _ITEM.match(line)
            if item and not listed and before.strip() and not item[1]:
                yield ""
            listed = bool(item) or (listed and (not line.strip() or line.startswith(" ")))
            if listed and line.startswith(" "):
                line = " " * (len(line) - len(line.lstrip())) + line
        yield line
        before = line
    if doctest:
        yield "```"


def on_config(config: Any) -> None:
    """Called by mkdocs: the pages and mkdocstrings read Markdown with what is added here."""
    from markdown import Extension
    from markdown.preprocessors import Preprocessor

    class Lines(Preprocessor):
        def run(self, lines: list[str]) -> list[str]:
            return list(converted(lines))

    class GitHubMarkdown(Extension):
        def extendMarkdown(self, md: Any) -> None:
            md.preprocessors.register(Lines(md), "github_markdown", 28)  # before fences are taken out

    config.markdown_extensions.append(GitHubMarkdown())
