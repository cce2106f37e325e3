"""Products of floats by matrix units: both factors become halves, a constant right one at load, others in scratch that
layers share, then tiles of matrices.

Every row of the left factor and every column of the right one is divided by a power of two first, which is given back
to its sums, so that no number is beyond the range of float16. Numbers that are float16 stay as they are.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from liveshape.graph import Limits, Tensor
from liveshape.graph.elements import prod, storage_bytes
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Prepack, Prepacked, Scratch
from liveshape.ops import split_factors
from liveshape.ops.matrix_heuristics import (
    MAX_FLOAT_SPLITS,
    MAX_MATRIX_SUMS,
    MIN_MATRIX_DEPTH,
    MIN_MATRIX_PRODUCTS,
    MIN_MATRIX_SIZE,
    check_sums,
    halving_threads,
    matrix_shape,
    product_matrix_tiles,
)
from liveshape.ops.shapes import ceil_div
from liveshape.ops.split_factors import (
    BLOCK,
    MAX_SPLIT_SUMS,
    may_gain_by_splitting,
    split_bytes,
    split_tiles,
    split_vectors,
    splits_floats,
)

HALF_LINES = Kernel.load("matmul/half_lines")
MATRIX_TILES = {
    (left, right, depth, columns): Kernel.load(
        "matmul/matrix_tiles", LEFT=left, RIGHT=right, DEPTH=depth, COLUMNS=columns
    )
    for left in ("lines", "halves")
    for right in ("lines", "across")
    for depth in ("whole", "splits")
    for columns in ("fours", "any")
}
SPLIT_TILES = {
    (depth, columns): Kernel.load("matmul/matrix_tiles", FACTORS="split", DEPTH=depth, COLUMNS=columns)
    for depth in ("whole", "splits")
    for columns in ("fours", "any")
}
COMBINE = Kernel.load("matmul/combine_splits")

FOUR_THREADS = (2, 8, 32, 128)  # of four columns, each with one vector of the depth where there are enough
LINE_THREADS = (8, 32, 128)  # of a line of the depth, each with up to LINE_EIGHTS vectors of it
LINE_EIGHTS = 4
MAX_PREPACKED = 64 << 20  # bytes of one weight that are kept as halves beside its floats
MAX_SOURCE = 1 << 30  # bytes of floats that are on the device at once while they become halves


AnyTensor = Tensor | LiveTensor


class Lines(NamedTuple):
    """Rows or columns of a factor as lines of halves, and what each was divided by."""

    halves: LiveTensor
    factors: LiveTensor
    split: bool = False  # whether each number is the sum of two halves
    across: bool = False  # whether vectors of all lines at one place of the depth are neighbours


class Halves(NamedTuple):
    """Both factors as halves, and scratch for the partial sums of split-K."""

    left: Lines | None  # none where rows are float16 in whole vectors at every live size
    right: Lines
    left_prepacked: bool
    prepacked: bool
    alone: bool  # whether halves are all that is left of the right factor
    sums: LiveTensor

    def addend_of(self, x: LiveTensor, out: LiveTensor) -> LiveTensor:
        """An absent addend still needs a buffer of its dtype in its place, which is there and only read."""
        return x if x.dtype == out.dtype else self.right.factors


def halves_of(
    x: LiveTensor, weight: LiveTensor, out: LiveTensor, columns: int, depth: int, limits: Limits, *, transposed: bool
) -> Generator[Scratch | Prepacked | Prepack, Any, Halves | None]:
    """Memory for a product that takes matrix units at some of its live sizes; None where it never does."""
    split = splits_floats(weight.dtype, limits)
    alone = is_halves_alone(x, weight, out, columns, depth, limits)
    widened = alone and not split and x.dtype == "float16"
    alike = weight.dtype == out.dtype and (x.dtype == weight.dtype or widened)
    left, right = prod(x.max_shape), prod(weight.max_shape)
    fits = max(_bytes_of(left, split), _bytes_of(right, split)) <= limits.max_binding_bytes
    if not (alike and fits and _may_gain(x, weight, out, limits)):
        return None
    left_prepacked: Lines | None = None
    if x.constant is not None:  # the weight of a convolution whose windows are one pixel
        left_prepacked = yield from _prepacked_lines(x, depth, limits, split)
    prepacked: Lines | None = None
    if weight.constant is not None:
        if not _is_large(weight, out, columns, depth, limits):
            return None
        count = weight.numel // depth
        nbytes = 16 * count * _line_vectors(depth, split)
        halves = (yield Prepacked(weight, "int8", (nbytes,), alone)) if alone or nbytes <= MAX_PREPACKED else None
        if halves is not None:
            prepacked = Lines(halves, (yield Prepacked(weight, "float32", (count,))), split, not split)
            yield Prepack(_half_lines(weight, prepacked, columns, depth, limits, transposed=transposed))
    most_sums = MAX_SPLIT_SUMS if split else MAX_MATRIX_SUMS
    return Halves(
        None if alone and _is_lines(x, depth) else left_prepacked or (yield from _scratch_of(left, split)),
        prepacked or (yield from _scratch_of(right, split)),
        left_prepacked is not None,
        prepacked is not None,
        alone and prepacked is not None,
        (yield Scratch("float32", (min(most_sums, MAX_FLOAT_SPLITS * prod(out.max_shape)),))),
    )


def _prepacked_lines(
    factor: LiveTensor, depth: int, limits: Limits, split: bool
) -> Generator[Prepacked | Prepack, Any, Lines | None]:
    """A constant left factor as lines of halves from load on; None where it changes, or is too large to keep twice."""
    count = factor.numel // depth
    nbytes = 16 * count * _line_vectors(depth, split)
    halves = (yield Prepacked(factor, "int8", (nbytes,))) if nbytes <= MAX_PREPACKED else None
    if halves is None:
        return None
    lines = Lines(halves, (yield Prepacked(factor, "float32", (count,))), split)
    yield Prepack(_half_lines(factor, lines, count, depth, limits, transposed=True))
    return lines


def _bytes_of(count: int, split: bool) -> int:
    return split_bytes(count) if split else halves_bytes(count)


def _scratch_of(count: int, split: bool) -> Generator[Scratch, Any, Lines]:
    """For a factor of so many numbers, whatever its depth is."""
    halves: LiveTensor = yield Scratch("int8", (_bytes_of(count, split),))
    factors: LiveTensor = yield Scratch("float32", (most_lines(count),))
    return Lines(halves, factors, split)


def _is_lines(x: LiveTensor, depth: int) -> bool:
    """Whether the rows of a left factor are halves in whole vectors."""
    return x.dtype == "float16" and depth % 8 == 0


def is_halves_alone(x: AnyTensor, weight: AnyTensor, out: AnyTensor, columns: int, depth: int, limits: Limits) -> bool:
    """Whether all kernels of a product read a constant weight as halves, so that it is on the device as nothing else.

    All of these take a left factor of float16 as well, beside a weight and a result of float32 that is not split.
    """
    nbytes = storage_bytes(weight.dtype, columns * depth, limits.half)
    unit = BLOCK if splits_floats(weight.dtype, limits) else 8
    whole = prod(weight.max_shape) == columns * depth and depth % unit == 0 and nbytes <= MAX_SOURCE
    large = _is_large(weight, out, columns, depth, limits) and _may_gain(x, weight, out, limits)
    fits = nbytes <= min(limits.max_binding_bytes, limits.max_buffer_bytes)
    return weight.constant is not None and large and whole and fits


def _is_large(weight: AnyTensor, out: AnyTensor, columns: int, depth: int, limits: Limits) -> bool:
    """Whether a constant weight is large enough for matrix units, and split ones have enough rows at their bound."""
    if splits_floats(weight.dtype, limits):
        return may_gain_by_splitting(prod(out.max_shape) // max(columns, 1), columns, depth)
    return columns >= MIN_MATRIX_SIZE and depth >= MIN_MATRIX_DEPTH


def _may_gain(x: AnyTensor, weight: AnyTensor, out: AnyTensor, limits: Limits) -> bool:
    """Whether a product is large enough for matrix units at its bound, and the device has them for it.

    Without knowing what is rows and what is depth: the three are (M K), (K N) and (M N), of a batch or of one.
    """
    sizes = prod(prod(tensor.max_shape) for tensor in (x, weight, out))
    if splits_floats(weight.dtype, limits):
        return sizes >= split_factors.MIN_SPLIT_PRODUCTS**2
    return sizes >= MIN_MATRIX_PRODUCTS**2 and matrix_shape(limits, weight.dtype) is not None


def _line_vectors(depth: int, split: bool) -> int:
    """Vectors of eight halves that a line has."""
    return split_vectors(depth) if split else ceil_div(depth, 8)


def most_lines(count: int) -> int:
    """Lines that so many numbers are, of the least depth that takes matrix units."""
    return count // MIN_MATRIX_DEPTH


def halves_bytes(count: int) -> int:
    """Of lines of whole vectors, at whatever depth has most of them."""
    return 16 * ceil_div(count + 7 * most_lines(count), 8)


def matrix_product(
    x: LiveTensor,
    weight: LiveTensor,
    out: LiveTensor,
    addend: LiveTensor | None,
    halves: Halves,
    values: dict[str, Any],
    limits: Limits,
    *,
    transposed: bool,
) -> Iterator[Dispatch]:
    """out = alpha * x @ weight + beta * addend, as `values`, the Params of matmul/params.wgsl, have it."""
    batch, rows, columns, depth = (values[name] for name in ("batch", "rows", "columns", "depth"))
    if not halves.prepacked:
        yield _half_lines(weight, halves.right, columns, depth, limits, transposed=transposed)
    split = halves.right.split
    left = None if _is_lines(x, depth) else halves.left
    if left is not None and not halves.left_prepacked:
        yield _half_lines(x, left, rows, depth, limits, transposed=True)
    tiles, splits = (split_tiles if split else product_matrix_tiles)(batch, rows, columns, depth, limits)
    other = halves.addend_of(x, out) if addend is None else addend
    read = (x, halves.right.halves) if left is None else (left.halves, halves.right.halves, left.factors)
    read = (other, halves.right.factors, *read)
    form, right = "halves" if left is None else "lines", "across" if halves.right.across else "lines"
    tiles["WHOLE_STEPS"] = depth % (tiles["BLOCKS_DEEP"] * tiles["MATRIX_DEPTH"]) == 0
    # Where columns are live their fours would come and go with them, and a kernel be compiled between two calls.
    fours = halves.prepacked and columns % 4 == 0
    if splits == 1:
        at_fours = fours and (addend is None or _lies_in_fours(values))
        if at_fours:
            tiles["ADDEND_ROWS"] = values["ADDEND"] and values["addend_row_stride"] != 0
        lanes = "fours" if at_fours else "any"
        kernel = SPLIT_TILES["whole", lanes] if split else MATRIX_TILES[form, right, "whole", lanes]
        yield kernel(out, *read, **values, **tiles, splits=1)
        return
    lanes = "fours" if fours else "any"
    kernel = SPLIT_TILES["splits", lanes] if split else MATRIX_TILES[form, right, "splits", lanes]
    plain = {name: values[name] for name in kernel.fields if name in values}
    count = batch * rows * columns
    check_sums(splits, count, halves.sums.max_shape[0])
    yield kernel(halves.sums, *read, **plain, **tiles, splits=splits)
    yield COMBINE(out, halves.sums, other, **values, splits=splits, count=count, threads=count)


def _lies_in_fours(values: dict[str, Any]) -> bool:
    """Whether four neighbouring columns of an addend are a vector of it."""
    beginnings = (values["addend_batch_stride"], values["addend_row_stride"])
    return values["addend_column_stride"] == 1 and all(stride % 4 == 0 for stride in beginnings)


class Apart(NamedTuple):
    """Where factors of a batch begin, the elements between these and between their rows, and the lines between what is
    written of them."""

    start: int
    batch: int
    row: int
    lines: int


def _half_lines(
    factor: LiveTensor, lines: Lines, columns: int, depth: int, limits: Limits, *, transposed: bool
) -> Dispatch:
    """A factor that lies without gaps as lines of halves."""
    apart = Apart(0, columns * depth, depth if transposed else columns, columns)
    count = factor.numel // depth
    return half_lines(factor, lines, count, columns, depth, limits, transposed=transposed, apart=apart)


def half_lines(
    factor: LiveTensor,
    lines: Lines,
    count: int,
    columns: int,
    depth: int,
    limits: Limits,
    *,
    transposed: bool,
    apart: Apart,
) -> Dispatch:
    """A factor as `count` lines of halves: a left one, a right one [N, K] (`transposed`) or [K, N], or a batch of such.

    Example: `yield half_lines(keys, lines, batch * rows, rows, size, limits, transposed=True, apart=apart)`.
    """
    threads = halving_threads(limits)
    if transposed:
        wanted = next((each for each in LINE_THREADS if 8 * LINE_EIGHTS * each >= depth), LINE_THREADS[-1])
        units = count
    else:
        wanted = next((each for each in FOUR_THREADS if 8 * each >= depth), FOUR_THREADS[-1])
        units = count // columns * ceil_div(columns, 4)
    line_threads, along = min(wanted, threads), depth if transposed else columns
    fours = all(step % 4 == 0 for step in (apart.start, apart.batch, apart.row, along))
    return HALF_LINES(
        lines.halves, lines.factors, factor, lines=count, columns=columns, depth=depth, apart=apart.lines,
        start=apart.start, batch=apart.batch, row=apart.row, WG=threads, LINE_THREADS=line_threads,
        LINE_EIGHTS=LINE_EIGHTS, TRANSPOSED=transposed, SCALED=factor.dtype != "float16",
        ACROSS=lines.across, SPLIT=lines.split,
        VEC=4 if fours else 1, groups=ceil_div(units, threads // line_threads),
    )  # fmt: skip
