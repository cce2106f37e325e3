"""Which way a 4-bit layer takes: one row, few rows, tiles or large tiles, by how many rows there are and how deep.

How often a depth is split does not depend on the columns, so that layers which became one give the bytes that they
gave apart; but for one quantized row and few that are quantized by the epilogue, and for large tiles, which
may differ in the last bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from liveshape.graph import Limits, Shape
from liveshape.ops.shapes import ceil_div

FEW_ROWS = 16  # up to here a layer is bound by reading the weight, once for eight rows
FEW_INT8_ROWS = 8
ROWS_TOGETHER = 8  # of few, that a thread takes
TURNS = 4  # words that a thread of one row asks for at once
MOST_UNIT_THREADS = 256  # that cooperate on the depth of four columns of one row
LEAST_UNIT_THREADS, ROW_UNIT_THREADS = 16, 128  # and of several
ENOUGH_THREADS = 1 << 17  # for a device
STEP_PLACES = 32  # of the depth that a step of quantized rows is for, and a vector of nibbles
GATED_INT8_ROWS = (
    64  # up to here the epilogue quantizes a gated unit: large tiles take 8% longer by it than by a dispatch
)
QUANTIZING_THREADS = 256  # of a workgroup whose epilogue quantizes: of 16 units, for the 32 neighbours that have a step
QUANTIZING_UNIT_THREADS = QUANTIZING_THREADS // 16
ADDED_THREADS = 1024  # and of one that quantizes a sum with a residual: of 8 units
GATED_UNITS, ADDED_UNITS = 16, 8  # of four columns, whose sums are quantized together in a workgroup

MANY_THREADS = 32  # from here on threads are there by the thousand: tiles that are too few split the depth (split-K)
SPLITS = 8  # of the depth of 64 rows, in workgroups of their own
SPLIT_DEPTH = 256  # what each has of it at least
DEEP = 512  # one more of these in the depth, one more split
MOST_SPLIT_COLUMNS = 32768  # more fill a device by themselves, and their sums take room

LARGE = 128  # rows and columns of a large tile
LARGE_THREADS, LARGE_BYTES = 256, 32768  # that its workgroup has
LARGE_ROWS = 64  # from more on large tiles are faster, though half of the last one may be empty
# Costs of large tiles on the H200, where they were measured: in places of the depth of a tile that a multiprocessor
# computes, 0.1 us (0.05 us of bytes). Of numbers it has two at once, which take 0.2 us together, one alone 0.13 us.
AT_ONCE = 132  # tiles that are computed in the time of one, pairs of them of numbers
PAIR_COST, LONE_COST = 2.0, 1.33
FIRST_COST = 0.15  # more of the first pairs, which wait for memory together until they are out of step
WORTH = 0.97  # of the time of tiles without splits: what splitting must come down to
TILE_COST = 32  # of a tile beside its depth
SUMS_COST, INT8_SUMS_COST = 0.3, 0.5  # of the partial sums of a tile, written and read once more
COMBINE_COST = 40  # of one more dispatch
LEAST_SHARE = 128  # of the depth of a large tile
MOST_SUMS = 1 << 24  # of all splits
MOST_SPLIT_ROWS = MOST_SUMS // (2 * LARGE)


def is_few(rows: int, int8: bool, limits: Limits) -> bool:
    """Whether rows are taken eight at a time and not in tiles, which few threads share at more than they save."""
    if int8:
        return rows <= FEW_INT8_ROWS
    return rows <= FEW_ROWS or limits.max_cooperating_threads < MANY_THREADS


def defers_norm(rows: int, limits: Limits) -> bool:
    """Whether layers get a row quantized before its RMSNorm, with its sum of squares, and apply the scale."""
    return rows == 1 and limits.max_cooperating_threads >= MANY_THREADS


def has_large_tiles(limits: Limits) -> bool:
    """Whether threads are many and a workgroup of them can keep a large tile."""
    threads = limits.max_cooperating_threads >= MANY_THREADS and limits.max_invocations >= LARGE_THREADS
    return threads and limits.max_workgroup_bytes >= LARGE_BYTES


def is_large(rows: int, depth: int, group: int, limits: Limits) -> bool:
    """Whether a layer takes large tiles, of whole steps of the depth and with scales for four neighbours."""
    return rows > LARGE_ROWS and depth % 16 == 0 < depth and group % 4 == 0 and has_large_tiles(limits)


def splits_of(rows: int, columns: int, depth: int, int8: bool, limits: Limits) -> int:
    """How many workgroups split the depth of a tile (split-K)."""
    if rows > LARGE_ROWS and has_large_tiles(limits):
        down, across = ceil_div(rows, LARGE), ceil_div(columns, LARGE)
        return _large_splits(down, (rows - 1).bit_length(), across, depth, int8)
    if columns > MOST_SPLIT_COLUMNS or limits.max_cooperating_threads < MANY_THREADS:
        return 1
    return max(1, min(SPLITS, max(SPLITS, depth // DEEP) // max(ceil_div(rows, 64), 1), depth // SPLIT_DEPTH))


@lru_cache(maxsize=1024)  # of few values
def _large_splits(down: int, power: int, across: int, depth: int, int8: bool) -> int:
    """How many workgroups split the depth of each of `down` by `across` large tiles."""
    several, steps = _worth_sharing(power, across, depth, int8), ceil_div(depth, STEP_PLACES)
    return min(several, key=lambda splits: _cost(down * across, splits, steps, int8), default=1)


@lru_cache(maxsize=1024)
def _worth_sharing(power: int, across: int, depth: int, int8: bool) -> tuple[int, ...]:
    """In how many splits of their depth large tiles may be, or none, as is better.

    It is for all rows up to a power of two and above the one before: planning at these two finds what is to be
    compiled at load.
    """
    most = 1 << power
    steps = ceil_div(depth, STEP_PLACES)
    several = []
    for splits in range(2, min(SPLITS, depth // LEAST_SHARE) + 1):
        idle = (splits - 1) * ceil_div(steps, splits) >= steps  # the last of them has nothing to do
        if not idle and splits * most * across * LARGE <= MOST_SUMS:
            several.append(splits)
    if not several:
        return ()
    counts = [each * across for each in range(ceil_div(most // 2 + 1, LARGE), most // LARGE + 1)]
    split = sum(min(_cost(tiles, splits, steps, int8) for splits in several) for tiles in counts)
    return () if WORTH * sum(_cost(tiles, 1, steps, int8) for tiles in counts) <= split else tuple(several)


def _cost(tiles: int, splits: int, steps: int, int8: bool) -> float:
    """The time of all tiles, in rounds of as many as a device computes at once."""
    count = tiles * splits
    if int8:
        rounds: float = ceil_div(count, AT_ONCE)
    else:
        pairs, left = divmod(count, 2 * AT_ONCE)
        last = 0 if left == 0 else LONE_COST if left <= AT_ONCE else PAIR_COST
        rounds = pairs * PAIR_COST + last + (FIRST_COST if count > AT_ONCE else 0)
    again = count * (INT8_SUMS_COST if int8 else SUMS_COST) + COMBINE_COST if splits > 1 else 0.0
    return rounds * (ceil_div(steps, splits) * STEP_PLACES + TILE_COST) + again


@lru_cache(maxsize=1024)  # of bounds, which are the same at every call
def partial_sums_bound(rows: int, columns: int, depth: int, int8: bool, limits: Limits) -> Shape:
    """Scratch for the partial sums of every split, in whole vectors, at the number of rows with most of them."""
    most, wide = 0, ceil_div(columns, 4) * 4
    # Of more rows than these no depth is split: a file can name billions of them.
    for each in range(64, min(rows, MOST_SPLIT_ROWS) + 64, 64):
        splits = splits_of(each, columns, depth, int8, limits)
        most = max(most, min(each, rows) * wide * splits if splits > 1 else 0)
    return (most,)


def shares_of_row(columns: int, depth: int, group: int, together: bool = False) -> dict[str, Any]:
    """How threads split the depth of four columns of one row; `together`, in vectors of neighbours of one group."""
    words = ceil_div(depth, 8)
    unit_threads = 1
    while unit_threads < MOST_UNIT_THREADS and unit_threads * TURNS < words:
        unit_threads = unit_threads * 2
    scaled = 8 if group % 8 == 0 else 1
    turns = TURNS if scaled == 8 and words % (unit_threads * TURNS) == 0 else 1
    together = together and turns == TURNS and group % (8 * TURNS) == 0
    return {
        "PREFETCHED": turns,
        "VECTORS": together,
        "SCALED": scaled,
        "UNIT_THREADS": unit_threads,
        "cooperative_units": ceil_div(columns, 4),
    }


def shares_of_rows(rows: int, columns: int, depth: int, group: int) -> dict[str, Any]:
    """How threads split the depth of four columns of 2, 4 or 8 rows."""
    held = _held(rows)
    unit_threads = _unit_threads(ceil_div(depth, 8) // 8)
    units = ceil_div(rows, held) * ceil_div(columns, 4)
    return {
        "ROWS": held,
        "SCALED": 8 if group % 8 == 0 else 1,
        "UNIT_THREADS": unit_threads,
        "cooperative_units": units,
    }


def shares_of_int8_rows(rows: int, columns: int, depth: int, together: bool = False) -> dict[str, Any]:
    """How threads split the depth of four columns of 1, 2, 4 or 8 quantized rows, which are quantized `together`."""
    held = _held(rows)
    units = ceil_div(rows, held) * ceil_div(columns, 4)
    unit_threads = _unit_threads(depth // STEP_PLACES // 2)
    return {
        "ROWS": held,
        "UNIT_THREADS": min(unit_threads, QUANTIZING_UNIT_THREADS) if together else unit_threads,
        "cooperative_units": units,
    }


def shares_of_int8_row(columns: int, depth: int, together: int, limits: Limits) -> dict[str, Any]:
    """How threads split the depth of four columns of one row that is quantized: as many as fill a device.

    So many units are quantized `together`.
    """
    units, unit_threads = ceil_div(columns, 4), LEAST_UNIT_THREADS
    if together == ADDED_UNITS:
        threads = (
            1 << min(limits.max_invocations, ADDED_THREADS if limits.subgroup else QUANTIZING_THREADS).bit_length() - 1
        )
        while threads > QUANTIZING_THREADS and threads // together * STEP_PLACES > depth:
            threads = threads // 2
        return {"UNIT_THREADS": max(threads // together, 1), "WG": threads, "cooperative_units": units}
    most = QUANTIZING_UNIT_THREADS if together else MOST_UNIT_THREADS
    while unit_threads < most and unit_threads * units < ENOUGH_THREADS and unit_threads * 2 * STEP_PLACES <= depth:
        unit_threads = unit_threads * 2
    return {"UNIT_THREADS": unit_threads, "cooperative_units": units}


def _held(rows: int) -> int:
    """Rows that a thread takes together, of few: a power of two."""
    held = 1
    while held < rows and held < ROWS_TOGETHER:
        held = held * 2
    return held


def _unit_threads(wanted: int) -> int:
    unit_threads = LEAST_UNIT_THREADS
    while unit_threads < ROW_UNIT_THREADS and unit_threads * 2 <= wanted:
        unit_threads = unit_threads * 2
    return unit_threads


def tiles_of(rows: int, columns: int, group: int) -> dict[str, Any]:
    """Tiles of 64 by 64, or of 32 by 64 where there are no more rows."""
    groups = ceil_div(rows, 64) * ceil_div(columns, 64)
    fours = 1 if rows <= 32 else 2
    return {"ROW_THREADS": 8, "ROW_FOURS": fours, "DEPTH": 4, "SCALED": 4 if group % 4 == 0 else 1, "groups": groups}


def int8_tiles_of(rows: int, columns: int) -> dict[str, Any]:
    """Tiles of 64 by 128, of 32 by 64 or of 16 by 128 as the rows need them."""
    if rows <= 32:
        down = 4 if rows <= 16 else 8
        return {"ROW_THREADS": down, "ROW_FOURS": 1, "COLUMN_FOURS": 1, "groups": ceil_div(columns, 512 // down)}
    groups = ceil_div(rows, 64) * ceil_div(columns, 128)
    return {"ROW_THREADS": 8, "ROW_FOURS": 2, "COLUMN_FOURS": 2, "groups": groups}


def large_tiles_of(rows: int, columns: int) -> dict[str, Any]:
    """Large tiles."""
    return {"groups": ceil_div(rows, LARGE) * ceil_div(columns, LARGE)}
