"""Where the text of a kernel indexes a variable: `name[subscript]`.

The text must be free of comments, which may hold brackets and names of variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from liveshape.errors import PlanError

_BRACKET = re.compile(r"[\[\]]")


class Access(NamedTuple):
    """`text[start:end]` is `name[subscript]`."""

    name: str
    subscript: str
    start: int
    end: int


def accesses(text: str, names: Iterable[str]) -> Iterator[Access]:
    """The outermost accesses of these variables, in order; members of structs that have such a name are none of them.

    >>> [access.subscript for access in accesses("a[b[i]] + params.b[0] * b[1]", ("a", "b"))]
    ['b[i]', '1']
    """
    end = 0
    for match in re.finditer(rf"(?<![.\w])({'|'.join(names)})\[", text):
        if match.start() >= end:
            end = _closing(text, match.end()) + 1
            yield Access(match.group(1), text[match.end() : end - 1], match.start(), end)


def _closing(text: str, start: int) -> int:
    depth = 1
    for bracket in _BRACKET.finditer(text, start):
        depth += 1 if bracket.group() == "[" else -1
        if depth == 0:
            return bracket.start()
    raise PlanError("unbalanced brackets in a kernel's text")
