"""Which nodes of a program fold to one box: layers where attention tells them, else what repeats in program order.

Folds nest: all layers in a row are a fold of folds, and a long layer folds what repeats inside of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

_FEW = 24  # nodes in a row that are shown as they are
_MAX_DEPTH = 4


@dataclass(frozen=True)
class Fold:
    """Nodes from `first` up to `last`, and the folds among them; `alike` says that its folds are all equal."""

    name: str
    first: int
    last: int
    folds: tuple[Fold, ...] = ()
    alike: bool = False


def folds_of(kinds: Sequence[Hashable], layers: Sequence[str] | None = None) -> tuple[Fold, ...]:
    """The folds of a program, from what kind each node is and the layer that it belongs to.

    >>> [(fold.name, fold.first, fold.last, len(fold.folds)) for fold in folds_of("xabcabcabcy")]
    [('3 blocks', 1, 10, 3)]
    >>> [fold.name for fold in folds_of("abcabc", ["layer 0"] * 3 + ["layer 1"] * 3)[0].folds]
    ['layer 0', 'layer 1']
    """
    codes = _codes(kinds)
    if layers is None:
        return _repeats(codes, 0, len(codes), _MAX_DEPTH)
    found: list[Fold] = []
    inner: list[Fold] = []
    first = 0
    for name, row in groupby(layers):
        last = first + len(list(row))
        if name.startswith("layer "):
            inner.append(Fold(name, first, last, _inside(codes, first, last)))
        elif last - first > _FEW:
            found.append(Fold(name, first, last, _inside(codes, first, last)))
        first = last
    if inner:
        whole = Fold(f"{len(inner)} layers", inner[0].first, inner[-1].last, tuple(inner), _equal(codes, inner))
        found.append(whole)
    return tuple(sorted(found, key=lambda fold: fold.first))


def _codes(kinds: Iterable[Hashable]) -> np.ndarray:
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(kind, len(known)) for kind in kinds], dtype=np.int64)


def _inside(codes: np.ndarray, first: int, last: int, depth: int = _MAX_DEPTH - 1) -> tuple[Fold, ...]:
    return _repeats(codes, first, last, depth) if last - first > _FEW else ()


def _equal(codes: np.ndarray, folds: Sequence[Fold]) -> bool:
    rows = [codes[fold.first : fold.last].tolist() for fold in folds]
    return all(row == rows[0] for row in rows)


def _repeats(codes: np.ndarray, first: int, last: int, depth: int) -> tuple[Fold, ...]:
    """What repeats most between two nodes as a fold, and the same for what is left of it, inside and right of it."""
    if not depth or last - first < 6:
        return ()
    found = _longest(codes[first:last])
    if found is None:
        return ()
    start, period, times = first + found[0], found[1], found[2]
    end = start + times * period
    blocks = tuple(
        Fold(f"block {turn}", begin, begin + period, _inside(codes, begin, begin + period, depth - 1))
        for turn, begin in enumerate(range(start, end, period))
    )
    whole = Fold(f"{times} blocks", start, end, blocks, True)
    return (*_repeats(codes, first, start, depth), whole, *_repeats(codes, end, last, depth))


def _longest(codes: np.ndarray) -> tuple[int, int, int] | None:
    """Where the longest run of equal blocks starts, how many nodes a block has, and how many blocks there are."""
    best: tuple[int, int, int] | None = None
    covered = 5  # a fold of fewer nodes is not worth a click
    for period in range(3, len(codes) // 2 + 1):
        equal = np.concatenate(([False], codes[period:] == codes[:-period], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        begins, ends = edges[::2], edges[1::2]
        if not len(begins):
            continue
        run = int(np.argmax(ends - begins))
        times = (int(ends[run] - begins[run]) + period) // period
        if times > 1 and times * period > covered:
            covered, best = times * period, (int(begins[run]), period, times)
    return best


__all__ = ["Fold", "folds_of"]
