"""Results against torch, and results of one program run in two ways against each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.graphs.reference import Expected


class Wrong(AssertionError):
    """A result that is not what it must be."""


def check_close(got: list[Any], want: Expected, context: str) -> None:
    """Shapes equal, whole numbers and exact floats equal, the others within their tolerance."""
    for place, (have, array, tolerance) in enumerate(zip(got, want.arrays, want.tolerances, strict=True)):
        if have is None:  # a state that no node uses
            continue
        where = f"{context}, output {place}"
        if np.shape(have) != np.shape(array):
            raise Wrong(f"{where}: shape {np.shape(have)}, torch has {np.shape(array)}")
        if not np.size(array):
            continue
        off = np.abs(np.asarray(have, np.float64) - np.asarray(array, np.float64))
        if not (off <= tolerance).all():
            worst = np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off))), off.shape)
            wrong = np.count_nonzero(~(off <= tolerance))
            raise Wrong(
                f"{where}: {wrong} of {off.size} elements are wrong, at {tuple(map(int, worst))} "
                f"{np.asarray(have)[worst]}, torch has {np.asarray(array)[worst]}, {tolerance:.3g} is allowed"
            )


def check_same(got: list[Any], want: list[Any], context: str) -> None:
    """The very same bytes."""
    for place, (have, other) in enumerate(zip(got, want, strict=True)):
        if np.shape(have) != np.shape(other) or np.asarray(have).tobytes() != np.asarray(other).tobytes():
            off = ""
            if np.shape(have) == np.shape(other):
                differ = np.asarray(have) != np.asarray(other)
                off = f": {np.count_nonzero(differ)} of {np.size(have)} elements differ"
            raise Wrong(f"{context}, output {place}: {np.shape(have)} and {np.shape(other)}{off}")
