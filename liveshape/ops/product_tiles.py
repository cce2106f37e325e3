"""Tiles of products of floats where threads are many: their sizes, and split-K where they are few.

Measured on an H200, which has 132 multiprocessors: medians of candidates side by side, 16 to 16,384 rows of the layers
of an encoder of BERT-base's size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from liveshape.graph import Limits
from liveshape.ops.shapes import ceil_div

MAX_SPLITS = 16
SPLIT_TILES = 384  # tiles and splits that a device is filled with
SPLIT_DEPTH = 64  # of each split, at least
LARGE_TILES = 264  # that keep a device busy, of the large ones
STEP_FOURS = 4  # of the depth, that are staged at a time
VECTOR_BYTES = 16


class RegisterTile(NamedTuple):
    """A tile, the part of it that a thread has, rows and columns in fours, and the fours of a step in one text."""

    rows: int
    columns: int
    thread_rows: int
    thread_fours: int
    unrolled: int = 1

    @property
    def threads(self) -> int:
        """Of its workgroup."""
        return self.rows // self.thread_rows * (self.columns // (4 * self.thread_fours))

    @property
    def nbytes(self) -> int:
        """Of workgroup memory."""
        return VECTOR_BYTES * (STEP_FOURS + 1) * (self.rows + self.columns)

    @property
    def constants(self) -> dict[str, Any]:
        """Those of matmul/register_tiles.wgsl."""
        return {
            "WG": self.threads,
            "TILE_ROWS": self.rows,
            "TILE_COLUMNS": self.columns,
            "THREAD_ROWS": self.thread_rows,
            "THREAD_FOURS": self.thread_fours,
            "STEP_FOURS": STEP_FOURS,
            "UNROLLED": self.unrolled,
            "LEFT_LOADS": self.rows * STEP_FOURS // self.threads,
            "RIGHT_LOADS": self.columns * STEP_FOURS // self.threads,
        }

    def covering(self, batch: int, rows: int, columns: int) -> int:
        """How many cover a product."""
        return batch * ceil_div(rows, self.rows) * ceil_div(columns, self.columns)


LOW = RegisterTile(32, 64, 4, 1)
SMALL = RegisterTile(64, 64, 8, 1)
# By whether the right factor is [N, K], whose text has more registers: 33 and 36 Tflop/s of 55.
LARGE = {True: RegisterTile(128, 64, 8, 2), False: RegisterTile(128, 64, 8, 2, unrolled=STEP_FOURS)}


def takes_register_tiles(limits: Limits) -> bool:
    """Whether a device has room for their workgroups.

    >>> takes_register_tiles(Limits()), takes_register_tiles(Limits(max_cooperating_threads=4))
    (True, False)
    """
    tiles = (LOW, SMALL, *LARGE.values())
    fit = all(tile.threads <= limits.max_invocations and tile.nbytes <= limits.max_workgroup_bytes for tile in tiles)
    return limits.has_many_threads and fit


def register_tile(batch: int, rows: int, columns: int, limits: Limits, *, transposed: bool) -> RegisterTile:
    """The tile of a product. All of them sum alike.

    >>> register_tile(1, 4096, 4096, Limits(), transposed=False).rows
    128
    >>> register_tile(1, 16, 768, Limits(), transposed=False).rows
    32
    """
    large = LARGE[transposed]
    if large.covering(batch, rows, columns) >= LARGE_TILES:
        return large
    return SMALL if rows > LOW.rows else LOW


def split_k(batch: int, rows: int, columns: int, depth: int, limits: Limits, *, transposed: bool) -> int:
    """In how many parts the depth goes, so that few tiles fill a device: one, where sums have one order.

    >>> split_k(1, 128, 768, 768, Limits(), transposed=True), split_k(1, 4096, 768, 768, Limits(), transposed=True)
    (12, 1)
    """
    if limits.one_order:
        return 1
    tiles = register_tile(batch, rows, columns, limits, transposed=transposed).covering(batch, rows, columns)
    return max(1, min(MAX_SPLITS, SPLIT_TILES // max(tiles, 1), depth // SPLIT_DEPTH))


def split_sums(results: int) -> int:
    """Partial sums of at most so many results, whatever their rows and columns are."""
    return min(MAX_SPLITS * results, SPLIT_TILES * max(tile.rows * tile.columns for tile in (LOW, SMALL)))
