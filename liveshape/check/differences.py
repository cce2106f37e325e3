"""Two arrays compared: which elements differ by more than a tolerance, and the worst of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

TOLERANCE = 1e-4  # of the largest number of a tensor, for float32
FACTORS = {"float16": 40.0, "bfloat16": 200.0}  # of the tolerance, for numbers with fewer digits
_PACKED = ("int8", "uint8")
_MAX_ROUNDED = 0.01  # of quantized elements, that may round to a neighbour


@dataclass(frozen=True)
class Difference:
    """How a tensor differs from what was expected: the worst element, and how many are wrong."""

    index: tuple[int, ...]
    got: Any
    want: Any
    error: float  # relative to the largest number expected; infinite where one of two is NaN or a shape differs
    wrong: int
    count: int

    def __str__(self) -> str:
        share = f"{self.wrong:,} of {self.count:,} elements"
        return f"{self.got!r} for {self.want!r} at {self.index}, off by {self.error:.1e}; {share} differ"


def difference(got: Any, want: Any, dtype: str, tolerance: float = TOLERANCE) -> Difference | None:
    """The difference of an array of the device and its reference, or None where they agree.

    Floats agree to a tolerance, relative to the largest number expected; integers exactly, but for quantized ones that
    round to a neighbour now and then.

    >>> difference(np.array([1.0, 2.5]), np.array([1.0, 2.0]), "float32").index
    (1,)
    """
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return Difference((), got.shape, want.shape, np.inf, got.size, got.size)
    if got.size == 0:
        return None
    if got.dtype.kind in "biu":
        return _of_integers(got, want, dtype)
    with np.errstate(all="ignore"):
        wide, meant = (each.astype(np.complex128 if each.dtype.kind == "c" else np.float64) for each in (got, want))
        meant = meant.astype(got.dtype).astype(wide.dtype)  # what it would be stored as
        finite = np.abs(meant[np.isfinite(meant)])
        scale = float(finite.max(initial=0.0)) or 1.0
        same = (wide == meant) | (np.isnan(wide) & np.isnan(meant))
        errors = np.where(same, 0.0, np.abs(wide - meant) / scale)
        errors = np.where(np.isnan(errors), np.inf, errors)
    wrong = errors > tolerance * FACTORS.get(dtype, 1.0)
    return _worst(got, want, errors, wrong) if wrong.any() else None


def _of_integers(got: Any, want: Any, dtype: str) -> Difference | None:
    apart = np.abs(got.astype(np.float64) - want.astype(np.float64))
    wrong = apart > 0
    if dtype in _PACKED and apart.max() <= 1 and wrong.mean() <= _MAX_ROUNDED:
        return None
    return _worst(got, want, apart, wrong) if wrong.any() else None


def _worst(got: Any, want: Any, errors: Any, wrong: Any) -> Difference:
    index = np.unravel_index(int(errors.argmax()), errors.shape)
    place = tuple(int(each) for each in index)
    return Difference(
        place, got[place].item(), want[place].item(), float(errors.max()), int(wrong.sum()), int(wrong.size)
    )
