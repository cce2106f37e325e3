"""Products of floats by matrix units: both factors become halves in scratch that layers share, then tiles of matrices.

Every row of the left factor and every column of the right one is divided by a power of two first, which is given back
to its sums, so that no number is beyond the range of float16. Numbers that are float16 stay as they are.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.matrix_heuristics import (
    MAX_FLOAT_SPLITS,
    MAX_MATRIX_SUMS,
    MIN_MATRIX_DEPTH,
    MIN_MATRIX_PRODUCTS,
    float_matrix_tiles,
    halving_threads,
    matrix_shape,
)
from liveshape.ops.shapes import ceil_div

HALVES = Kernel.load("matmul/halves")
MATRIX_TILES = Kernel.load("matmul/matrix_tiles")
COMBINE = Kernel.load("matmul/combine_splits")

FOUR_THREADS = (2, 8, 32, 128)  # of four columns, each with one vector of the depth where there are enough
LINE_THREADS = (8, 32, 128)  # of a line of the depth, each with up to LINE_EIGHTS vectors of it
LINE_EIGHTS = 4


class Halves(NamedTuple):
    """Scratch for both factors as halves, for what they were divided by, and for the partial sums of split-K."""

    left: LiveTensor
    right: LiveTensor
    factors: LiveTensor
    sums: LiveTensor


def halves_of(
    x: LiveTensor, weight: LiveTensor, out: LiveTensor, limits: Limits
) -> Generator[Scratch, Any, Halves | None]:
    """Scratch for a product that takes matrix units at some of its live sizes; None where it never does."""
    if x.dtype != weight.dtype or x.dtype != out.dtype or matrix_shape(limits, x.dtype) is None:
        return None
    left, right, results = (prod(tensor.max_shape) for tensor in (x, weight, out))
    # Without knowing what is rows and what is depth: the three are (M K), (K N) and (M N), of a batch or of one.
    if (
        left * right * results < MIN_MATRIX_PRODUCTS**2
        or max(map(halves_bytes, (left, right))) > limits.max_binding_bytes
    ):
        return None
    return Halves(
        (yield Scratch("int8", (halves_bytes(left),))),
        (yield Scratch("int8", (halves_bytes(right),))),
        (yield Scratch("float32", (most_lines(left) + most_lines(right),))),
        (yield Scratch("float32", (min(MAX_MATRIX_SUMS, MAX_FLOAT_SPLITS * results),))),
    )


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
    yield _half_factors(x, weight, halves, columns, depth, limits, transposed=transposed)
    tiles, splits = float_matrix_tiles(batch, rows, columns, depth, limits)
    # An absent addend still needs a buffer of its dtype in its place; the left factor is there and only read.
    other = x if addend is None else addend
    factors = (halves.right, halves.factors)
    lines = {"right_lines": weight.numel // depth, "splits": splits}
    if splits == 1:
        yield MATRIX_TILES(out, halves.left, other, *factors, **values, **lines, **tiles)
        return
    plain = values | {"alpha": 1.0, "beta": 0.0, "ADDEND": False, "CLAMP": False}
    yield MATRIX_TILES(halves.sums, halves.left, halves.factors, *factors, **plain, **lines, **tiles)
    count = batch * rows * columns
    yield COMBINE(out, halves.sums, other, **values, splits=splits, count=count, threads=count)


def _half_factors(
    x: LiveTensor, weight: LiveTensor, halves: Halves, columns: int, depth: int, limits: Limits, *, transposed: bool
) -> Dispatch:
    """Both factors as halves, in one dispatch."""
    threads = halving_threads(limits)
    wanted = next((count for count in LINE_THREADS if 8 * LINE_EIGHTS * count >= depth), LINE_THREADS[-1])
    line_threads = min(wanted, threads)
    wanted = next((count for count in FOUR_THREADS if 8 * count >= depth), FOUR_THREADS[-1])
    four_threads = min(wanted, threads)
    left, right = x.numel // depth, weight.numel // depth
    groups = ceil_div(left, threads // line_threads)
    if transposed:
        groups = groups + ceil_div(right, threads // line_threads)
    else:
        groups = groups + ceil_div(right // columns * ceil_div(columns, 4), threads // four_threads)
    return HALVES(
        halves.left, halves.right, halves.factors, x, weight, left_lines=left, right_lines=right, columns=columns,
        depth=depth, WG=threads, LINE_THREADS=line_threads, FOUR_THREADS=four_threads, TRANSPOSED=transposed,
        SCALED=x.dtype != "float16", VEC=4 if depth % 4 == 0 and (transposed or columns % 4 == 0) else 1, groups=groups,
    )  # fmt: skip
