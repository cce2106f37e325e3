"""Functions of WGSL by their names, so that a generated text has those that it calls, and what these call, alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from liveshape.errors import PlanError
from liveshape.kernels.preprocessor import choose, expand, read, texts

# Each with what it includes; no name is in two of them.
FILES = (
    *("elementwise/special_functions", "elementwise/arithmetic_functions", "elementwise/rare_functions"),
    *("elementwise/complex_functions", "common/bytes", "common/narrowed"),
)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEFINITION = re.compile(r"^(?:fn|var<private>|const|struct|alias)\s+(\w+)", re.MULTILINE)
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


@cache
def definitions() -> dict[str, str]:
    """The text of every function, constant and struct of the library.

    >>> definitions()["flags"].splitlines()[0]
    'fn flags(condition: vec4<bool>) -> vec4<f32> {'
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in FILES:
        file = read(name)
        text = _COMMENT.sub("", "".join(texts(tuple(expand(file.pieces, choose(name, file, {}), taken)))))
        starts = [(match.start(), match.group(1)) for match in _DEFINITION.finditer(text)]
        for (start, word), (stop, _) in zip(starts, [*starts[1:], (len(text), "")], strict=True):
            if word in found:
                raise PlanError(f"{name}.wgsl: {word} is defined twice in the library of functions")
            found[word] = text[start:stop].strip()
    return found


def needed(texts_of: Iterable[str]) -> str:
    """What these texts call of the library, and what that calls, in the order of its files.

    >>> [line for line in needed(["flags(x)"]).splitlines() if line.startswith("fn")]
    ['fn flags(condition: vec4<bool>) -> vec4<f32> {']
    """
    library = definitions()
    wanted: set[str] = set()
    left = [word for text in texts_of for word in _WORD.findall(text)]
    while left:
        word = left.pop()
        if word in library and word not in wanted:
            wanted.add(word)
            left += _WORD.findall(library[word])
    return "\n".join(text for word, text in library.items() if word in wanted)
