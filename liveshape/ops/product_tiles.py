"""Tiles of products of floats where threads are many: their sizes, and split-K where they are few.

Measured on an H200: candidates side by side, 2 to 16,384 rows of the layers of an encoder of BERT-base's size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from liveshape.graph import Limits
from liveshape.ops.matrix_heuristics import MULTIPROCESSORS
from liveshape.ops.shapes import ceil_div

ENOUGH_TILES = 2 * MULTIPROCESSORS  # from which on large ones serve better than more of the small ones
MAX_SPLITS = 32
FOUR = 4
VECTOR_BYTES = 16


class RegisterTile(NamedTuple):
    """A tile, the rows and columns of it that a thread has, in fours, and the fours of the depth of a step; of these,
    those in one text, and whether the next step is prefetched. For split-K, how many of such workgroups a
    multiprocessor takes, and the depth that each has at least."""

    rows: int
    columns: int
    thread_row_fours: int
    thread_column_fours: int
    step_fours: int = 4
    unrolled: int = 1
    ahead: bool = False
    resident: int = 3
    split_depth: int = 96

    @property
    def threads(self) -> int:
        """Of its workgroup."""
        return self.rows * self.columns // (FOUR * FOUR * self.thread_row_fours * self.thread_column_fours)

    @property
    def nbytes(self) -> int:
        """Of workgroup memory: of both factors, the left of which makes room for sums on their way to memory."""
        stored = self.rows // self.thread_row_fours * self.columns // (FOUR * FOUR)
        return VECTOR_BYTES * (max(self.step_fours * self.rows, stored) + self.step_fours * self.columns)

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
            "AHEAD": self.ahead,
            "LEFT_LOADS": ceil_div(self.rows // FOUR * self.step_fours, self.threads),
            "RIGHT_LOADS": ceil_div(right // FOUR if transposed else right, self.threads),
        }

    @property
    def split_sums(self) -> int:
        """Partial sums of all that a device takes at once."""
        return self.resident * MULTIPROCESSORS * self.rows * self.columns

    def most_splits(self, depth: int) -> int:
        """How many splits a depth has at most."""
        return max(1, min(MAX_SPLITS, depth // self.split_depth))

    def splits(self, tiles: int, depth: int) -> int:
        """In how many parts a depth goes, so that few tiles fill a device."""
        return max(1, min(self.most_splits(depth), self.resident * MULTIPROCESSORS // max(1, tiles)))

    def covering(self, batch: int, rows: int, columns: int) -> int:
        """How many cover a product."""
        return batch * ceil_div(rows, self.rows) * ceil_div(columns, self.columns)


LOWEST = RegisterTile(16, 64, 1, 1, resident=8, split_depth=48)
LOW = RegisterTile(32, 64, 1, 1, ahead=True)
LARGE = RegisterTile(128, 64, 2, 2, unrolled=4)


def takes_register_tiles(limits: Limits) -> bool:
    """Whether a device has room for their workgroups.

    >>> takes_register_tiles(Limits()), takes_register_tiles(Limits(max_cooperating_threads=4))
    (True, False)
    """
    tiles = (LOWEST, LOW, LARGE)
    fit = all(tile.threads <= limits.max_invocations and tile.nbytes <= limits.max_workgroup_bytes for tile in tiles)
    return limits.has_many_threads and fit


def register_tile(batch: int, rows: int, columns: int, depth: int, limits: Limits) -> RegisterTile:
    """The tile of a product: large ones where these and the splits of their depth keep most multiprocessors busy.

    All of them sum alike.

    >>> register_tile(1, 4096, 4096, 64, Limits()).rows, register_tile(1, 512, 768, 768, Limits()).rows
    (128, 128)
    >>> register_tile(1, 128, 768, 768, Limits()).rows, register_tile(1, 16, 768, 768, Limits()).rows
    (32, 16)
    """
    splits = 1 if limits.one_order else LARGE.most_splits(depth)
    if rows > LOW.rows and LARGE.covering(batch, rows, columns) * splits >= ENOUGH_TILES:
        return LARGE
    return LOW if rows > LOWEST.rows else LOWEST


def split_k(batch: int, rows: int, columns: int, depth: int, limits: Limits) -> int:
    """In how many parts the depth goes, so that few tiles fill a device: one, where sums have one order.

    >>> split_k(1, 128, 768, 768, Limits()), split_k(1, 4096, 768, 768, Limits())
    (8, 1)
    """
    if limits.one_order:
        return 1
    tile = register_tile(batch, rows, columns, depth, limits)
    return tile.splits(tile.covering(batch, rows, columns), depth)


def split_sums(results: int) -> int:
    """Partial sums of at most so many results, whatever their rows and columns are."""
    return min(MAX_SPLITS * results, LARGE.split_sums)
