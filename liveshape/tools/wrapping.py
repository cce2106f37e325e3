"""Word wrap to the terminal's width, for messages, streamed text and help."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from typing import TextIO

_WIDEST = 118  # columns of help, as it is written
_FARTHEST = 0.7  # fraction of the width: a hanging indent beyond it leaves no room for words


def wrapped(text: str, stream: TextIO) -> str:
    """Word-wrap a message where the stream is a terminal; elsewhere it is unchanged.

    Example: `print(wrapped(message, sys.stderr), file=sys.stderr)`.
    """
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(broken(line, width) for line in text.split("\n"))


def broken(line: str, width: int) -> str:
    """Word-wrap one line with a hanging indent: at its second column, or two spaces in.

    >>> broken("  one two three", 10), broken("  one  two three", 12)
    ('  one two\\n    three', '  one  two\\n       three')
    """
    columns = re.match(r"\s+\S.*?\s{2,}", line)
    below = columns.end() if columns is not None else len(line)
    indent = " " * (below if below < width * _FARTHEST else len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


class Words:
    """Streaming word wrap: on a terminal a word is buffered until it is complete, so that no line breaks inside one.

    Example: `words = Words(sys.stdout); words.put("Once upon"); words.put(" a time"); words.end()`.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = shutil.get_terminal_size().columns if stream.isatty() else 0
        self._column, self._space, self._word = 0, "", ""

    def put(self, text: str) -> None:
        """Write a piece of text."""
        if not self._width:
            self._stream.write(text)
        for character in text if self._width else "":
            if not character.isspace():
                self._word += character
                continue
            self._put_word()
            if character == "\n":
                self._stream.write("\n")
                self._column, self._space = 0, ""
            else:
                self._space += character
        self._stream.flush()

    def end(self) -> None:
        """Flush the buffered word."""
        self._put_word()
        self._stream.flush()

    def _put_word(self) -> None:
        if not self._word:
            return
        if self._column and self._column + len(self._space) + len(self._word) > self._width:
            self._column, self._space = 0, "\n"
        self._stream.write(self._space + self._word)
        self._column += len(self._space.removeprefix("\n")) + len(self._word)
        self._space = self._word = ""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """argparse help formatter: paragraphs are word-wrapped, indented lines are kept.

    Example: `argparse.ArgumentParser(formatter_class=HelpFormatter)`.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        width = min(width, _WIDEST)
        pieces: list[str] = []
        # A paragraph is a run of lines without an indent.
        for part in re.split(r"((?:^[ \t].*\n?|^\n)+)", text, flags=re.MULTILINE):
            if part.startswith((" ", "\n")):
                pieces += [broken(line, width) for line in part.removesuffix("\n").split("\n")]
            elif part.strip():
                pieces.append(textwrap.fill(part, width, break_long_words=False, break_on_hyphens=False))
        return "\n".join(pieces)
