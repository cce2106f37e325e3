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


def check_no_worse(
    fused: list[Any], apart: list[Any], want: Expected, roundings: Expected, context: str
) -> list[float]:
    """Exact results the same bytes; others of a fused graph no further from float64 than twice those of the operators
    apart, or than one rounding an operator may bring. Gives how much further, of those whose bytes differ."""
    further = []
    for place, (have, other, array, allowed) in enumerate(
        zip(fused, apart, want.arrays, roundings.tolerances, strict=True)
    ):
        if have is None or np.asarray(have).tobytes() == np.asarray(other).tobytes():
            continue
        where = f"{context}, output {place}"
        if allowed == 0 or np.asarray(have).dtype.kind != "f":
            raise Wrong(f"{where}: exact results differ")
        off, off_apart = (float(np.max(np.abs(np.asarray(each, np.float64) - array))) for each in (have, other))
        if not off <= max(2 * off_apart, allowed):
            raise Wrong(
                f"{where}: fused is off {off:.3g}, apart {off_apart:.3g}, one rounding an operator {allowed:.3g}"
            )
        half_unit = float(np.spacing(np.float32(np.max(np.abs(array))))) / 2
        further.append(max(off, half_unit) / max(off_apart, half_unit))
    return further
