"""Float32 products by matrix units of halves: a number is the sum of two halves, the nearest one and what that leaves.

So 22 bits of each factor count. Of the four products of their halves three are summed: that of both remainders is below
what rounding the others loses. Matrix units truncate their sums, so that errors grow with the depth: those of SUM_DEPTH
are added up by threads, which round, and products with a remainder, 2^11 times smaller, have sums of their own. Errors
are then less than those of a float32 product by threads: of 4,096 x 768 x 2,304 normal numbers 2.1e-7 of the result's
size beside 4.9e-7, of positive ones 4.7e-7 beside 4.2e-7, of 4,096 x 3,072 x 768 2.2e-7 beside 1e-6; were all summed by
matrix units, 2.7e-6, 6e-6 and 1.1e-5 (H200).
"""

from __future__ import annotations

from typing import Any

from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.ops.matrix_heuristics import (
    LOW_TILE,
    MAX_FLOAT_SPLITS,
    MULTIPROCESSORS,
    SMALL_TILE,
    matrix_shape,
    power_below,
    tile_constants,
)
from liveshape.ops.shapes import ceil_div

PARTS = 2  # of a number
BLOCK, BLOCK_VECTORS = 16, 4  # neighbours of the depth, whose parts are neighbours; vectors of eight halves
SUM_DEPTH = 128  # 256 is 3% faster, and of positive numbers 2.7 times as inexact as threads
SPLIT_STEP = 32  # of the depth, that a tile stages
WIDE_TILE = 96  # columns
MAX_SPLIT_SUMS = 2 * MULTIPROCESSORS * SMALL_TILE * WIDE_TILE  # partial sums of the tiles that split-K gives a device
SPLIT_DEPTH = 768  # of each part of a depth, at least
MIN_SPLIT_SIZE, MIN_SPLIT_DEPTH = 64, 64  # rows or columns; and depth
MIN_SPLIT_PRODUCTS = 1 << 28  # below, threads take less: 128 x 768 x 768 25 us, not 37


def splits_floats(dtype: str, limits: Limits) -> bool:
    """Whether factors of a dtype are split: float32 that nobody permits to round, where matrix units are fast.

    >>> splits_floats("float32", Limits())
    False
    """
    exact = dtype == "float32" and not limits.half_inputs
    return exact and limits.fast_matrices and matrix_shape(limits, "float16") is not None


def gains_by_splitting(batch: int, rows: int, columns: int, depth: int) -> bool:
    """Whether a product of float32 is so large that splitting its factors takes less than what it saves.

    >>> gains_by_splitting(1, 4096, 768, 768), gains_by_splitting(1, 128, 768, 768)
    (True, False)
    """
    if min(rows, columns) < MIN_SPLIT_SIZE or depth < MIN_SPLIT_DEPTH:
        return False
    return prod(power_below(size) for size in (batch, rows, columns, depth)) >= MIN_SPLIT_PRODUCTS


def may_gain_by_splitting(rows: int, columns: int, depth: int) -> bool:
    """The same of a product's bounds, of all of a batch."""
    return (
        min(rows, columns) >= MIN_SPLIT_SIZE
        and depth >= MIN_SPLIT_DEPTH
        and rows * columns * depth >= MIN_SPLIT_PRODUCTS
    )


def split_vectors(depth: int) -> int:
    """Vectors of eight halves that a line of a split factor has.

    >>> split_vectors(24)
    8
    """
    return BLOCK_VECTORS * ceil_div(depth, BLOCK)


def split_bytes(count: int) -> int:
    """Of so many numbers as lines of whole blocks, at whatever depth has most of them.

    >>> split_bytes(64 * 65) >= 64 * 16 * split_vectors(65)
    True
    """
    return 16 * BLOCK_VECTORS * ceil_div(count + (BLOCK - 1) * (count // MIN_SPLIT_DEPTH), BLOCK)


def split_tiles(batch: int, rows: int, columns: int, depth: int, limits: Limits) -> tuple[dict[str, Any], int]:
    """Tiles of a product of split factors, and split-K.

    Larger ones leave no registers for three sums: 64 x 64 take 3 to 15% longer than 64 x 96, 128 x 128 twice as long.
    """
    if limits.has_many_threads:
        wide = WIDE_TILE * ceil_div(columns, WIDE_TILE) <= SMALL_TILE * ceil_div(columns, SMALL_TILE)
        down, across, step = SMALL_TILE, WIDE_TILE if wide else SMALL_TILE, SPLIT_STEP
    else:  # a compiler for CPUs takes minutes over the text of larger ones
        down, across, step = LOW_TILE, LOW_TILE, BLOCK
    count = batch * ceil_div(rows, down) * ceil_div(columns, across)
    splits = 1
    if count < MULTIPROCESSORS:
        splits = max(1, min(MAX_FLOAT_SPLITS, 2 * MULTIPROCESSORS // count, depth // SPLIT_DEPTH))
    tiles = tile_constants(down, across, step, limits, parts=PARTS)
    return tiles | {"groups": count * splits, "SUM_STEPS": SUM_DEPTH // step}, splits
