"""Packing of quantized weights into the layouts that the delegate's operators take."""

from __future__ import annotations

import numpy as np

from liveshape.export.model.layout import Array

# Outputs of 4-bit linear layers are zero-padded to this multiple.
ROWS = 4
# 4-bit codes per 32-bit word; rows are padded to whole words.
_WORD = 8
# Rows of group sums are padded to this multiple.
_SUMS = 8


def padded(count: int, multiple: int = ROWS) -> int:
    """Round up to a multiple.

    >>> padded(130), padded(128)
    (132, 128)
    """
    return -(-count // multiple) * multiple


def packed_width(width: int) -> int:
    """Bytes per row of packed 4-bit codes.

    >>> packed_width(64), packed_width(100)
    (32, 52)
    """
    return padded(width, _WORD) // 2


def pack_codes(codes: Array) -> Array:
    """Pack 4-bit codes in -8..7 two to a byte, offset by 8, the even one in the low nibble.

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
    """Transpose (N, groups) to (groups, rows), zero-padded.

    >>> by_group(np.array([[1, 2], [3, 4]]), 4)
    array([[1, 3, 0, 0],
           [2, 4, 0, 0]])
    """
    return np.pad(numbers.T, ((0, 0), (0, rows - len(numbers))))


def by_row(numbers: Array, rows: int) -> Array:
    """(N, groups) zero-padded to (rows, groups).

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
    """Padded row count of the group sums.

    >>> sums_rows(132)
    136
    """
    return padded(rows, _SUMS)
