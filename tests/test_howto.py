"""The how-tos: questions of users, each of which leads to an answer with code; tests/test_blocks.py runs that code."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "howto"
INDEX = FOLDER / "index.md"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path != INDEX)
QUESTIONS = 40
_QUESTION = re.compile(r"^(\d+)\. \[(.+)\]\(([\w-]+\.md)#([\w-]+)\)$", re.MULTILINE)
_ANSWER = re.compile(r"^## (How do I [^\n]+\?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchor(heading: str) -> str:
    """The fragment that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def answers() -> list[tuple[str, str]]:
    """The page and the fragment of every answer."""
    return [(page.name, anchor(found[1])) for page in PAGES for found in _ANSWER.finditer(page.read_text("utf-8"))]


def test_every_question_leads_to_an_answer() -> None:
    questions = _QUESTION.findall(INDEX.read_text(encoding="utf-8"))
    assert [int(number) for number, *_ in questions] == list(range(1, QUESTIONS + 1))
    assert len({words for _, words, *_ in questions}) == QUESTIONS
    assert len(answers()) == QUESTIONS
    assert sorted((page, fragment) for *_, page, fragment in questions) == sorted(answers())


def test_every_answer_is_short_and_has_code() -> None:
    for page in PAGES:
        for found in _ANSWER.finditer(page.read_text(encoding="utf-8")):
            blocks, prose = _FENCED.findall(found[2]), _FENCED.sub("", found[2])
            assert 1 <= len(blocks) <= 2, found[1]
            assert 2 <= len(re.findall(r"[.:](?=\s)", prose)) <= 8, found[1]


def test_lines_are_no_longer_than_those_of_other_pages() -> None:
    for page in (INDEX, *PAGES):
        for line in page.read_text(encoding="utf-8").splitlines():
            assert len(line) <= 125, f"{page.name}: {line}"
