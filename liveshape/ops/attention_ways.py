"""Which way attention takes: few rows in blocks that split the context, many rows in tiles, by what a device allows.

Every number that was measured rather than derived is here; bench/attention.py tries others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from liveshape.graph import Limits, Shape
from liveshape.ops.shapes import ceil_div

FEW_ROWS = 16  # up to here attention is bound by reading keys and values, not by arithmetic
BLOCK_ROWS = 8  # that read them together
KEPT_FOURS = 32  # of queries that a thread keeps
MOST_LANES = 16  # that score a key together
SHARES = 2048  # of scores in a workgroup's own memory, beside which its partial sums must fit
SPLITS = 32  # of the context at most
SPLIT_KEYS = 64  # in a split at least
UNSPLIT_KEYS = 256  # up to here a second dispatch costs more than it saves
ENOUGH_GROUPS = 256  # of splits: more do not fill a device better

# Where neighbouring threads can hand each other values, which Limits.subgroup tells. A walk is what LANES of them do.
LEAST_LANES = 4
LANE_FOURS = 4  # of a head that a lane keeps at most; larger heads go the other road
WALK_FOURS = 8  # of queries that it keeps at most, of all rows together
WALK_AHEAD = 4  # fours of keys that are on their way to it at once, and as many of values
WALK_THREADS, ALONE_THREADS = 128, 512  # of a workgroup: of many that share a context, of one that has it to itself
LEAST_THREADS = 32
WALK_SPLITS = 128  # of the context at most
WALK_SPLIT_KEYS = 32  # in a split at least: what a workgroup asks for at once
WALK_GROUPS = 528  # of splits: four for each of 132 multiprocessors
ALONE_FOURS = 384 * 16  # of a head's keys: up to here a row alone is done before a split one is combined

COMBINERS = 4  # threads that share what the splits found for an element, each a few of them

# Where threads are there by the thousand, which Limits.max_cooperating_threads tells.
MANY_THREADS = 64
ALONE_KEYS = 1024  # up to here every row has a workgroup of its own and reads the keys of its group again
ALONE_ROWS = 64  # of all heads: more fill the device even if they share
ENOUGH_TILES = 128  # below this smaller tiles fill a device better, though each costs more than half of a large one
TILE_SPLIT_KEYS = 128  # in a split of a tile at least

# Keys, and fours of the head, that a tile brings to the workgroup's memory at a time: the first that fit there, or the
# last where threads are few.
TILE_FORMS = ((64, 16), (64, 8), (32, 8), (32, 4))
LARGE_TILE, SMALL_TILE = 64, 32  # rows
LARGE_HEAD = 128  # above it a large tile has more sums than registers
FEW_TILES = 8  # as ENOUGH_TILES where threads are few


class Block(NamedTuple):
    """How a workgroup takes few rows through its split of the context."""

    rows: int  # a power of two
    lanes: int  # threads that score a key together
    chunk: int  # keys whose scores are kept at a time
    splits: int


class Walk(NamedTuple):
    """How a workgroup takes few rows through its split of the context where neighbours hand each other values."""

    rows: int  # a power of two
    lanes: int  # threads that read a key together
    threads: int
    ahead: int  # keys of a thread that are on their way at once
    mergers: int  # threads that bring together what the walkers found for a four of a row
    splits: int


class Tile(NamedTuple):
    """What a workgroup brings to its memory at a time, and what a thread holds of it."""

    rows: int
    held: int  # rows of a thread
    keys: int
    depth: int  # fours of the head
    value_keys: int
    splits: int

    @property
    def nbytes(self) -> int:
        """Of the workgroup's memory."""
        return 16 * (self.rows * self.depth + self.keys * self.depth + self.keys * self.rows // 4)


def in_blocks(queries: int, group: int) -> bool:
    """Whether the rows of a head are few; one query's are, however many heads share its keys."""
    return queries * group <= FEW_ROWS or queries == 1


def block_of(heads: int, rows: int, size: int, context: int, limits: Limits) -> Block:
    """The block for that many rows of each head of keys, heads of every batch counted.

    >>> block_of(8, 4, 64, 8192, Limits())
    Block(rows=4, lanes=4, chunk=128, splits=32)
    >>> block_of(8, 4, 64, 512, Limits())
    Block(rows=1, lanes=4, chunk=256, splits=1)
    """
    alone = _many(limits) and context <= ALONE_KEYS and heads * rows <= ALONE_ROWS
    block = 1 if alone else _rows_together(rows, size)
    fours = ceil_div(size, 4)
    lanes = 1
    while lanes < MOST_LANES and ((lanes < 4 and lanes < fours) or block * ceil_div(fours, lanes) > KEPT_FOURS):
        lanes = lanes * 2
    units = heads * ceil_div(rows, block)
    splits = 1 if alone else _splits(context, units, ENOUGH_GROUPS, SPLITS, SPLIT_KEYS)
    return Block(block, lanes, min(256, SHARES // (block * lanes)), splits)


def walk_of(heads: int, rows: int, size: int, context: int, limits: Limits) -> Walk | None:
    """The walk for that many rows of each head of keys, heads of every batch counted; None where blocks serve them.

    >>> walk_of(8, 4, 64, 8192, Limits(subgroup=32))
    Walk(rows=4, lanes=16, threads=128, ahead=4, mergers=2, splits=66)
    >>> walk_of(8, 4, 64, 256, Limits(subgroup=32, max_invocations=1024))
    Walk(rows=1, lanes=16, threads=512, ahead=4, mergers=16, splits=1)
    """
    lanes = min(MOST_LANES, limits.subgroup)
    fours = ceil_div(size, 4)
    slice_ = ceil_div(fours, max(lanes, 1))
    if lanes < LEAST_LANES or slice_ > LANE_FOURS:
        return None
    alone = context * fours <= ALONE_FOURS and heads * rows <= ALONE_ROWS
    block, threads = _walkers(1 if alone else rows, size, ALONE_THREADS if alone else WALK_THREADS, limits)
    if not block:
        return None
    most = min(lanes, threads // lanes, max(threads // (block * fours), 1))
    units = heads * ceil_div(rows, block)
    splits = 1 if alone else _splits(context, units, WALK_GROUPS, WALK_SPLITS, WALK_SPLIT_KEYS)
    return Walk(block, lanes, threads, max(WALK_AHEAD // slice_, 1), 1 << most.bit_length() >> 1, splits)


def _walkers(rows: int, size: int, threads: int, limits: Limits) -> tuple[int, int]:
    """Rows that are read for together, none where not even one fits, and threads of a workgroup."""
    lanes, fours = min(MOST_LANES, limits.subgroup), ceil_div(size, 4)
    block = 1
    while block < min(rows, BLOCK_ROWS, lanes) and 2 * block * ceil_div(fours, lanes) <= WALK_FOURS:
        block = block * 2
    threads = min(threads, 1 << limits.max_invocations.bit_length() >> 1)
    # Each walker leaves sums, a top and a mass for each row.
    while threads // lanes * block * (16 * fours + 8) > limits.max_workgroup_bytes:
        threads, block = (threads // 2, block) if threads > LEAST_THREADS else (threads, block // 2)
    return block if threads >= lanes else 0, threads


def combiners(limits: Limits) -> int:
    """Threads that share the splits of an element."""
    return min(COMBINERS, 1 << limits.max_invocations.bit_length() >> 1) if _many(limits) else 1


def _rows_together(rows: int, size: int) -> int:
    block = 1
    while block < rows and block < BLOCK_ROWS and 2 * block * ceil_div(ceil_div(size, 4), MOST_LANES) <= KEPT_FOURS:
        block = block * 2
    return block


def _splits(context: int, units: int, groups: int, most: int, least_keys: int) -> int:
    if context <= UNSPLIT_KEYS or units == 0:
        return 1
    return min(most, ceil_div(groups, units), ceil_div(context, least_keys))


def tile_of(heads: int, rows: int, size: int, context: int, limits: Limits) -> Tile:
    """The tile for that many rows of each head of keys, heads of every batch counted.

    >>> tile_of(8, 2048, 64, 8192, Limits(max_workgroup_bytes=49152))
    Tile(rows=64, held=8, keys=64, depth=16, value_keys=64, splits=1)
    >>> tile_of(8, 2048, 64, 8192, Limits())
    Tile(rows=64, held=8, keys=32, depth=4, value_keys=8, splits=1)
    """
    enough, forms = (ENOUGH_TILES, TILE_FORMS) if _many(limits) else (FEW_TILES, TILE_FORMS[-1:])
    large = size <= LARGE_HEAD and rows > SMALL_TILE and heads * ceil_div(rows, LARGE_TILE) >= enough
    tile_rows, held = (LARGE_TILE, 8) if large else (SMALL_TILE, 4)
    splits = _tile_splits(context, heads * ceil_div(rows, tile_rows), limits)
    fours = ceil_div(size, 4)
    for keys, most in forms:
        depth = min(most, 1 << (fours - 1).bit_length())
        value_keys = min(keys, 1 << max(keys * depth // fours, 1).bit_length() >> 1)
        tile = Tile(tile_rows, held, keys, depth, value_keys, splits)
        if tile.nbytes <= limits.max_workgroup_bytes:
            break
    return tile


def reduces_by_shuffles(tile: Tile, threads: int, limits: Limits) -> bool:
    """Whether the threads of a row, in a workgroup of so many, lie in one subgroup and reduce by its shuffles."""
    threads = min(threads, 1 << limits.max_invocations.bit_length() >> 1)
    return limits.subgroup >= max(threads * tile.held // tile.rows, LEAST_LANES)


def _tile_splits(context: int, tiles: int, limits: Limits) -> int:
    if not _many(limits) or context <= UNSPLIT_KEYS or tiles == 0:
        return 1
    return max(1, min(SPLITS, ENOUGH_TILES // tiles, ceil_div(context, TILE_SPLIT_KEYS)))


def _many(limits: Limits) -> bool:
    return limits.max_cooperating_threads >= MANY_THREADS


@lru_cache(maxsize=1024)  # of bounds, which are the same at every call
def split_results_shape(queries_bound: Shape, keys_bound: Shape, axes: tuple[int, int], limits: Limits) -> Shape:
    """What the splits of a context leave for each other: a bounded number of rows, however long the context is."""
    row_axis, head_axis = axes
    batch, queries, heads, size = (queries_bound[axis] for axis in (0, row_axis, head_axis, 3))
    capacity, key_heads = keys_bound[row_axis], keys_bound[head_axis]
    group = max(heads // max(key_heads, 1), 1)
    few = max(min(queries * group, FEW_ROWS), group)
    walks = walk_of(1, few, size, capacity, limits) is not None
    block = _walkers(few, size, WALK_THREADS, limits)[0] if walks else _rows_together(few, size)
    units = batch * key_heads * ceil_div(few, block)
    groups, splits, least = (
        (WALK_GROUPS, WALK_SPLITS, WALK_SPLIT_KEYS) if walks else (ENOUGH_GROUPS, SPLITS, SPLIT_KEYS)
    )
    # The fewer units there are, the more splits each of them gets, up to this many in all.
    each = _splits(capacity, 1, groups, splits, least)
    count = block * min(units * each, units + groups) if capacity > UNSPLIT_KEYS else 0
    if not in_blocks(queries, group):
        tiles = batch * key_heads * ceil_div(queries * group, SMALL_TILE)
        most = _tile_splits(capacity, 1, limits)
        count = max(count, SMALL_TILE * min(tiles * most, ENOUGH_TILES) if most > 1 else 0)
    return count, size + 2
