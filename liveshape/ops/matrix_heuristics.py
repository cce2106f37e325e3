"""Heuristics of products by matrix units, of halves or bytes: which matrices, in tiles of which size, and split-K."""

from __future__ import annotations

from typing import Any, NamedTuple

from liveshape.errors import PlanError
from liveshape.graph import Limits
from liveshape.graph.limits import MatrixShape
from liveshape.ops.shapes import ceil_div

MULTIPROCESSORS = 132  # of the H200, which all of this was measured on
MATRIX_SIZES = (8, 16)  # of the matrices that blocks of a subgroup are made of
VECTOR_BYTES = 16  # that threads stage at once: matrices have whole ones of the depth
ITEM_BYTES = {"float16": 2, "int8": 1}
MATRIX_THREADS, MATRIX_SUBGROUPS = 128, 4  # of a workgroup, at most
MATRIX_TILE_BYTES = 20992  # of workgroup memory: two factors of 128 by 32 halves, padded, and a float a thread
LARGE_TILE, SMALL_TILE, LOW_TILE = 128, 64, 32  # rows; columns, too, but for low tiles, which are 64 wide
LARGE_TILES = 190  # that large tiles are, at least: 4,096 x 768 x 768 has 192, in 163 Tflop/s for 147
NARROW_TILE = 16  # columns, of pixels that have so few channels
LARGE_PIXEL_TILES = 96  # 6,272 x 2,304 x 256 has 98, 151 Tflop/s for 133; 4,096 x 4,608 x 512 has 128, 207 for 181
LARGE_PRODUCT_TILES = 72  # 1,576 x 768 x 768 has 78, 101 Tflop/s for 98
MATRIX_STEP, DEEP_STEP = 32, 64  # of the depth, that a large tile stages, and a small one


def check_sums(splits: int, results: int, room: int) -> None:
    """Refuse split-K whose partial sums its scratch does not hold: these kernels do not check where they write.

    >>> check_sums(2, 512 * 768, MAX_MATRIX_SUMS)
    """
    if splits * results > room:
        raise PlanError(f"split-K: {splits} parts of {results} sums do not fit the {room} of its scratch; report this")


class RoundTile(NamedTuple):
    """A large tile of a product, and microseconds for a step of the depth: of a workgroup that has a multiprocessor for
    itself, and of two that share one."""

    rows: int
    columns: int
    alone: float
    shared: float


# Of 16,384 x 768 x 3,072 and 6,304 x 768 x 3,072. Two of either share a multiprocessor, whose workgroups have 48 KB of
# memory in all. Wider ones (128 x 160) and deeper steps (64) leave room for one, or their sums no registers.
ROUND_TILES = (RoundTile(LARGE_TILE, LARGE_TILE, 0.64, 0.965), RoundTile(96, LARGE_TILE, 0.585, 0.785))
ROUND_MICROSECONDS = 2.6  # of its first loads and its epilogue
LONELY_TILES = 40  # behind whole rounds: so few find a multiprocessor for themselves
MATRIX_SPLIT_DEPTH = 256  # of each split, at least
LOWEST_TILE = 16  # rows, bound by reading the right factor: 16 rows of 4,096 x 4,096 in 15.2 us, for 18.1 by low tiles
LOWEST_SPLITS = 8  # of these, at most: 16 x 3,072 x 768 in 10.1 us, by four splits in 12.1
LOWEST_SPLIT_DEPTH = 192  # 16 x 768 x 3,072 by four splits in 8.2 us, by eight in 8.8
FLOAT_SPLIT_DEPTH = 768  # of floats: below it another dispatch costs more than what is done meanwhile

# Floats: both factors become halves first, which small products do not pay for. Sizes count by the power of two below
# them, so that planning at the ends of its range finds what is to be compiled at load.
MIN_MATRIX_SIZE, MIN_MATRIX_DEPTH = 16, 32  # rows or columns; and depth
MIN_MATRIX_PRODUCTS = 1 << 20
MAX_FLOAT_SPLITS = 32
HALVES_THREADS = 256  # of a workgroup that makes halves of floats, at most
MAX_MATRIX_SUMS = 2 * MULTIPROCESSORS * SMALL_TILE * SMALL_TILE  # partial sums of the tiles that split-K gives a device


def matrix_shape(limits: Limits, dtype: str = "float32") -> MatrixShape | None:
    """The matrices that products of a dtype take, floats as halves, where a device has such and the user permits it.

    >>> matrix_shape(Limits()) is None
    True
    """
    fits = matrix_subgroups(limits) > 0 and limits.max_workgroup_bytes >= MATRIX_TILE_BYTES
    if limits.one_order or not fits:
        return None
    square = (each for each in limits.matrices_of(dtype) if each.m == each.n in MATRIX_SIZES)
    return max(filter(_fills_tiles, square), key=lambda each: (each.m, -each.k), default=None)


def _fills_tiles(shape: MatrixShape) -> bool:
    """Whether tiles are made of such matrices: cubes of halves, or whole vectors of bytes."""
    return shape.k == shape.m if shape.input == "float16" else shape.input == "int8" and shape.k % VECTOR_BYTES == 0


def matrix_lanes(limits: Limits) -> int:
    """Threads of the subgroups that multiply matrices: of a GPU, or of a software adapter that has them."""
    return limits.subgroup or limits.few_threads_lanes


def matrix_subgroups(limits: Limits) -> int:
    """Subgroups of a workgroup that multiplies matrices, a power of two; 0 where none fits.

    >>> matrix_subgroups(Limits(subgroup=32)), matrix_subgroups(Limits(subgroup=64)), matrix_subgroups(Limits())
    (4, 2, 0)
    """
    lanes = matrix_lanes(limits)
    most = min(MATRIX_THREADS, limits.max_invocations) // lanes if lanes else 0
    return min(MATRIX_SUBGROUPS, 1 << most.bit_length() >> 1)


def matrix_threads(limits: Limits) -> int:
    """Threads of such a workgroup.

    >>> matrix_threads(Limits(subgroup=32))
    128
    """
    return matrix_subgroups(limits) * matrix_lanes(limits)


def matrix_tiles(
    rows: int,
    columns: int,
    depth: int,
    limits: Limits,
    *,
    batch: int = 1,
    deep_step: bool,
    max_splits: int,
    dtype: str = "float16",
) -> tuple[dict[str, Any], int]:
    """Tiles of matrix units, and split-K: 128 by 128 where they fill the device, else 64 by 64 or 32 by 64.

    Small tiles may stage a `deep_step` of the depth at a time; of bytes a step has twice as much.
    """
    many = limits.has_many_threads  # else a compiler for CPUs takes minutes over the text of larger tiles and steps
    large = batch * ceil_div(rows, LARGE_TILE) * ceil_div(columns, LARGE_TILE)
    if many and rows > SMALL_TILE and large >= LARGE_TILES:
        return tile_constants(LARGE_TILE, LARGE_TILE, MATRIX_STEP, limits, dtype) | {"groups": large}, 1
    down = SMALL_TILE if rows > LOW_TILE else LOW_TILE
    tiles, splits = batch * ceil_div(rows, down) * ceil_div(columns, SMALL_TILE), 1
    if tiles < MULTIPROCESSORS:
        splits = max(1, min(max_splits, 2 * MULTIPROCESSORS // tiles, depth // MATRIX_SPLIT_DEPTH))
    constants = tile_constants(down, SMALL_TILE, DEEP_STEP if many and deep_step else MATRIX_STEP, limits, dtype)
    return constants | {"groups": tiles}, splits


def float_matrix_tiles(batch: int, rows: int, columns: int, depth: int, limits: Limits) -> tuple[dict[str, Any], int]:
    """Tiles of a convolution, and split-K; what a step has beyond the depth is zeros."""
    deep = depth > MATRIX_STEP
    tiles, splits = matrix_tiles(rows, columns, depth, limits, batch=batch, deep_step=deep, max_splits=MAX_FLOAT_SPLITS)
    return tiles | {"groups": tiles["groups"] * splits}, splits


def pixel_matrix_tiles(pixels: int, channels: int, depth: int, limits: Limits) -> tuple[dict[str, Any], int]:
    """Tiles of a convolution with its channels last, whose rows are pixels, and split-K.

    As wide as there are channels, where these are few: a tile of 128 would compute twice as much as 64 need. Of 64,
    too, where of wider ones a tenth of the columns would be in vain.
    """
    across = next((each for each in (NARROW_TILE, LOW_TILE, SMALL_TILE) if channels <= each), LARGE_TILE)
    if across == LARGE_TILE and 10 * LARGE_TILE * ceil_div(channels, LARGE_TILE) > 11 * channels:
        across = SMALL_TILE
    count = ceil_div(pixels, LARGE_TILE) * ceil_div(channels, across)
    enough = LARGE_PIXEL_TILES if across == LARGE_TILE else MULTIPROCESSORS
    if not limits.has_many_threads or pixels <= SMALL_TILE or count < enough:
        return float_matrix_tiles(1, pixels, channels, depth, limits)
    step = DEEP_STEP if across == NARROW_TILE else MATRIX_STEP
    return tile_constants(LARGE_TILE, across, step, limits) | {"groups": count}, 1


def product_matrix_tiles(batch: int, rows: int, columns: int, depth: int, limits: Limits) -> tuple[dict[str, Any], int]:
    """Tiles of a product of floats, and split-K; what a step has beyond the depth is zeros.

    Low tiles, with a deep step, where others are too few: 128 x 2,304 x 768 in 12 us, not in 17.
    """
    deep = depth > MATRIX_STEP
    large = batch * ceil_div(rows, LARGE_TILE) * ceil_div(columns, LARGE_TILE)
    if limits.has_many_threads and rows > SMALL_TILE and large >= LARGE_PRODUCT_TILES:
        tile, count = round_tile(batch, rows, columns, depth)
        return tile_constants(tile.rows, tile.columns, MATRIX_STEP, limits) | {"groups": count}, 1
    small = batch * ceil_div(rows, SMALL_TILE) * ceil_div(columns, SMALL_TILE)
    if small >= MULTIPROCESSORS or not limits.has_many_threads:
        return matrix_tiles(rows, columns, depth, limits, batch=batch, deep_step=deep, max_splits=1)
    step = DEEP_STEP if deep else MATRIX_STEP
    if rows <= LOWEST_TILE and deep:
        count = batch * ceil_div(columns, SMALL_TILE)
        splits = max(1, min(LOWEST_SPLITS, 4 * MULTIPROCESSORS // count, depth // LOWEST_SPLIT_DEPTH))
        return tile_constants(LOWEST_TILE, SMALL_TILE, step, limits) | {"groups": count * splits}, splits
    count = batch * ceil_div(rows, LOW_TILE) * ceil_div(columns, SMALL_TILE)
    splits = max(1, min(MAX_FLOAT_SPLITS, 2 * MULTIPROCESSORS // count, depth // FLOAT_SPLIT_DEPTH))
    return tile_constants(LOW_TILE, SMALL_TILE, step, limits) | {"groups": count * splits}, splits


def round_tile(batch: int, rows: int, columns: int, depth: int) -> tuple[RoundTile, int]:
    """The large tile that takes the least time, and how many of it: workgroups run in rounds, and the last one of large
    tiles may be nearly empty. 6,304 x 768 is 1.1 rounds of 128 by 128.

    >>> [round_tile(1, rows, 768, 3072)[0].rows for rows in (16384, 12000, 4096)]
    [128, 96, 96]
    """
    counts = [batch * ceil_div(rows, tile.rows) * ceil_div(columns, tile.columns) for tile in ROUND_TILES]
    times = [_microseconds(tile, count, depth) for tile, count in zip(ROUND_TILES, counts, strict=True)]
    best = times.index(min(times))
    return ROUND_TILES[best], counts[best]


def _microseconds(tile: RoundTile, count: int, depth: int) -> float:
    rounds, last = divmod(count, 2 * MULTIPROCESSORS)
    alone = last <= (LONELY_TILES if rounds else MULTIPROCESSORS)
    step = rounds * tile.shared + (0 if not last else tile.alone if alone else tile.shared)
    return ceil_div(depth, MATRIX_STEP) * step + ROUND_MICROSECONDS * (rounds + (last > 0))


def gains_by_matrices(batch: int, rows: int, columns: int, depth: int) -> bool:
    """Whether a product of floats is large enough for matrix units.

    >>> gains_by_matrices(1, 512, 2048, 2048), gains_by_matrices(1, 15, 2048, 2048), gains_by_matrices(1, 64, 64, 64)
    (True, False, False)
    """
    if min(rows, columns) < MIN_MATRIX_SIZE or depth < MIN_MATRIX_DEPTH:
        return False
    return power_below(batch) * power_below(rows) * power_below(columns) * power_below(depth) >= MIN_MATRIX_PRODUCTS


def byte_matrix_tiles(rows: int, columns: int, depth: int, limits: Limits) -> dict[str, Any] | None:
    """Tiles of a product of bytes; None where it takes none: too small, or no whole vectors, or no such matrices."""
    aligned = columns % 4 == 0 and depth % VECTOR_BYTES == 0
    if not (aligned and gains_by_matrices(1, rows, columns, depth) and matrix_shape(limits, "int8")):
        return None
    deep = depth > 2 * MATRIX_STEP
    tiles, _ = matrix_tiles(rows, columns, depth, limits, deep_step=deep, max_splits=1, dtype="int8")
    return tiles


def halving_threads(limits: Limits) -> int:
    """Threads of a workgroup that makes halves of floats, a power of two."""
    return 1 << min(limits.max_invocations, HALVES_THREADS).bit_length() - 1


def power_below(size: int) -> int:
    """The power of two below a size; of one it is one."""
    return 1 << (size - 1).bit_length() >> 1 if size > 1 else size


def tile_constants(
    down: int,
    across: int,
    step: int,
    limits: Limits,
    dtype: str = "float16",
    *,
    parts: int = 1,
) -> dict[str, Any]:
    """The constants of common/matrix_tiles.wgsl for tiles of so many rows and columns, and of the depth at a time.

    A `step` counts halves: of bytes it has twice as many. A number is so many `parts`: see split_factors.py.
    """
    shape = matrix_shape(limits, dtype)
    assert shape is not None
    step_bytes = step * ITEM_BYTES["float16"]
    lanes, subgroups = matrix_lanes(limits), matrix_subgroups(limits)
    threads, subgroups_down = matrix_threads(limits), 1
    # Blocks of a subgroup are as square as can be, since it loads as many matrices as they have rows and columns.
    while subgroups_down < subgroups and down // subgroups_down > 2 * across // (subgroups // subgroups_down):
        subgroups_down *= 2
    own_columns = across // (subgroups // subgroups_down)
    return {
        "WG": threads,
        "LANES": lanes,
        "MATRIX_ROWS": shape.m,
        "MATRIX_COLUMNS": shape.n,
        "MATRIX_DEPTH": shape.k,
        "SUBGROUPS_DOWN": subgroups_down,
        "BLOCKS_DOWN": down // subgroups_down // shape.m,
        "BLOCKS_ACROSS": own_columns // shape.n,
        "BLOCKS_DEEP": step_bytes // ITEM_BYTES[dtype] // shape.k,
        "ROW_LOADS": parts * down * step_bytes // VECTOR_BYTES // threads,
        "COLUMN_LOADS": parts * across * step_bytes // VECTOR_BYTES // threads,
        "STORE_TURNS": ceil_div(shape.m * own_columns // 4, lanes),
    }
