"""Rows of whole numbers in the order and form that the operators of a delegate take them."""

from __future__ import annotations

import numpy as np

from liveshape.export.model.layout import Array

# Linear layers of 4 bits have outputs in fours; rows of zeros fill them up.
ROWS = 4
# A row of 4-bit codes takes whole words.
_WORD = 8
# The sums of groups come in rows of this multiple.
_SUMS = 8


def padded(count: int, multiple: int = ROWS) -> int:
    """
    >>> padded(130), padded(128)
    (132, 128)
    """
    return -(-count // multiple) * multiple


def packed_width(width: int) -> int:
    """The bytes of a row of 4-bit codes.

    >>> packed_width(64), packed_width(100)
    (32, 52)
    """
    return padded(width, _WORD) // 2


def pack_codes(codes: Array) -> Array:
    """Codes in -8..7, two to a byte: the even one in the low half, both 8 higher than they are.

    >>> pack_codes(np.array([[-8, 7, 0, 0, 0, 0, 0, 1]], np.int8))
    array([[240, 136, 136, 152]], dtype=uint8)
    """
    width = codes.shape[1]
    raised = codes.view(np.uint8) + np.uint8(8)
    if width % _WORD:
        raised = np.pad(raised, ((0, 0), (0, -width % _WORD)), constant_values=8)
    pairs = np.ascontiguousarray(raised).view("<u2")
    packed: Array = (pairs | pairs >> 4).astype(np.uint8)
    return packed


def by_group(numbers: Array, rows: int) -> Array:
    """(N, groups) as (groups, rows), filled up with zeros.

    >>> by_group(np.array([[1, 2], [3, 4]]), 4)
    array([[1, 3, 0, 0],
           [2, 4, 0, 0]])
    """
    return np.pad(numbers.T, ((0, 0), (0, rows - len(numbers))))


def by_row(numbers: Array, rows: int) -> Array:
    """(N, groups) with rows of zeros below.

    >>> by_row(np.array([[1, 2]]), 2)
    array([[1, 2],
           [0, 0]])
    """
    return np.pad(numbers, ((0, rows - len(numbers)), (0, 0)))


def group_sums(codes: Array, groups: int) -> Array:
    """The sum of the codes of each group, int32 (N, groups).

    >>> group_sums(np.array([[1, 2, -8, 7]], np.int8), 2)
    array([[ 3, -1]], dtype=int32)
    """
    sums: Array = codes.reshape(len(codes), groups, -1).sum(axis=2, dtype=np.int32)
    return sums


def sums_rows(rows: int) -> int:
    """How many sums a group has where there are so many rows.

    >>> sums_rows(132)
    136
    """
    return padded(rows, _SUMS)
