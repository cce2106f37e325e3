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
FOUR = 4
VECTOR_BYTES = 16


class RegisterTile(NamedTuple):
    """A tile, the rows and columns of it that a thread has, in fours, and the fours of the depth of a step; of these,
    those in one text, and how many steps are in workgroup memory."""

    rows: int
    columns: int
    thread_row_fours: int
    thread_column_fours: int
    step_fours: int = 4
    unrolled: int = 1
    buffers: int = 1

    @property
    def threads(self) -> int:
        """Of its workgroup."""
        return self.rows * self.columns // (FOUR * FOUR * self.thread_row_fours * self.thread_column_fours)

    @property
    def nbytes(self) -> int:
        """Of workgroup memory."""
        return VECTOR_BYTES * self.buffers * self.step_fours * (self.rows + self.columns)

    def constants(self, *, transposed: bool) -> dict[str, Any]:
        """Those of matmul/register_tiles.wgsl; vectors of a `transposed` right factor lie along the depth."""
        right = self.columns * self.step_fours
        return {
            "WG": self.threads,
            "TILE_ROWS": self.rows,
            "TILE_COLUMNS": self.columns,
            "THREAD_ROW_FOURS": self.thread_row_fours,
            "THREAD_COLUMN_FOURS": self.thread_column_fours,
            "STEP_FOURS": self.step_fours,
            "UNROLLED": self.unrolled,
            "BUFFERS": self.buffers,
            "LEFT_LOADS": ceil_div(self.rows // FOUR * self.step_fours, self.threads),
            "RIGHT_LOADS": ceil_div(right // FOUR if transposed else right, self.threads),
        }

    def covering(self, batch: int, rows: int, columns: int) -> int:
        """How many cover a product."""
        return batch * ceil_div(rows, self.rows) * ceil_div(columns, self.columns)


LOW = RegisterTile(32, 64, 1, 1)
SMALL = RegisterTile(64, 64, 2, 1)
LARGE = RegisterTile(128, 64, 2, 2)


def takes_register_tiles(limits: Limits) -> bool:
    """Whether a device has room for their workgroups.

    >>> takes_register_tiles(Limits()), takes_register_tiles(Limits(max_cooperating_threads=4))
    (True, False)
    """
    tiles = (LOW, SMALL, LARGE)
    fit = all(tile.threads <= limits.max_invocations and tile.nbytes <= limits.max_workgroup_bytes for tile in tiles)
    return limits.has_many_threads and fit


def register_tile(batch: int, rows: int, columns: int, limits: Limits) -> RegisterTile:
    """The tile of a product. All of them sum alike.

    >>> register_tile(1, 4096, 4096, Limits()).rows
    128
    >>> register_tile(1, 16, 768, Limits()).rows
    32
    """
    if LARGE.covering(batch, rows, columns) >= LARGE_TILES:
        return LARGE
    return SMALL if rows > LOW.rows else LOW


def split_k(batch: int, rows: int, columns: int, depth: int, limits: Limits) -> int:
    """In how many parts the depth goes, so that few tiles fill a device: one, where sums have one order.

    >>> split_k(1, 128, 768, 768, Limits()), split_k(1, 4096, 768, 768, Limits())
    (12, 1)
    """
    if limits.one_order:
        return 1
    tiles = register_tile(batch, rows, columns, limits).covering(batch, rows, columns)
    return max(1, min(MAX_SPLITS, SPLIT_TILES // max(tiles, 1), depth // SPLIT_DEPTH))


def split_sums(results: int) -> int:
    """Partial sums of at most so many results, whatever their rows and columns are."""
    return min(MAX_SPLITS * results, SPLIT_TILES * max(tile.rows * tile.columns for tile in (LOW, SMALL)))
