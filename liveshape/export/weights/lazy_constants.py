"""The constants of a program: what they are is known at once, their data is made as it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from liveshape.export.model.layout import Array

_LARGEST_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Constant:
    """A tensor of the file, under a key of its own.

    >>> Constant("model.norm.weight", "float32", (64,)).nbytes
    256
    """

    key: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


# The next bytes of a constant, as elements of its dtype.
Chunk = tuple[Constant, Array]
Piece = Callable[[], Sequence[Chunk]]


@dataclass(frozen=True)
class Batch:
    """Constants that are made together, such as the codes and scales of a matrix.

    Pieces may be made at the same time as each other; what they give is written in order, then comes the rest.
    """

    constants: tuple[Constant, ...]
    pieces: Sequence[Piece]
    rest: Piece = tuple


def batch_of(constant: Constant, make: Callable[[], Array]) -> Batch:
    """A constant that is made at once.

    Example: `batch_of(Constant("zeros", "float32", (4,)), lambda: np.zeros(4))`.
    """
    return Batch((constant,), [lambda: [(constant, as_stored(make(), constant.dtype))]])


def as_stored(numbers: Array, dtype: str) -> Array:
    """Numbers as a constant of this dtype; what float16 cannot hold becomes its largest number.

    >>> as_stored(np.array([1e6, -2.0], np.float32), "float16")
    array([ 6.55e+04, -2.00e+00], dtype=float16)
    """
    if dtype == "float16":
        numbers = np.clip(numbers, -_LARGEST_HALF, _LARGEST_HALF)
    return np.ascontiguousarray(numbers, np.dtype(dtype).newbyteorder("<"))
