"""Matrix products. One plan serves them all: a batch of [M, K] times [K, N] or [N, K], with a fused addend."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Limits, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Product
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Prepack, Prepacked, Scratch
from liveshape.ops.matrix_heuristics import MIN_MATRIX_SIZE, gains_by_matrices
from liveshape.ops.matrix_products import COMBINE, Halves, halves_of, matrix_product
from liveshape.ops.operations import matrix
from liveshape.ops.product_tiles import register_tile, split_k, split_sums, takes_register_tiles
from liveshape.ops.registry import Number, Tensors, op
from liveshape.ops.row_rules import multiplied, row_wise
from liveshape.ops.shapes import broadcast_shapes, broadcast_strides, ceil_div
from liveshape.ops.split_factors import gains_by_splitting
from liveshape.ops.stages import ALL_UNITS

Steps = Generator[Dispatch | Scratch | Prepacked | Prepack | GetLimits, Any, None]


class Products(NamedTuple):
    """The kernels for one layout of the right operand: of few and of many rows (GEMV and tiles), in registers where
    threads are many, and of subgroups where they are few."""

    rows: Kernel
    tiled: Kernel
    registers: Kernel
    lanes: Kernel

    @classmethod
    def of_weight(cls, weight: str, depth: str) -> Products:
        """The kernels whose right factor is stored as floats or as nibbles, of a `whole` depth or of its `parts`."""
        few = Kernel.load("matmul/few_rows", WEIGHT=weight, DEPTH=depth, TOTAL="rows")
        names = "matmul/tiled", "matmul/register_tiles", "matmul/lane_tiles"
        return cls(few, *(Kernel.load(name, WEIGHT=weight, DEPTH=depth) for name in names))


class ProductsByDepth(NamedTuple):
    """The kernels of a whole depth, and of the parts of a long one."""

    whole: Products
    parts: Products

    @classmethod
    def of_weight(cls, weight: str) -> ProductsByDepth:
        """The kernels whose right factor is stored as floats or as nibbles."""
        return cls(Products.of_weight(weight, "whole"), Products.of_weight(weight, "parts"))


FLOATS = ProductsByDepth.of_weight("floats")
HALVES = ProductsByDepth.of_weight("halves")
SPLIT = ProductsByDepth.of_weight("split")

FEW_ROWS = 4  # up to here a product is bound by reading the right factor, not by arithmetic
FEWEST_ROWS = 2  # up to here where low tiles share a depth, and a factor is [K, N] or there are no shuffles
# Of a weight [N, K] by shuffles: 4, 8 and 16 rows of 4,096 x 4,096 floats take 20, 26 and 31 us, low tiles 40 (H200).
MOST_FEW_ROWS = 16
TILE_COLUMNS = 64
DEPTH_STEP = 16  # how the depth of a tile goes
FEW_UNITS = 1024  # of four columns of a right factor [K, N], up to which 16 threads each leave a device idle
FEWEST_UNITS = 256  # up to which 64 do
HALF_FOURS = 2  # of the depth, that are one vector of a weight of halves
LANE_SHARES = 2  # rows that a lane of a subgroup has, where threads are few; more take longer to compile than they gain
DEPTH_TURNS = 4  # of a thread for an element of the depth, where threads are few; half of that where they are many
ENOUGH_TILES = 256  # below this a device is better filled with smaller tiles


def product(
    x: LiveTensor,
    weight: LiveTensor,
    out: LiveTensor,
    batch: int,
    rows: int,
    columns: int,
    depth: int,
    *,
    transposed: bool,
    **choices: Any,
) -> Steps:
    """As `routed_product`, with the scratch that it may need."""
    limits: Limits = yield GetLimits()
    halves = yield from halves_of(x, weight, out, columns, depth, limits, transposed=transposed)
    sums = yield from partial_sums(x.max_shape[-1], out, limits)
    yield from routed_product(
        x, weight, out, batch, rows, columns, depth, limits, halves, sums, transposed=transposed, **choices
    )


def depth_parts(depth: int, limits: Limits) -> int:
    """How many parts a depth is summed in: one, unless it is so long that loops are cut short or sums lose digits.

    >>> depth_parts(14336, Limits()), depth_parts(100_000, Limits())
    (1, 25)
    """
    most = limits.max_turns // DEPTH_TURNS
    return 1 if depth <= (2 * most if limits.has_many_threads else most) else ceil_div(2 * depth, most)


def partial_sums(depth: int, out: LiveTensor, limits: Limits) -> Generator[Scratch, Any, LiveTensor | None]:
    """Scratch for the sums of parts of a depth up to this, or for split-K; None where it has one part."""
    results, parts = prod(out.max_shape), depth_parts(depth, limits)
    room = max(parts * results, 1) if parts > 1 else 0
    if takes_register_tiles(limits) and not limits.one_order:
        room = max(room, split_sums(results))
    if room == 0:
        return None
    sums: LiveTensor = yield Scratch("float32", (room,))
    return sums


def routed_product(
    x: LiveTensor,
    weight: LiveTensor,
    out: LiveTensor,
    batch: int,
    rows: int,
    columns: int,
    depth: int,
    limits: Limits,
    halves: Halves | None,
    sums: LiveTensor | None,
    *,
    transposed: bool,
    addend: LiveTensor | None = None,
    addend_strides: Shape | None = None,
    alpha: Number = 1,
    beta: Number = 1,
    low: float = 0.0,
    high: float = 0.0,
    CLAMP: bool = False,
    kernels: ProductsByDepth = FLOATS,
    scales: Tensors = (),
    enough: int = ENOUGH_TILES,
    **choices: Any,
) -> Iterator[Dispatch]:
    """out = alpha * x @ weight + beta * addend, for each of a batch; a broadcast operand is given once.

    The addend is broadcast unless its strides are given; the result may be clamped. The kernels say how the weight is
    stored; what else they need for that comes with `scales` and `choices`. Tiles that are not `enough` become smaller.
    With `halves`, the scratch for it, a large product takes matrix units; with `sums` a long one goes in parts.
    """
    if beta == 0:
        addend = None  # as in torch: a NaN that is multiplied by nothing does not count
    strides = addend_strides or (0, 0, 0)
    if addend is not None and addend_strides is None:
        strides = broadcast_strides(addend.shape, (batch, rows, columns))
    values: dict[str, Any] = {
        "batch": batch,
        "rows": rows,
        "columns": columns,
        "depth": depth,
        "x_stride": 0 if x.numel == rows * depth else rows * depth,
        "weight_stride": 0 if weight.numel == columns * depth else columns * depth,
        "addend_batch_stride": strides[0],
        "addend_row_stride": strides[1],
        "addend_column_stride": strides[2],
        "alpha": alpha,
        "beta": beta,
        "low": low,
        "high": high,
        "CLAMP": CLAMP,
        "ADDEND": addend is not None,
    }
    if halves is not None and _by_matrices(halves, batch, rows, columns, depth):
        yield from matrix_product(x, weight, out, addend, halves, values, limits, transposed=transposed)
        return
    stored, absent = weight, x
    if halves is not None and halves.alone:
        kernels = SPLIT if halves.right.split else HALVES
        stored, transposed, scales = halves.right.halves, True, (halves.right.factors,)
        absent = halves.addend_of(x, out)
    # An absent addend still needs a buffer in its place; the left factor is there and only read.
    tensors = (out, x, absent if addend is None else addend, stored, *scales)
    values |= {"TRANSPOSED": transposed, **choices}
    parts, few = depth_parts(depth, limits), _is_few(rows, limits, kernels, transposed)
    if sums is not None and takes_register_tiles(limits) and not few:
        most = prod(sums.max_shape) // max(1, batch * rows * columns)
        parts = max(parts, min(most, split_k(batch, rows, columns, depth, limits)))
    if parts > 1:
        yield from _in_parts(tensors, values, parts, sums, limits, kernels, enough, few)
        return
    yield _one_product(kernels.whole, tensors, values, batch, depth, limits, enough, few)


def _by_matrices(halves: Halves, batch: int, rows: int, columns: int, depth: int) -> bool:
    """Whether matrix units multiply. Where the right factor is halves anyway they do so for fewer rows, too: 8 rows of
    768 x 3,072 take as long as 16, and tiles of threads four times that."""
    if halves.right.split:
        return gains_by_splitting(batch, rows, columns, depth)
    if halves.alone and rows > FEW_ROWS:
        rows = max(rows, MIN_MATRIX_SIZE)
    return gains_by_matrices(batch, rows, columns, depth)


def _is_few(rows: int, limits: Limits, kernels: ProductsByDepth, transposed: bool) -> bool:
    """Whether rows are few. Tiles of every height sum alike, so that they serve all rows where sums have one order."""
    most = FEW_ROWS
    if kernels is not HALVES and takes_register_tiles(limits):
        most = MOST_FEW_ROWS if transposed and limits.subgroup else FEWEST_ROWS
    return rows <= most and not limits.one_order


def _one_product(
    kernels: Products,
    tensors: Tensors,
    values: dict[str, Any],
    batch: int,
    depth: int,
    limits: Limits,
    enough: int,
    few: bool,
) -> Dispatch:
    """The dispatch for few or for many rows; each of a batch adds up `depth` elements."""
    rows, columns, transposed = values["rows"], values["columns"], values["TRANSPOSED"]
    if lanes := limits.few_threads_lanes:
        vector = 4 if values["depth"] % 4 == 0 and (transposed or columns % 4 == 0) else 1
        shares = 1 if rows <= lanes else LANE_SHARES
        groups = batch * ceil_div(rows, shares * lanes) * ceil_div(columns, 4 * lanes)
        return kernels.lanes(*tensors, **values, SHARES=shares, LANES=lanes, WG=lanes, VEC=vector, groups=groups)
    if few:
        units = batch * ceil_div(columns, 4) if rows else 0
        # Of a weight that is halves from load on columns are neighbours, for matrix units.
        halves = kernels in (HALVES.whole, HALVES.parts)
        threads = _unit_threads(units, rows, depth, limits, transposed=transposed, halves=halves)
        vector = 4 if (values["depth"] if transposed else columns) % 4 == 0 else 1
        return kernels.rows(
            *tensors, **values, ROWS=1 << max(rows - 1, 0).bit_length(), FOURS=HALF_FOURS if halves else 1,
            UNIT_THREADS=threads, WG=max(kernels.rows.group_size, 2 * threads if halves else threads),
            ALTERNATING=1 if transposed and not halves else ALL_UNITS, VEC=vector, cooperative_units=units,
        )  # fmt: skip
    vector = 4 if values["depth"] % 4 == 0 and (transposed or columns % 4 == 0) else 1
    if takes_register_tiles(limits):
        tile = register_tile(values["batch"], rows, columns, values["depth"], limits)
        return kernels.registers(
            *tensors, **values, **tile.constants(transposed=transposed), VEC=vector,
            groups=tile.covering(batch, rows, columns),
        )  # fmt: skip
    height, tiles = tiling(batch, rows, columns, enough)
    return kernels.tiled(*tensors, **values, TILE_ROWS=height, VEC=vector, groups=tiles)


def _in_parts(
    tensors: Tensors,
    values: dict[str, Any],
    parts: int,
    sums: LiveTensor | None,
    limits: Limits,
    kernels: ProductsByDepth,
    enough: int,
    few: bool,
) -> Iterator[Dispatch]:
    """A long depth: the sums of its parts, and their sum, which the addend and the clamp are for."""
    assert sums is not None
    out, x, addend, *factors = tensors
    batch, rows, columns = values["batch"], values["rows"], values["columns"]
    part = ceil_div(values["depth"], parts * DEPTH_STEP) * DEPTH_STEP
    parts = ceil_div(values["depth"], part)
    plain = values | {"ADDEND": False, "CLAMP": False, "splits": parts, "split_depth": part}
    yield _one_product(kernels.parts, (sums, x, x, *factors), plain, batch * parts, part, limits, enough, few)
    count = batch * rows * columns
    ends = {name: value for name, value in values.items() if name in COMBINE.fields or name in COMBINE.constants}
    yield COMBINE(out, sums, addend, **ends, splits=parts, count=count, threads=count)


def _unit_threads(units: int, rows: int, depth: int, limits: Limits, *, transposed: bool, halves: bool) -> int:
    """Threads that split the depth of four columns: the more, the fewer units there are to fill a device with, and
    where neighbours in memory lie along the depth. Measured on an H200, of 192 to 1,024 units.

    >>> [_unit_threads(units, 1, 512, Limits(), transposed=False, halves=False) for units in (250, 9999)]
    [128, 16]
    >>> [_unit_threads(192, rows, 3072, Limits(), transposed=True, halves=False) for rows in (8, 16)]
    [256, 128]
    >>> [_unit_threads(units, 1, 4096, Limits(), transposed=True, halves=True) for units in (192, 1024)]
    [128, 64]
    """
    along = transposed and not halves
    if not limits.has_many_threads:
        return 64 if along and depth >= 1024 else 16
    few = units <= FEWEST_UNITS
    if along:
        most = 256 if few and 2 * rows <= MOST_FEW_ROWS else 128
        return next((threads for threads in (most, 128, 64) if depth >= 3 * threads), 16)
    if halves:
        return next((threads for threads in (128 if few else 64, 64) if depth >= 8 * threads), 16)
    return 128 if few and depth >= 128 else 64 if units <= FEW_UNITS and depth >= 64 else 16


def tiling(batch: int, rows: int, columns: int, enough: int = ENOUGH_TILES) -> tuple[int, int]:
    """The rows of a tile, and how many tiles these are: large ones, unless they would be too few.

    >>> tiling(1, 4096, 4096), tiling(1, 49, 512)
    ((64, 4096), (16, 32))
    """
    tile = 64
    while tile > 16 and (rows <= tile // 2 or _tiles(batch, rows, columns, tile) < enough):
        tile = tile // 2
    return tile, _tiles(batch, rows, columns, tile)


def _tiles(batch: int, rows: int, columns: int, tile: int) -> int:
    return batch * ceil_div(rows, tile) * ceil_div(columns, TILE_COLUMNS)


def _check_depth(a: LiveTensor, b: LiveTensor, fits: bool) -> None:
    if not fits:
        raise ShapeError(f"a product of shapes {a.shape} and {b.shape} does not exist")


@op("aten.mm.default", "aten::mm.out", rows=multiplied, product=Product(matrix()), epilogues=True)
def mm(x: LiveTensor, other: LiveTensor, out: LiveTensor) -> Steps:
    _check_depth(x, other, x.rank == other.rank == 2 and x.shape[1] == other.shape[0])
    (rows, depth), columns = x.shape, other.shape[1]
    out.shape = (rows, columns)
    yield from product(x, other, out, 1, rows, columns, depth, transposed=False)


@op("aten.bmm.default", "aten::bmm.out", rows=multiplied, product=Product(matrix()), any_size=True, epilogues=True)
def bmm(x: LiveTensor, other: LiveTensor, out: LiveTensor) -> Steps:
    _check_depth(x, other, x.rank == other.rank == 3 and (x.shape[0], x.shape[2]) == other.shape[:2])
    (batch, rows, depth), columns = x.shape, other.shape[2]
    out.shape = (batch, rows, columns)
    yield from product(x, other, out, batch, rows, columns, depth, transposed=False)


@op(
    "aten.linear.default",
    "aten::linear.out",
    rows=row_wise("x"),
    product=Product(matrix(), "x", "weight", linear=True),
    epilogues=True,
)
def linear(x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, out: LiveTensor) -> Steps:
    _check_depth(x, weight, x.rank >= 1 and weight.rank == 2 and x.shape[-1] == weight.shape[1])
    *lead, depth = x.shape
    columns = weight.shape[0]
    out.shape = (*lead, columns)
    yield from product(x, weight, out, 1, prod(lead), columns, depth, transposed=True, addend=bias)


@op("aten.addmm.default", "aten::addmm.out", rows=multiplied, product=Product(matrix()), epilogues=True)
def addmm(addend: LiveTensor, x: LiveTensor, other: LiveTensor, beta: Number, alpha: Number, out: LiveTensor) -> Steps:
    _check_depth(x, other, x.rank == other.rank == 2 and x.shape[1] == other.shape[0])
    (rows, depth), columns = x.shape, other.shape[1]
    _check_addend(addend, (rows, columns))
    out.shape = (rows, columns)
    yield from product(
        x, other, out, 1, rows, columns, depth, transposed=False, addend=addend, alpha=alpha, beta=beta
    )  # fmt: skip


@op("aten.baddbmm.default", "aten::baddbmm.out", rows=multiplied, product=Product(matrix()), epilogues=True)
def baddbmm(
    addend: LiveTensor, x: LiveTensor, other: LiveTensor, beta: Number, alpha: Number, out: LiveTensor
) -> Steps:
    _check_depth(x, other, x.rank == other.rank == 3 and (x.shape[0], x.shape[2]) == other.shape[:2])
    (batch, rows, depth), columns = x.shape, other.shape[2]
    _check_addend(addend, (batch, rows, columns))
    out.shape = (batch, rows, columns)
    yield from product(
        x, other, out, batch, rows, columns, depth, transposed=False, addend=addend, alpha=alpha, beta=beta
    )  # fmt: skip


@op("aten.matmul.default", "aten::matmul.out", rows=multiplied, product=Product(matrix()), epilogues=True)
def matmul(x: LiveTensor, other: LiveTensor, out: LiveTensor) -> Steps:
    """Vectors count as one row on the left and one column on the right, which the result then lacks."""
    left = x.shape if x.rank > 1 else (1, *x.shape)
    right = other.shape if other.rank > 1 else (*other.shape, 1)
    _check_depth(x, other, x.rank >= 1 and other.rank >= 1 and left[-1] == right[-2])
    lead = broadcast_shapes(left[:-2], right[:-2])
    batch, rows, columns, depth = prod(lead), left[-2], right[-1], left[-1]
    for factor in (left, right):
        if prod(factor[:-2]) not in (1, batch):
            raise UnsupportedError(
                f"a batch of {x.shape} and {other.shape} broadcasts along some of its dimensions only"
            )
    out.shape = (*lead, *((rows,) if x.rank > 1 else ()), *((columns,) if other.rank > 1 else ()))
    yield from product(x, other, out, batch, rows, columns, depth, transposed=False)


def _check_addend(addend: LiveTensor, shape: Shape) -> None:
    if broadcast_shapes(addend.shape, shape) != shape:
        raise ShapeError(f"the addend {addend.shape} does not broadcast to the product {shape}")
