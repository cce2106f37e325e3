"""The data of a constant: bytes of the file, or those of several constants woven into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from liveshape.formats.source import check_view, drop_pages


@dataclass(frozen=True)
class Woven:
    """Constants as one: a run of bytes of each in turn, again and again. Nothing is copied before it is asked for.

    >>> bytes(next(Woven((memoryview(b"aaaabbbb"), memoryview(b"AABB")), (4, 2)).pieces(1 << 20)))
    b'aaaaAAbbbbBB'
    """

    parts: tuple[memoryview, ...]
    runs: tuple[int, ...]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def pieces(self, nbytes: int) -> Iterator[Any]:
        """The bytes in pieces of about `nbytes`, each but the last of whole words if every part is."""
        turns = len(self) // sum(self.runs)
        if turns == 1:
            for part in self.parts:
                yield from pieces(part, nbytes)
            return
        rows = [np.frombuffer(part, np.uint8).reshape(turns, -1) for part in self.parts]
        step = max(nbytes // sum(self.runs) // 4, 1) * 4
        for start in range(0, turns, step):
            for part in self.parts:
                check_view(part)
            yield np.concatenate([row[start : start + step] for row in rows], axis=1).reshape(-1)
            for part in self.parts:
                drop_pages(part)


Constant = memoryview | Woven


def pieces(constant: Constant, nbytes: int) -> Iterator[Any]:
    """The bytes of a constant, piece by piece; what was taken does not stay in memory."""
    if isinstance(constant, Woven):
        yield from constant.pieces(nbytes)
        return
    for start in range(0, len(constant), nbytes):
        check_view(constant)
        yield constant[start : start + nbytes]
        drop_pages(constant)


def whole(constant: Constant) -> memoryview:
    """All bytes of a constant; those of the file are not copied."""
    if isinstance(constant, Woven):
        return memoryview(b"".join(bytes(piece) for piece in constant.pieces(len(constant))))
    check_view(constant)
    return constant
