"""Lines that are longer than the terminal: broken between words, in messages, in stories and in help."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from typing import TextIO

_WIDEST = 118  # of help: the width that it is written for
_FARTHEST = 0.7  # of a width: a column that begins behind it has no room for words


def wrapped(text: str, stream: TextIO) -> str:
    """A text for people, with its long lines broken where a stream is a terminal; elsewhere it stays as it is.

    Example: `print(wrapped(message, sys.stderr), file=sys.stderr)`.
    """
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(broken(line, width) for line in text.split("\n"))


def broken(line: str, width: int) -> str:
    """A line in as many as it needs: those after the first below its second column, or a little to the right of it.

    >>> broken("  one two three", 10), broken("  one  two three", 12)
    ('  one two\\n    three', '  one  two\\n       three')
    """
    columns = re.match(r"\s+\S.*?\s{2,}", line)
    below = columns.end() if columns is not None else len(line)
    indent = " " * (below if below < width * _FARTHEST else len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


class Words:
    """Text as it comes, to a stream; on a terminal no line breaks inside of a word, so a word waits until it is whole.

    Example: `words = Words(sys.stdout); words.put("Once upon"); words.put(" a time"); words.end()`.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = shutil.get_terminal_size().columns if stream.isatty() else 0
        self._column, self._space, self._word = 0, "", ""

    def put(self, text: str) -> None:
        """One more piece."""
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
        """What waits."""
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
    """Sentences fill the width; what is indented keeps its lines.

    Example: `argparse.ArgumentParser(formatter_class=HelpFormatter)`.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        width = min(width, _WIDEST)
        pieces: list[str] = []
        # A paragraph is a row of lines that begin at the margin.
        for part in re.split(r"((?:^[ \t].*\n?|^\n)+)", text, flags=re.MULTILINE):
            if part.startswith((" ", "\n")):
                pieces += [broken(line, width) for line in part.removesuffix("\n").split("\n")]
            elif part.strip():
                pieces.append(textwrap.fill(part, width, break_long_words=False, break_on_hyphens=False))
        return "\n".join(pieces)
