"""Heuristics of attention: few rows (decode) split the context, many (prefill) go in tiles, by the device's limits;
where threads are few and have shuffles, all go to the lanes of subgroups.

With `Limits.one_order` all rows go the way of few, in blocks of one query and in splits of as many keys as the longest
context that may be live asks for: a query is summed alike whatever lies beside it.

Every number that was measured rather than derived is here; bench/attention.py tries others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from liveshape.graph import Limits, Shape
from liveshape.ops.shapes import ceil_div

FEW_ROWS = 16  # up to here attention is bound by the bandwidth of keys and values, not by arithmetic
BLOCK_ROWS = 8  # that share the loads of a key
QUERY_VEC4S = 32  # in the registers of a thread
MAX_LANES = 16  # that reduce the score of a key
MAX_SCORES = 2048  # partial scores in workgroup memory, beside which the partial sums must fit
MAX_SPLITS = 32  # of the context (split-K)
MIN_SPLIT_KEYS = 64
UNSPLIT_KEYS = 256  # up to here the dispatch that combines splits costs more than it saves
ENOUGH_WORKGROUPS = 256  # more do not fill a device better

# With subgroup shuffles, where Limits.subgroup has them: LANES threads of a subgroup reduce the score of a key.
MIN_LANES = 4
LANE_VEC4S = 4  # of a head in the registers of a lane; larger heads are reduced in workgroup memory
SUBGROUP_QUERY_VEC4S = 8  # in the registers of a lane, of all rows
PREFETCH_VEC4S = 4  # of keys that a lane has in flight, and as many of values
SUBGROUP_THREADS, ROW_WORKGROUP_THREADS = 128, 512  # of a workgroup: of a split, of an unsplit row
MIN_THREADS = 32
SUBGROUP_MAX_SPLITS = 128
SUBGROUP_MIN_SPLIT_KEYS = 32  # what a workgroup has in flight
SUBGROUP_WORKGROUPS = 528  # an occupancy of four on each of 132 SMs
ROW_WORKGROUP_VEC4S = 384 * 16  # of a head's keys: up to here an unsplit row is done before splits are combined

COMBINE_THREADS = 4  # that reduce the splits of an element

# Where threads are there by the thousand: a bound of its own, above that of Limits.has_many_threads.
MIN_COOPERATING_THREADS = 64
ROW_WORKGROUP_KEYS = 1024  # up to here each row has its own workgroup, and heads of a group (GQA) load keys again
ROW_WORKGROUP_ROWS = 64  # of all heads: more fill the device even in blocks
ENOUGH_TILES = 128  # splits of the context make up for what rows lack of so many
ENOUGH_LARGE_TILES = (
    96  # below this smaller tiles fill a device better, though each costs more than half of a large one
)
# Up to so many large tiles, and so many keys, the blocks of few rows by subgroup shuffles fill a device better (H200).
FEW_LARGE_TILES, FEW_KEYS = 32, 256
MIN_TILE_SPLIT_KEYS = 128

# Keys, and vec4s of the head, that a tile stages in workgroup memory: the first shape that fits, or the last where
# threads are few.
TILE_SHAPES = ((64, 16), (64, 8), (32, 8), (32, 4))
LARGE_TILE, SMALL_TILE = 64, 32  # rows
LARGE_HEAD = 128  # above it the accumulators of a large tile spill registers
FEW_TILES = 8  # as ENOUGH_TILES where threads are few

# Where sums have one order: keys of a split at least, and splits of the longest context at most, for their scratch.
ORDERED_SPLIT_KEYS, ORDERED_SPLITS = 256, 16
MANY_HEADS = 1 << 16  # of all sequences: their rows share workgroups

# Tiles of matrix units that fill a device: splits of the context make up for what rows lack, down to so many keys.
ENOUGH_MATRIX_TILES, MIN_MATRIX_SPLIT_KEYS = 256, 512
MATRIX, MATRIX_LANES = 16, 32  # rows, columns and depth of the matrices, and threads of the subgroups that have them
MATRIX_TILE_THREADS = LARGE_TILE // MATRIX * MATRIX_LANES
MATRIX_KEYS = 32  # of a step
# Subgroups with two matrices of rows load half as many keys, and heads up to this leave them the registers. Workgroups
# have 15 KB of the 48 that an SM has for all: so many of two matrices run at once (by registers), and of one. One of
# two takes that much longer: 32 x 12 heads x 512 x 64 took 154 and 173 us, x 128 x 64 20 and 17.5 (H200).
TWO_BLOCKS_HEAD, TWO_BLOCKS_TILES, ONE_BLOCK_TILES, TWO_BLOCKS_TIME = 64, 264, 396, 1.16

# Where threads are few: of queries, and as many of sums, that a lane keeps.
LANE_ROW_VEC4S = 64
LANE_KEY_TURNS = 12  # of a lane's loops over a key and its value, where heads are loaded one element at a time

LINE_ROWS = 4  # of a line of few rows: more of them would be idle in most, which have a single query


class Block(NamedTuple):
    """How a workgroup takes few rows through its split of the context, reducing scores in workgroup memory."""

    rows: int  # a power of two
    lanes: int  # threads that reduce the score of a key
    chunk: int  # keys whose scores are in workgroup memory at a time
    splits: int


class SubgroupBlock(NamedTuple):
    """How a workgroup takes few rows through its split of the context, reducing scores by subgroup shuffles."""

    rows: int  # a power of two
    lanes: int  # threads of a subgroup that reduce the score of a key
    threads: int
    prefetch: int  # keys that a thread has in flight
    combine_threads: int  # threads that reduce a vec4 of a row over the subgroups of a workgroup
    splits: int


class Tile(NamedTuple):
    """What a workgroup stages in its memory, and the rows of a thread's accumulators."""

    rows: int
    thread_rows: int
    keys: int
    depth: int  # vec4s of the head
    value_keys: int
    splits: int

    @property
    def nbytes(self) -> int:
        """Of workgroup memory."""
        return 16 * (self.rows * self.depth + self.keys * self.depth + self.keys * self.rows // 4)


def is_few_rows(queries: int, group: int) -> bool:
    """Whether the rows of a head are few, as in decode; those of one query are, however many heads share its keys."""
    return queries * group <= FEW_ROWS or queries == 1


def in_few_tiles(heads: int, rows: int, size: int, context: int, limits: Limits) -> bool:
    """Whether so many rows of each head of keys are tiles so few, of so few keys, that they better go as few rows do.

    >>> few = Limits(subgroup=32)
    >>> [in_few_tiles(12, rows, 64, rows, limits) for rows, limits in ((128, few), (512, few), (128, Limits()))]
    [True, False, False]
    """
    small = heads * ceil_div(rows, LARGE_TILE) <= FEW_LARGE_TILES and context <= FEW_KEYS
    return small and _many_threads(limits) and subgroup_block_of(heads, rows, size, context, limits) is not None


def ordered_block_of(group: int, size: int, context: int, longest: int, limits: Limits) -> Block | SubgroupBlock:
    """The block where sums have one order: of the rows of one query, by nothing that is live but the splits.

    >>> ordered_block_of(4, 64, 300, 8192, Limits())
    Block(rows=4, lanes=4, chunk=128, splits=2)
    """
    of_many = MANY_HEADS, group, size, longest, limits
    block = subgroup_block_of(*of_many) or block_of(*of_many)
    return block._replace(splits=_ordered_splits(context, longest, limits))


def ordered_split_keys(longest: int, limits: Limits) -> int:
    """Keys of a split where sums have one order, by the longest context that may be live; all where threads are few.

    >>> ordered_split_keys(2048, Limits()), ordered_split_keys(131072, Limits())
    (256, 8192)
    """
    return max(ORDERED_SPLIT_KEYS, ceil_div(longest, ORDERED_SPLITS)) if _many_threads(limits) else longest


def _ordered_splits(context: int, longest: int, limits: Limits) -> int:
    """Splits of a context; two at least where a longer one has several, since an unsplit row is stored without them."""
    keys = ordered_split_keys(longest, limits)
    return 1 if longest <= keys else max(2, ceil_div(context, keys))


def block_of(heads: int, rows: int, size: int, context: int, limits: Limits) -> Block:
    """The block for that many rows of each head of keys, heads of every batch counted.

    >>> block_of(8, 4, 64, 8192, Limits())
    Block(rows=4, lanes=4, chunk=128, splits=32)
    >>> block_of(8, 4, 64, 512, Limits())
    Block(rows=1, lanes=4, chunk=256, splits=1)
    """
    unsplit = _many_threads(limits) and context <= ROW_WORKGROUP_KEYS and heads * rows <= ROW_WORKGROUP_ROWS
    block = 1 if unsplit else _rows_per_block(rows, size)
    vec4s = ceil_div(size, 4)
    lanes = 1
    while lanes < MAX_LANES and ((lanes < 4 and lanes < vec4s) or block * ceil_div(vec4s, lanes) > QUERY_VEC4S):
        lanes = lanes * 2
    units = heads * ceil_div(rows, block)
    splits = 1 if unsplit else _splits_of(context, units, ENOUGH_WORKGROUPS, MAX_SPLITS, MIN_SPLIT_KEYS)
    return Block(block, lanes, min(256, MAX_SCORES // (block * lanes)), splits)


def subgroup_block_of(heads: int, rows: int, size: int, context: int, limits: Limits) -> SubgroupBlock | None:
    """The block with subgroup shuffles for that many rows of each head of keys; None where the device has none for it.

    >>> subgroup_block_of(8, 4, 64, 8192, Limits(subgroup=32))
    SubgroupBlock(rows=4, lanes=16, threads=128, prefetch=4, combine_threads=2, splits=66)
    >>> subgroup_block_of(8, 4, 64, 256, Limits(subgroup=32, max_invocations=1024))
    SubgroupBlock(rows=1, lanes=16, threads=512, prefetch=4, combine_threads=16, splits=1)
    """
    lanes = min(MAX_LANES, limits.subgroup)
    vec4s = ceil_div(size, 4)
    slice_ = ceil_div(vec4s, max(lanes, 1))
    if lanes < MIN_LANES or slice_ > LANE_VEC4S:
        return None
    unsplit = context * vec4s <= ROW_WORKGROUP_VEC4S and heads * rows <= ROW_WORKGROUP_ROWS
    block, threads = _subgroup_rows_and_threads(
        1 if unsplit else rows, size, ROW_WORKGROUP_THREADS if unsplit else SUBGROUP_THREADS, limits
    )
    if not block:
        return None
    most = min(lanes, threads // lanes, max(threads // (block * vec4s), 1))
    units = heads * ceil_div(rows, block)
    bounds = SUBGROUP_WORKGROUPS, SUBGROUP_MAX_SPLITS, SUBGROUP_MIN_SPLIT_KEYS
    splits = 1 if unsplit else _splits_of(context, units, *bounds)
    return SubgroupBlock(block, lanes, threads, max(PREFETCH_VEC4S // slice_, 1), 1 << most.bit_length() >> 1, splits)


def _subgroup_rows_and_threads(rows: int, size: int, threads: int, limits: Limits) -> tuple[int, int]:
    """Rows that share the loads of a key, none where not even one fits, and threads of a workgroup."""
    lanes, vec4s = min(MAX_LANES, limits.subgroup), ceil_div(size, 4)
    block = 1
    while block < min(rows, BLOCK_ROWS, lanes) and 2 * block * ceil_div(vec4s, lanes) <= SUBGROUP_QUERY_VEC4S:
        block = block * 2
    threads = min(threads, 1 << limits.max_invocations.bit_length() >> 1)
    # The lanes of a key leave a sum, a maximum and a denominator (online softmax) for each row.
    while threads // lanes * block * (16 * vec4s + 8) > limits.max_workgroup_bytes:
        threads, block = (threads // 2, block) if threads > MIN_THREADS else (threads, block // 2)
    return block if threads >= lanes else 0, threads


def combine_threads(limits: Limits) -> int:
    """Threads that reduce the splits of an element."""
    return min(COMBINE_THREADS, 1 << limits.max_invocations.bit_length() >> 1) if _many_threads(limits) else 1


def _rows_per_block(rows: int, size: int) -> int:
    block = 1
    while block < rows and block < BLOCK_ROWS and 2 * block * ceil_div(ceil_div(size, 4), MAX_LANES) <= QUERY_VEC4S:
        block = block * 2
    return block


def _splits_of(context: int, units: int, groups: int, most: int, least_keys: int) -> int:
    if context <= UNSPLIT_KEYS or units == 0:
        return 1
    return min(most, ceil_div(groups, units), ceil_div(context, least_keys))


def tile_of(heads: int, rows: int, size: int, context: int, limits: Limits) -> Tile:
    """The tile for that many rows of each head of keys, heads of every batch counted.

    >>> tile_of(8, 2048, 64, 8192, Limits(max_workgroup_bytes=49152))
    Tile(rows=64, thread_rows=8, keys=64, depth=16, value_keys=64, splits=1)
    >>> tile_of(8, 2048, 64, 8192, Limits())
    Tile(rows=64, thread_rows=8, keys=32, depth=4, value_keys=8, splits=1)
    """
    enough, shapes = (ENOUGH_LARGE_TILES, TILE_SHAPES) if _many_threads(limits) else (FEW_TILES, TILE_SHAPES[-1:])
    large = size <= LARGE_HEAD and rows > SMALL_TILE and heads * ceil_div(rows, LARGE_TILE) >= enough
    tile_rows, thread_rows = (LARGE_TILE, 8) if large else (SMALL_TILE, 4)
    splits = _tile_splits(context, heads * ceil_div(rows, tile_rows), size, limits)
    vec4s = ceil_div(size, 4)
    for keys, most in shapes:
        depth = min(most, 1 << (vec4s - 1).bit_length())
        value_keys = min(keys, 1 << max(keys * depth // vec4s, 1).bit_length() >> 1)
        tile = Tile(tile_rows, thread_rows, keys, depth, value_keys, splits)
        if tile.nbytes <= limits.max_workgroup_bytes:
            break
    return tile


def matrix_keys(size: int, limits: Limits) -> int:
    """Keys that a tile of matrix units stages, 0 where there are none: the user permits halves, and heads fit.

    >>> matrix_keys(64, Limits())
    0
    """
    square = any(each.m == each.n == each.k == MATRIX for each in limits.matrices_of("float16"))
    if not limits.half_inputs or limits.one_order or not square or limits.subgroup != MATRIX_LANES:
        return 0
    fits = size % 8 == 0 and size <= LARGE_HEAD and _matrix_tile_bytes(size) <= limits.max_workgroup_bytes
    return MATRIX_KEYS if fits else 0


def _whole_matrices(size: int) -> int:
    """Elements of a head with those that make its last matrix whole."""
    return ceil_div(size, MATRIX) * MATRIX


def half_cache_size(queries: Shape, cache: Shape, axes: tuple[int, int], limits: Limits) -> tuple[int, int]:
    """Bytes of keys and values as halves, and their tiles, up to these shapes; none where no matrix units take them."""
    row_axis, head_axis = axes
    keys, size = matrix_keys(cache[3], limits), cache[3]
    if not keys or is_few_rows(queries[row_axis], queries[head_axis] // max(cache[head_axis], 1)):
        return 0, 0
    tiles = cache[0] * cache[head_axis] * ceil_div(cache[row_axis], keys)
    nbytes = 4 * tiles * keys * _whole_matrices(size)
    return (nbytes, tiles) if nbytes <= limits.max_binding_bytes else (0, 0)


def matrix_tile_splits(context: int, tiles: int) -> int:
    """How many workgroups split the context of each of so many tiles of matrix units.

    >>> matrix_tile_splits(4096, 256), matrix_tile_splits(1024, 64), matrix_tile_splits(512, 8)
    (1, 2, 1)
    """
    return max(1, min(MAX_SPLITS, ENOUGH_MATRIX_TILES // max(tiles, 1), ceil_div(context, MIN_MATRIX_SPLIT_KEYS)))


def _matrix_tile_bytes(size: int) -> int:
    """Workgroup memory of attention/matrix_tiles.wgsl: keys and values, a matrix of each subgroup, and a little."""
    pitch = _whole_matrices(size) // 8 + 1
    return 32 * MATRIX_KEYS * pitch + LARGE_TILE // MATRIX * 16 * MATRIX * (MATRIX // 4 + 2) + 128


def matrix_row_blocks(heads: int, rows: int, size: int) -> int:
    """Matrices of rows that a subgroup has, by the turns of workgroups that so many rows of so many heads take.

    >>> [matrix_row_blocks(384, rows, 64) for rows in (128, 197, 512)], matrix_row_blocks(96, 197, 64)
    ([1, 2, 2], 1)
    """
    one, two = (heads * ceil_div(rows, blocks * LARGE_TILE) for blocks in (1, 2))
    gains = TWO_BLOCKS_TIME * ceil_div(two, TWO_BLOCKS_TILES) <= ceil_div(one, ONE_BLOCK_TILES)
    return 2 if gains and size <= TWO_BLOCKS_HEAD else 1


def matrix_tile_config(size: int, row_blocks: int) -> dict[str, int]:
    """The constants of attention/matrix_tiles.wgsl."""
    return {
        "WG": MATRIX_TILE_THREADS,
        "ROW_BLOCKS": row_blocks,
        "KEYS": MATRIX_KEYS,
        "KEY_BLOCKS": MATRIX_KEYS // MATRIX,
        "HEAD_BLOCKS": ceil_div(size, MATRIX),
        "LOADS": ceil_div(MATRIX_KEYS * _whole_matrices(size) // 8, MATRIX_TILE_THREADS),
    }


def reduces_by_shuffles(tile: Tile, threads: int, limits: Limits) -> bool:
    """Whether the threads of a row, in a workgroup of so many, lie in one subgroup and reduce by its shuffles."""
    threads = min(threads, 1 << limits.max_invocations.bit_length() >> 1)
    return limits.subgroup >= max(threads * tile.thread_rows // tile.rows, MIN_LANES)


def _tile_splits(context: int, tiles: int, size: int, limits: Limits) -> int:
    if not _many_threads(limits):
        return _turn_splits(context, size, limits)
    if context <= UNSPLIT_KEYS or tiles == 0:
        return 1
    return max(1, min(MAX_SPLITS, ENOUGH_TILES // tiles, ceil_div(context, MIN_TILE_SPLIT_KEYS)))


def takes_lane_rows(size: int, context: int, limits: Limits) -> bool:
    """Whether rows go to lanes of subgroups: threads are few, the text of a head is not too long to compile, and the
    loop over the keys, which has no splits, not too long to run.

    >>> few = Limits(max_cooperating_threads=4, max_invocations=32, lanes=8)
    >>> [takes_lane_rows(*head, few) for head in ((64, 4096), (256, 4096), (64, 40_000))]
    [True, False, False]
    >>> takes_lane_rows(64, 4096, Limits(lanes=8))
    False
    """
    if limits.few_threads_lanes == 0 or limits.one_order or size > LARGE_HEAD:
        return False
    turns = context * (1 if size % 4 == 0 else LANE_KEY_TURNS) + 2 * BLOCK_ROWS * LARGE_HEAD
    return turns <= limits.max_turns


def lane_rows_config(size: int, lanes: int) -> dict[str, int]:
    """The constants of attention/lane_rows.wgsl: rows of a lane, and how so many lanes share the loads of a key.

    >>> lane_rows_config(48, 8)
    {'WG': 8, 'ROWS': 4, 'SHARES': 2, 'SHARE_LANES': 6}
    """
    vec4s = ceil_div(size, 4)
    shares = ceil_div(vec4s, lanes)
    rows = 1 << max(LANE_ROW_VEC4S // vec4s, 1).bit_length() >> 1
    return {"WG": lanes, "ROWS": min(rows, BLOCK_ROWS), "SHARES": shares, "SHARE_LANES": ceil_div(vec4s, shares)}


def _turn_splits(context: int, size: int, limits: Limits) -> int:
    """As few splits of the context of tiles as keep the turns of their loops bounded, where threads are few.

    The turns of a key grow with the square of its head, since fewer are staged: 3.1 of 64 elements, 24 of 256.

    >>> _turn_splits(8192, 64, Limits()), _turn_splits(8192, 256, Limits())
    (1, 9)
    """
    vec4s = ceil_div(size, 4)
    return max(1, ceil_div(context * (2 + ceil_div(vec4s * vec4s, 128)), limits.max_turns))


def _many_threads(limits: Limits) -> bool:
    return limits.max_cooperating_threads >= MIN_COOPERATING_THREADS


def few_queries(heads: int, key_heads: int, size: int, limits: Limits) -> int:
    """Queries of one sequence that a line of paged attention's few rows has at most.

    >>> few_queries(32, 8, 64, Limits()), few_queries(8, 8, 64, Limits())
    (1, 4)
    """
    if limits.one_order:
        return 1
    rows = _rows_per_block(LINE_ROWS, size) if _many_threads(limits) else 1
    return max(rows // (heads // key_heads), 1)


def tile_queries(heads: int, key_heads: int, size: int, limits: Limits) -> int:
    """Queries of one sequence that a line of paged attention's tiles has at most.

    >>> tile_queries(32, 8, 64, Limits()), tile_queries(32, 8, 256, Limits())
    (16, 8)
    """
    if limits.one_order:
        return 1
    rows = tile_of(MANY_HEADS, LARGE_TILE, size, 1, limits).rows
    return max(rows // (heads // key_heads), 1)


@lru_cache(maxsize=1024)  # of bounds, which are the same at every call
def split_results_shape(queries_bound: Shape, keys_bound: Shape, axes: tuple[int, int], limits: Limits) -> Shape:
    """Scratch for the partial results of splits: a bounded number of rows, however long the context is."""
    row_axis, head_axis = axes
    batch, queries, heads, size = (queries_bound[axis] for axis in (0, row_axis, head_axis, 3))
    capacity, key_heads = keys_bound[row_axis], keys_bound[head_axis]
    group = max(heads // max(key_heads, 1), 1)
    if limits.one_order:
        return _ordered_results(batch * key_heads, queries * group, group, size, capacity, limits), size + 2
    if takes_lane_rows(size, capacity, limits):
        return 0, size + 2
    count = _few_results(batch * key_heads, max(min(queries * group, FEW_ROWS), group), size, capacity, limits)
    if not is_few_rows(queries, group):
        count = max(count, _tile_results(batch * key_heads, queries * group, size, capacity, limits))
    return count, size + 2


@lru_cache(maxsize=1024)
def line_results_shape(lines: int, capacity: int, heads: int, key_heads: int, size: int, limits: Limits) -> Shape:
    """The same for the lines of paged attention, of which any number up to this may be live."""
    if limits.one_order:
        group = heads // key_heads
        return _ordered_results(lines * key_heads, group, group, size, capacity, limits), size + 2
    if takes_lane_rows(size, capacity, limits):
        return 0, size + 2
    queries = few_queries(heads, key_heads, size, limits), tile_queries(heads, key_heads, size, limits)
    few, tile = (count * (heads // key_heads) for count in queries)
    # As many units as workgroups are enough are not split, but for the turns of their loops.
    units = min(lines * key_heads, SUBGROUP_WORKGROUPS)
    count = _few_results(units, few, size, capacity, limits)
    tiles = units if _many_threads(limits) else lines * key_heads
    return max(count, _tile_results(tiles, tile, size, capacity, limits)), size + 2


def _ordered_results(heads: int, rows: int, group: int, size: int, capacity: int, limits: Limits) -> int:
    block = ordered_block_of(group, size, capacity, capacity, limits)
    units = heads * ceil_div(rows, block.rows)
    return units * block.rows * block.splits if block.splits > 1 else 0


def _few_results(heads: int, rows: int, size: int, capacity: int, limits: Limits) -> int:
    shuffles = subgroup_block_of(1, rows, size, capacity, limits) is not None
    if shuffles:
        block, _ = _subgroup_rows_and_threads(rows, size, SUBGROUP_THREADS, limits)
        groups, splits, least = SUBGROUP_WORKGROUPS, SUBGROUP_MAX_SPLITS, SUBGROUP_MIN_SPLIT_KEYS
    else:
        block = _rows_per_block(rows, size)
        groups, splits, least = ENOUGH_WORKGROUPS, MAX_SPLITS, MIN_SPLIT_KEYS
    units = heads * ceil_div(rows, block)
    # The fewer units there are, the more splits each of them gets, up to this many in all.
    each = _splits_of(capacity, 1, groups, splits, least)
    return block * min(units * each, units + groups) if capacity > UNSPLIT_KEYS else 0


def _tile_results(heads: int, rows: int, size: int, capacity: int, limits: Limits) -> int:
    most = _tile_splits(capacity, 1, size, limits)
    if not _many_threads(limits):
        return heads * ceil_div(rows, LARGE_TILE) * LARGE_TILE * most if most > 1 else 0
    count = SMALL_TILE * min(heads * ceil_div(rows, SMALL_TILE) * most, ENOUGH_TILES) if most > 1 else 0
    if limits.half_inputs and limits.matrices:
        tiles = heads * ceil_div(rows, LARGE_TILE)
        most = matrix_tile_splits(capacity, 1)
        count = max(count, LARGE_TILE * min(tiles * most, ENOUGH_MATRIX_TILES) if most > 1 else 0)
    return count
