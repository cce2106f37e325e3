"""Lazy constants of a program: dtype and shape are known up front, the data is produced while the file is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from liveshape.export.model.layout import Array
from liveshape.export.weights.contents import Content

_LARGEST_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Constant:
    """A constant tensor of the file: its key in the named data, dtype, shape, and what it holds.

    A constant without content is what its batch makes of it.

    >>> Constant("model.norm.weight", "float32", (64,)).nbytes
    256
    """

    key: str
    dtype: str
    shape: tuple[int, ...]
    content: Content | None = None

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


# The next bytes of a constant, as elements of its dtype.
Chunk = tuple[Constant, Array]
Piece = Callable[[], Sequence[Chunk]]


@dataclass(frozen=True)
class Batch:
    """Constants that are produced together, such as the codes and scales of a matrix.

    Pieces may run concurrently; their chunks are written in order, followed by those of `rest`.
    """

    constants: tuple[Constant, ...]
    pieces: Sequence[Piece]
    rest: Piece = tuple


def batch_of(constant: Constant, make: Callable[[], Array]) -> Batch:
    """A batch of one constant, produced as a single chunk.

    Example: `batch_of(Constant("zeros", "float32", (4,)), lambda: np.zeros(4))`.
    """
    return Batch((constant,), [lambda: [(constant, as_stored(make(), constant.dtype))]])


def as_stored(numbers: Array, dtype: str) -> Array:
    """Cast to a constant's dtype, little-endian and contiguous; values beyond float16's range saturate.

    >>> as_stored(np.array([1e6, -2.0], np.float32), "float16")
    array([ 6.55e+04, -2.00e+00], dtype=float16)
    """
    if dtype == "float16":
        numbers = np.clip(numbers, -_LARGEST_HALF, _LARGEST_HALF)
    return np.ascontiguousarray(numbers, np.dtype(dtype).newbyteorder("<"))
