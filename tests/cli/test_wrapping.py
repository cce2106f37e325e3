"""Lines break between words, whatever the pieces are that a text comes in."""

from __future__ import annotations

import io
import textwrap

import pytest

from liveshape.tools.wrapping import Words, wrapped

TEXT = (
    "Once upon a time there was a cat.\nIt said: hello,  and went a-way to an unbelievablylongplace, all alone.\n\nEnd"
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")


@pytest.mark.parametrize("size", [1, 3, 7, 200])
def test_pieces_of_any_size(size: int) -> None:
    stream, plain = Terminal(), io.StringIO()
    for out in (stream, plain):
        words = Words(out)
        for start in range(0, len(TEXT), size):
            words.put(TEXT[start : start + size])
        words.end()
    assert plain.getvalue() == TEXT
    lines = [
        textwrap.wrap(line, 20, break_long_words=False, break_on_hyphens=False) or [""] for line in TEXT.split("\n")
    ]
    assert stream.getvalue() == "\n".join("\n".join(each) for each in lines)
    assert stream.getvalue().split() == TEXT.split()


def test_messages() -> None:
    assert wrapped("one two three four five six", Terminal()) == "one two three four\n  five six"
    assert wrapped("one two three four five six", io.StringIO()) == "one two three four five six"
