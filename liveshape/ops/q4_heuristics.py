"""Heuristics of the 4-bit linear: GEMV, few rows, tiles or large tiles, and split-K, by rows, columns and depth.

Split-K does not depend on the columns, so that fused layers give the bytes that they gave one by one; but for one
quantized row, few that the epilogue quantizes, 33 to 64 of them, and large tiles, which may differ in the last bits.
With `Limits.one_order` it depends on columns and depth alone, and all rows take kernels of one family: their shapes
say which rows a thread or a workgroup has, and change nothing in how one of them is summed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from liveshape.graph import Limits, Shape
from liveshape.ops.matrix_heuristics import (
    DEEP_STEP,
    LARGE_TILE,
    LOW_TILE,
    MATRIX_SPLIT_DEPTH,
    MATRIX_STEP,
    MULTIPROCESSORS,
    SMALL_TILE,
    matrix_shape,
    matrix_threads,
    tile_constants,
)
from liveshape.ops.q4_kernels import RESIDUAL_UNITS
from liveshape.ops.shapes import ceil_div

FEW_ROWS = 16  # up to here a layer is bound by the bandwidth of the weight, which is read once for eight rows
FEW_INT8_ROWS = 8
ROWS_PER_THREAD = 8  # at most, of few
GEMV_BYTES = 5120  # of workgroup memory that a GEMV needs beside a row that is staged there
PREFETCH_WORDS = 4  # of the weight that a thread of a GEMV has in flight
MAX_UNIT_THREADS = 256  # that reduce the depth of four columns of one row
MIN_VECTOR_THREADS = 32  # and at least, where they load vectors and columns are many
BYTE_UNIT_THREADS = 64  # and at most, of bytes: with 32 a token takes a quarter longer, with 256 4%
MIN_UNIT_THREADS, ROW_UNIT_THREADS = 16, 128  # and of several
ENOUGH_THREADS = 1 << 17  # to fill a device
# Units whose threads alternate: neighbours read the scales of neighbouring columns, and the row from fewer lines.
ALTERNATING_UNITS = 2
QUANT_GROUP = 32  # neighbours of a quantized row that share a scale, and the nibbles of a vector
# Up to here the epilogue of a gated unit quantizes: with it large tiles take 8% longer than with one more dispatch.
MAX_GATED_QUANTIZED_ROWS = 64
# And where a workgroup has no memory for a tile of 64 rows with what its epilogue exchanges.
FEW_GATED_QUANTIZED_ROWS, GATED_TILE_BYTES = 32, 20224
WIDE_TILE_BYTES = 17152  # of workgroup memory, that a tile of 8 rows by 256 columns takes
QUANTIZING_THREADS = 256  # of a workgroup whose epilogue quantizes: 16 units have the 32 neighbours of a scale
QUANTIZING_UNIT_THREADS = QUANTIZING_THREADS // 16
RESIDUAL_THREADS = 1024  # and of one whose epilogue quantizes the sum with the residual: 8 units

MAX_SPLITS = 8  # workgroups that split the depth of a tile
MIN_SPLIT_DEPTH = 256  # of each split
DEPTH_PER_SPLIT = 512  # one more of these in the depth, one more split
MAX_SPLIT_COLUMNS = 32768  # more fill a device by themselves, and their partial sums take memory

# Tiles of 64 int8 rows by 128 columns, as measured on the H200, in microseconds: 32 places of the depth of two tiles
# that share an SM, and of one that has it to itself; a wave of them until its first tile is staged; partial sums of a
# tile, written and read.
INT8_TILE_COLUMNS = 128
INT8_TWO_TILES_COST, INT8_ONE_TILE_COST, INT8_WAVE_COST, INT8_TILE_SUMS_COST = 2.25, 1.62, 1.5, 0.012
MAX_INT8_SPLITS, MIN_INT8_SPLIT_DEPTH = 16, 128

# Where their number may not depend on the rows: splits that fill a device with one band of rows; their partial sums
# are of all rows, and take memory.
ENOUGH_ORDERED_COLUMNS = 1 << 16

LARGE_TILE_THREADS, LARGE_TILE_BYTES = 256, 32768  # of its workgroup, and of workgroup memory
LARGE_ROWS = 64  # from more on large tiles are faster, though half of the last one may be empty
# Costs of large tiles as measured on the H200, in elements of the depth of one tile on one SM: 0.1 us (int8 0.05 us).
# Occupancy is two workgroups per SM for floats: both take 0.2 us together, one alone 0.13 us. int8 has one.
TWO_RESIDENT_COST, ONE_RESIDENT_COST = 2.0, 1.33
FIRST_WAVE_COST = 0.15  # more of the first wave, whose workgroups wait for memory together until they are out of step
SPLIT_THRESHOLD = 0.97  # of the unsplit time, that split-K must stay below
TILE_COST = 32  # of prologue and epilogue
PARTIAL_SUMS_COST, INT8_PARTIAL_SUMS_COST = 0.3, 0.5  # of a tile, written and read once more
COMBINE_COST = 40  # of one more dispatch
MIN_LARGE_SPLIT_DEPTH = 128  # of a large tile
MAX_PARTIAL_SUMS = 1 << 24  # of all splits
MAX_SPLIT_ROWS = MAX_PARTIAL_SUMS // (2 * LARGE_TILE)

MIN_MATRIX_ROWS = 16  # from so many on matrix units are faster, though the weight is unpacked for them
MAX_MATRIX_WEIGHT = 1 << 28  # elements of a weight: unpacked it takes twice as many bytes
MATRIX_BLOCK = 64  # rows of halves that lie together: see quantization/half_blocks.wgsl
MAX_PACKED_ROWS = 128  # up to here tiles unpack nibbles themselves: a weight of halves costs more than it saves
MAX_MATRIX_SPLIT_ROWS = 64 * MULTIPROCESSORS  # of more rows there are tiles enough; scratch is for no more
HALF_WEIGHT_COLUMNS, HALF_WEIGHT_SPLITS = 16, 4  # of a workgroup that unpacks, and of the depth
# Costs of matrix tiles as measured on the H200, in microseconds: 32 places of the depth of a tile of 128 by 128 that
# has an SM to itself, and of two that share one; 64 places of a tile of 64 by 64, by how many an SM has of them, and at
# least; a megabyte of partial sums, written and read, and the dispatch that combines them.
MATRIX_ONE_TILE_COST, MATRIX_TWO_TILES_COST = 0.7, 0.93
SMALL_MATRIX_COST, SMALL_MATRIX_LATENCY = 0.36, 0.6
MATRIX_SUMS_COST, MATRIX_COMBINE_COST = 0.8, 4.0


def is_few(rows: int, int8: bool, limits: Limits) -> bool:
    """Whether rows go eight at a time and not in tiles, whose staging costs few threads more than it saves."""
    if limits.one_order:
        return not limits.has_many_threads
    if int8:
        return rows <= FEW_INT8_ROWS
    return rows <= FEW_ROWS or not limits.has_many_threads


def is_gemv(rows: int, limits: Limits) -> bool:
    """Whether a row takes the kernels of one row, whose prologues have its RMSNorm and quantize it."""
    return rows == 1 and not limits.one_order


def defers_norm(rows: int, limits: Limits) -> bool:
    """Whether layers take a row quantized before its RMSNorm, with its sum of squares, and scale in the epilogue."""
    return is_gemv(rows, limits) and limits.has_many_threads


def quantizes_gated(rows: int, limits: Limits) -> bool:
    """Whether the epilogue of a gated unit quantizes its rows, as it does of no more than so many."""
    can_quantize = limits.max_invocations >= QUANTIZING_THREADS and not limits.one_order
    fits = limits.max_workgroup_bytes >= GATED_TILE_BYTES
    return can_quantize and rows <= (MAX_GATED_QUANTIZED_ROWS if fits else FEW_GATED_QUANTIZED_ROWS)


def has_large_tiles(limits: Limits) -> bool:
    """Whether threads are many and a large tile fits a workgroup."""
    threads = limits.has_many_threads and limits.max_invocations >= LARGE_TILE_THREADS
    return threads and limits.max_workgroup_bytes >= LARGE_TILE_BYTES


def is_large(rows: int, depth: int, group: int, limits: Limits) -> bool:
    """Whether a layer takes large tiles: they have no remainder of the depth, and one scale for four neighbours."""
    return rows > LARGE_ROWS and depth % 16 == 0 < depth and group % 4 == 0 and has_large_tiles(limits)


def split_k_of(rows: int, columns: int, depth: int, int8: bool, limits: Limits) -> int:
    """How many workgroups split the depth of a tile (split-K)."""
    if limits.one_order:
        enough = ENOUGH_ORDERED_COLUMNS // max(columns, 1) if limits.has_many_threads else 1
        return max(1, min(MAX_SPLITS, enough, depth // MIN_SPLIT_DEPTH))
    if rows > LARGE_ROWS and has_large_tiles(limits):
        down, across = ceil_div(rows, LARGE_TILE), ceil_div(columns, LARGE_TILE)
        return _large_split_k(down, (rows - 1).bit_length(), across, depth, int8)
    if columns > MAX_SPLIT_COLUMNS or not limits.has_many_threads:
        return 1
    if int8 and LARGE_ROWS // 2 < rows <= LARGE_ROWS:
        return _int8_split_k(ceil_div(columns, INT8_TILE_COLUMNS), depth)
    for_64_rows = max(MAX_SPLITS, depth // DEPTH_PER_SPLIT)
    return max(1, min(MAX_SPLITS, for_64_rows // max(ceil_div(rows, 64), 1), depth // MIN_SPLIT_DEPTH))


@lru_cache(maxsize=1024)  # of few values
def _int8_split_k(tiles: int, depth: int) -> int:
    """How many workgroups split the depth of each of so many tiles of 64 int8 rows: those that leave few SMs idle.

    Where tiles of fewer rows are split, these are, too, and so all have the same kernels.
    """
    steps = ceil_div(depth, QUANT_GROUP)

    def cost(splits: int) -> float:
        count = tiles * splits
        waves = _waves(count, INT8_ONE_TILE_COST, INT8_TWO_TILES_COST) * steps / splits
        return waves + ceil_div(count, 2 * MULTIPROCESSORS) * INT8_WAVE_COST + count * INT8_TILE_SUMS_COST

    if depth < 2 * MIN_SPLIT_DEPTH:
        return 1
    return min(range(2, min(MAX_INT8_SPLITS, depth // MIN_INT8_SPLIT_DEPTH) + 1), key=cost)


def _waves(count: int, one: float, two: float) -> float:
    """The time of tiles of which two share a multiprocessor, but in a last wave of few, where each has its own."""
    full, left = divmod(count, 2 * MULTIPROCESSORS)
    return full * two + (two if left > MULTIPROCESSORS else one if left else 0.0)


@lru_cache(maxsize=1024)  # of few values
def _large_split_k(down: int, power: int, across: int, depth: int, int8: bool) -> int:
    """How many workgroups split the depth of each of `down` by `across` large tiles."""
    candidates, steps = _split_candidates(power, across, depth, int8), ceil_div(depth, QUANT_GROUP)
    return min(candidates, key=lambda splits: _cost(down * across, splits, steps, int8), default=1)


@lru_cache(maxsize=1024)
def _split_candidates(power: int, across: int, depth: int, int8: bool) -> tuple[int, ...]:
    """The split-K that large tiles may have; none where unsplit tiles are better.

    It holds for all rows up to a power of two and above the one before: planning at these two finds what is to be
    compiled at load.
    """
    most = 1 << power
    steps = ceil_div(depth, QUANT_GROUP)
    candidates = []
    for splits in range(2, min(MAX_SPLITS, depth // MIN_LARGE_SPLIT_DEPTH) + 1):
        idle = (splits - 1) * ceil_div(steps, splits) >= steps  # the last of them has nothing to do
        if not idle and splits * most * across * LARGE_TILE <= MAX_PARTIAL_SUMS:
            candidates.append(splits)
    if not candidates:
        return ()
    counts = [each * across for each in range(ceil_div(most // 2 + 1, LARGE_TILE), most // LARGE_TILE + 1)]
    split = sum(min(_cost(tiles, splits, steps, int8) for splits in candidates) for tiles in counts)
    return () if SPLIT_THRESHOLD * sum(_cost(tiles, 1, steps, int8) for tiles in counts) <= split else tuple(candidates)


def _cost(tiles: int, splits: int, steps: int, int8: bool) -> float:
    """The time of all tiles, in waves of as many as a device has resident."""
    count = tiles * splits
    if int8:
        waves: float = ceil_div(count, MULTIPROCESSORS)
    else:
        waves = _waves(count, ONE_RESIDENT_COST, TWO_RESIDENT_COST)
        waves += FIRST_WAVE_COST if count > MULTIPROCESSORS else 0
    reduction = count * (INT8_PARTIAL_SUMS_COST if int8 else PARTIAL_SUMS_COST) + COMBINE_COST if splits > 1 else 0.0
    return waves * (ceil_div(steps, splits) * QUANT_GROUP + TILE_COST) + reduction


@lru_cache(maxsize=1024)  # of bounds, which are the same at every call
def partial_sums_bound(rows: int, columns: int, depth: int, int8: bool, limits: Limits) -> Shape:
    """Scratch for the partial sums of every split, in whole vectors, at the number of rows with most of them."""
    # Of more rows than these no depth is split: a file can name billions of them.
    counts = (LARGE_ROWS // 2, *range(64, min(rows, MAX_SPLIT_ROWS) + 64, 64)) if not limits.one_order else (rows,)
    splits = {each: split_k_of(each, columns, depth, int8, limits) for each in counts}
    return (_most_sums(splits, rows, ceil_div(columns, 4) * 4),)


def _most_sums(splits: dict[int, int], rows: int, wide: int) -> int:
    """The most partial sums, of the splits by rows, of which there are no more than so many."""
    return max(min(each, rows) * wide * count if count > 1 else 0 for each, count in splits.items())


def gemv_config(layer: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """How threads reduce the depth of four columns of a row: by words, or by 32 neighbours, with a scale or two.

    Of nibbles single words were measured to be faster where threads are many. There units alternate and have no more of
    them than fill a device. Not so with bytes that have two scales to a vector, where that was measured to be slower.
    """
    depth, group, bits, many_threads = layer["depth"], layer["GROUP"], layer["BITS"], limits.has_many_threads
    vectors = layer["column_bytes"] % 16 == 0 and (bits == 8 or layer["MINIMA"] or not many_threads)
    words = ceil_div(depth, 8)
    unit_threads = _doubled(1, MAX_UNIT_THREADS, lambda threads: threads * PREFETCH_WORDS < words)
    scaled, units = 8 if group % 8 == 0 else 1, ceil_div(layer["columns"], 4)
    prefetched = PREFETCH_WORDS if scaled == 8 and words % (unit_threads * PREFETCH_WORDS) == 0 else 1
    vectors = vectors and prefetched == PREFETCH_WORDS and group % (4 * PREFETCH_WORDS) == 0
    alternating = vectors and many_threads and (bits == 4 or group % QUANT_GROUP == 0)
    if alternating and bits == 8:
        unit_threads = min(unit_threads, BYTE_UNIT_THREADS)
    while alternating and bits == 4 and unit_threads > MIN_VECTOR_THREADS:
        if unit_threads // 2 * units < ENOUGH_THREADS:
            break
        unit_threads = unit_threads // 2
    return {
        "PREFETCHED": prefetched,
        "VECTOR_LOADS": vectors,
        "SCALE_SPAN": scaled,
        "UNIT_THREADS": unit_threads,
        "ALTERNATING": ALTERNATING_UNITS if alternating else 1,
        "cooperative_units": units,
    }


def can_stage_row(depth: int, limits: Limits, padded: bool = False) -> bool:
    """Whether workgroups of a GEMV have memory to stage its row, one vec4 more for eight if padded, and threads for it.

    >>> can_stage_row(2560, Limits()), can_stage_row(2560, Limits(), padded=True)
    (True, False)
    """
    nbytes = depth * 4 + (depth // 2 if padded else 0)
    return nbytes + GEMV_BYTES <= limits.max_workgroup_bytes and limits.has_many_threads


def staged_row_config(config: dict[str, Any], depth: int, limits: Limits) -> dict[str, Any]:
    """A row in workgroup memory, for threads of a GEMV of this configuration."""
    return {"ROW_VEC4S": depth // 4, "PADDED": config["VECTOR_LOADS"] and can_stage_row(depth, limits, padded=True)}


def stages_row(config: dict[str, Any], depth: int, limits: Limits) -> bool:
    """Whether a GEMV stages its row: threads with 32 neighbours each would read it from as many lines of a cache.

    Where a workgroup has one unit, each thread reads its own neighbours once, and staging costs more. Only whole eights
    of the depth are staged: a single group, which covers any depth, may end within one.
    """
    several_units = config["UNIT_THREADS"] < MAX_UNIT_THREADS
    stageable = depth > 0 and depth % 8 == 0 and can_stage_row(depth, limits, padded=True)
    return bool(config["VECTOR_LOADS"]) and several_units and stageable


def few_rows_config(
    rows: int, columns: int, depth: int, group: int, int8: bool, quantizes: bool = False
) -> dict[str, Any]:
    """How threads reduce the depth of four columns of 1, 2, 4 or 8 rows, floats two at least; int8's may quantize."""
    thread_rows = _doubled(1 if int8 else 2, ROWS_PER_THREAD, lambda count: count < rows)
    wanted = depth // QUANT_GROUP // 2 if int8 else ceil_div(depth, 8) // 8
    unit_threads = _doubled(MIN_UNIT_THREADS, ROW_UNIT_THREADS, lambda threads: threads * 2 <= wanted)
    return {
        "ROWS": thread_rows,
        "UNIT_THREADS": min(unit_threads, QUANTIZING_UNIT_THREADS) if quantizes else unit_threads,
        "cooperative_units": ceil_div(rows, thread_rows) * ceil_div(columns, 4),
        **({} if int8 else {"SCALE_SPAN": 8 if group % 8 == 0 else 1}),
    }


def int8_gemv_config(layer: dict[str, Any], quantized_units: int, limits: Limits) -> dict[str, Any]:
    """How threads reduce the depth of four columns of one int8 row: as many as fill a device.

    Units alternate where weights are more than nibbles and scales. The epilogue quantizes so many units in one
    workgroup, 0 where it does not quantize.
    """
    columns, depth = layer["columns"], layer["depth"]
    more = layer["MINIMA"] or layer["BITS"] == 8
    alternating = ALTERNATING_UNITS if more and limits.has_many_threads else 1
    units = ceil_div(columns, 4)
    if quantized_units == RESIDUAL_UNITS:
        most = RESIDUAL_THREADS if limits.subgroup else QUANTIZING_THREADS
        threads = 1 << min(limits.max_invocations, most).bit_length() - 1
        while threads > QUANTIZING_THREADS and threads // quantized_units * QUANT_GROUP > depth:
            threads = threads // 2
        unit_threads = max(threads // quantized_units, 1)
        return {"UNIT_THREADS": unit_threads, "ALTERNATING": alternating, "WG": threads, "cooperative_units": units}
    most = QUANTIZING_UNIT_THREADS if quantized_units else MAX_UNIT_THREADS
    unit_threads = _doubled(
        MIN_UNIT_THREADS, most, lambda each: each * units < ENOUGH_THREADS and each * 2 * QUANT_GROUP <= depth
    )
    return {"UNIT_THREADS": unit_threads, "ALTERNATING": alternating, "cooperative_units": units}


def _doubled(count: int, most: int, may: Callable[[int], bool]) -> int:
    """A count that is doubled while it may be, up to the most."""
    while count < most and may(count):
        count = count * 2
    return count


def tile_config(rows: int, columns: int, group: int, int8: bool, large: bool, limits: Limits) -> dict[str, Any]:
    """Tiles of 128 by 128, 64 by 64 (int8 128), 32 by 64, 16 by 128 or 8 by 256, as rows need and memory has them."""
    if large:
        tile = {"ROW_THREADS": 16, "ROW_VEC4S": 2, "COLUMN_VEC4S": 2, "WG": LARGE_TILE_THREADS}
        own: dict[str, Any] = {"BUFFERS": 2} if int8 else {"LARGE": True, "UNROLLED": 16}
        return tile | own | {"groups": ceil_div(rows, LARGE_TILE) * ceil_div(columns, LARGE_TILE)}
    least = 9 if not int8 and limits.max_workgroup_bytes < WIDE_TILE_BYTES else 1
    down, tall = _tile_threads(max(rows, least)), rows > 32
    tile = {"ROW_THREADS": down, "ROW_VEC4S": 1 + tall}
    if not int8:
        groups = ceil_div(rows, 64) * ceil_div(columns, 512 // down)
        return tile | {"SCALE_SPAN": 4 if group % 4 == 0 else 1, "groups": groups}
    # Two tiles of 8 by 256 are more than workgroup memory that every device has.
    groups = ceil_div(rows, LARGE_ROWS) * ceil_div(columns, INT8_TILE_COLUMNS if tall else 512 // down)
    return tile | {"COLUMN_VEC4S": 1 + tall, "BUFFERS": 1 + tall, "groups": groups}


def _tile_threads(rows: int) -> int:
    """Threads down a small tile, each with four rows."""
    return 2 if rows <= 8 else 4 if rows <= 16 else 8


def takes_matrices(rows: int, columns: int, depth: int, group: int, limits: Limits) -> bool:
    """Whether a layer of up to so many rows may take matrix units: whole steps of the depth, a scale for eight."""
    aligned = columns % 4 == 0 and depth % MATRIX_STEP == 0 and group % 8 == 0
    sizes = rows >= MIN_MATRIX_ROWS and 0 < columns * depth <= MAX_MATRIX_WEIGHT
    fits = half_bytes(max(rows, columns), depth) <= limits.max_binding_bytes
    return aligned and sizes and fits and matrix_shape(limits) is not None


def half_bytes(rows: int, depth: int) -> int:
    """Of rows of halves in whole blocks, with their factors."""
    return 2 * ceil_div(rows, MATRIX_BLOCK) * MATRIX_BLOCK * depth + 16 * rows


def takes_packed(rows: int, depth: int, group: int, bits: int, limits: Limits) -> bool:
    """Whether tiles of matrix units unpack the weight themselves: nibbles, one scale for a vector of 32.

    Threads have whole columns.
    """
    aligned = bits == 4 and depth % DEEP_STEP == 0 and group % 32 == 0
    return aligned and rows <= MAX_PACKED_ROWS and limits.has_many_threads and matrix_threads(limits) % SMALL_TILE == 0


def half_rows_together(rows: int) -> int:
    """Rows that a workgroup rounds to halves: a device is filled by few of them with a workgroup each.

    >>> half_rows_together(64), half_rows_together(512)
    (1, 4)
    """
    return 4 if rows > MAX_PACKED_ROWS else 1


def half_weight_config(columns: int, depth: int) -> dict[str, int]:
    """Splits of the depth of a weight that is unpacked, and workgroups."""
    splits = max(1, min(HALF_WEIGHT_SPLITS, depth // 32 // (256 // HALF_WEIGHT_COLUMNS)))
    return {"splits": splits, "groups": ceil_div(columns, HALF_WEIGHT_COLUMNS) * splits}


def matrix_tile_config(rows: int, columns: int, depth: int, packed: bool, limits: Limits) -> tuple[dict[str, Any], int]:
    """Tiles of matrix units, and split-K: of 128 by 128, or of 64 by 64, or 32 by 64; steps of the depth are whole."""
    many = limits.has_many_threads  # else a compiler for CPUs takes minutes over the text of larger tiles and steps
    large, splits = False, _few_tile_splits(rows, columns, depth)
    if rows > LARGE_ROWS and not packed and many:
        large, splits = _many_matrix_tiles(ceil_div(rows, 64) * 64, columns, depth)
    down = LARGE_TILE if large else SMALL_TILE if rows > LOW_TILE else LOW_TILE
    across, step = (LARGE_TILE, MATRIX_STEP) if large else (SMALL_TILE, MATRIX_STEP)
    if many and not large and depth % DEEP_STEP == 0:
        step = DEEP_STEP
    constants = tile_constants(down, across, step, limits)
    if packed:
        constants |= {"PACKED": True, "COLUMN_LOADS": across * step // 32 // constants["WG"]}
    return constants | {"groups": ceil_div(rows, down) * ceil_div(columns, across) * splits}, splits


@lru_cache(maxsize=4096)
def _many_matrix_tiles(rows: int, columns: int, depth: int) -> tuple[bool, int]:
    """Whether tiles of matrix units are large, and how many workgroups split the depth of each, at the least cost."""
    most = max(1, min(MAX_SPLITS, depth // MATRIX_SPLIT_DEPTH)) if rows <= MAX_MATRIX_SPLIT_ROWS else 1
    large = ceil_div(rows, LARGE_TILE) * ceil_div(columns, LARGE_TILE)
    small = rows // 64 * ceil_div(columns, 64)

    def cost(choice: tuple[bool, int]) -> float:
        is_large, splits = choice
        sums = MATRIX_COMBINE_COST + 4e-6 * rows * columns * splits * MATRIX_SUMS_COST if splits > 1 else 0.0
        if not is_large:
            steps = ceil_div(ceil_div(depth, 64), splits)
            resident = small * splits / MULTIPROCESSORS
            return sums + steps * max(SMALL_MATRIX_LATENCY, resident * SMALL_MATRIX_COST)
        steps = ceil_div(depth // MATRIX_STEP, splits)
        if large * splits <= MULTIPROCESSORS:
            return sums + steps * MATRIX_ONE_TILE_COST
        return sums + steps * MATRIX_TWO_TILES_COST * ceil_div(large * splits, 2 * MULTIPROCESSORS)

    return min(((is_large, splits) for is_large in (True, False) for splits in range(1, most + 1)), key=cost)


def _few_tile_splits(rows: int, columns: int, depth: int) -> int:
    """Splits of the depth of small tiles that are too few to fill a device."""
    tiles = ceil_div(rows, 64 if rows > 32 else 32) * ceil_div(columns, 64)
    if tiles >= MULTIPROCESSORS:
        return 1
    return max(1, min(MAX_SPLITS, 2 * MULTIPROCESSORS // tiles, depth // MATRIX_SPLIT_DEPTH))


@lru_cache(maxsize=1024)  # of bounds, which are the same at every call
def matrix_sums_bound(rows: int, columns: int, depth: int, limits: Limits) -> int:
    """Partial sums of matrix tiles of every split, at the number of rows with most of them."""
    counts = {min(each, rows) for each in (32, *range(64, min(rows, MAX_MATRIX_SPLIT_ROWS) + 64, 64))}
    both = (
        {each: matrix_tile_config(each, columns, depth, packed, limits)[1] for each in counts}
        for packed in (False, True)
    )
    return max(_most_sums(splits, rows, columns) for splits in both)
