"""Attention of one head too wide for the memory of a workgroup, by matrix units: a product with the keys, a softmax
that makes halves of its rows, and a product with the values.

Such heads are alone: an autoencoder has one of 512 elements in its middle. Scores lie in scratch, up to MAX_SCORES.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from liveshape.graph import Limits
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.attention_heuristics import LARGE_HEAD
from liveshape.ops.matrix_heuristics import gains_by_matrices, halving_threads, matrix_shape, matrix_tiles
from liveshape.ops.matrix_products import MATRIX_TILES, Apart, Lines, half_lines
from liveshape.ops.shapes import ceil_div

SOFTMAX_LINES = Kernel.load("attention/softmax_lines")
MAX_SCORES = 1 << 28  # bytes
EIGHT = 8


class WideSizes(NamedTuple):
    """The sizes of attention of heads that lie one behind the other, as batches of one head do."""

    batch: int  # heads
    queries: int
    keys: int
    size: int
    value_size: int

    @classmethod
    def of(cls, sizes: Any) -> WideSizes:
        """Of sizes of attention, by names."""
        return cls(sizes.batch * sizes.key_heads, sizes.queries, sizes.keys, sizes.size, sizes.value_size)

    @property
    def eights(self) -> int:
        """Vectors of keys."""
        return ceil_div(self.keys, EIGHT)

    @property
    def rows(self) -> int:
        return self.batch * self.queries

    @property
    def gains(self) -> bool:
        """Whether its products are large enough for matrix units."""
        return gains_by_matrices(self.batch, self.queries, self.keys, min(self.size, self.value_size))


class Wide(NamedTuple):
    """Scratch: both factors of both products, and scores; which digit has the heads, of batches or of a batch."""

    digit: int
    queries: Lines
    keys: Lines
    values: Lines
    weights: Lines
    scores: LiveTensor

    def takes(self, call: Any) -> bool:
        """Whether a call is large enough, and has as many heads as its digit says."""
        return WideSizes.of(call).gains and (call.batch, call.key_heads)[1 - self.digit] == 1


def wide_scratch(
    of: Any, axes: Sequence[Sequence[int]], dtype: str
) -> Generator[Scratch | GetLimits, Any, Wide | None]:
    """The scratch of attention up to these sizes, its result with such axes; None where no matrix units take it so.

    Example: `wide = yield from wide_scratch(bound, axes_from(axes), "float32")`.
    """
    limits: Limits = yield GetLimits()
    bound, digit = WideSizes.of(of), int(of.batch == 1)
    if [each for axis in axes for each in axis] != [digit, 2, 3] or (of.batch, of.key_heads)[1 - digit] != 1:
        return None
    if bound.size <= LARGE_HEAD or bound.size % EIGHT or bound.value_size % EIGHT or limits.one_order:
        return None
    nbytes = 32 * bound.rows * bound.eights
    if not bound.gains or matrix_shape(limits, dtype) is None or nbytes > min(MAX_SCORES, limits.max_binding_bytes):
        return None
    lines = [
        (bound.rows, bound.size // EIGHT),
        (bound.batch * bound.eights * EIGHT, bound.size // EIGHT),
        (bound.batch * bound.value_size, bound.eights),
        (bound.rows, bound.eights),
    ]
    made = []
    for count, eights in lines:
        halves: LiveTensor = yield Scratch("int8", (16 * count * eights,))
        made.append(Lines(halves, (yield Scratch("float32", (count,)))))
    queries, keys, values, weights = made
    return Wide(digit, queries, keys, values, weights, (yield Scratch("float32", (nbytes // 4,))))


def wide_attention(
    out: LiveTensor,
    operands: Sequence[tuple[LiveTensor, tuple[int, ...]]],
    call: Any,
    scale: float,
    wide: Wide,
) -> Generator[Dispatch | GetLimits, Any, None]:
    """`operands` are queries, keys and values, with where each begins and the steps of its batches, heads and rows.

    Example: `yield from wide_attention(out, operands, call, 0.125, wide)`.
    """
    limits: Limits = yield GetLimits()
    sizes = WideSizes.of(call)
    (q, of_queries), (k, of_keys), (v, of_values) = operands
    padded = EIGHT * sizes.eights
    rows, keys, columns = sizes.queries, sizes.keys, sizes.value_size
    for tensor, steps, lines, count, apart, depth in (
        (q, of_queries, wide.queries, rows, rows, sizes.size),
        (k, of_keys, wide.keys, keys, padded, sizes.size),
        (v, of_values, wide.values, columns, columns, keys),
    ):
        lies = Apart(steps[0], steps[1 + wide.digit], steps[3], apart)
        along = lines is not wide.values
        yield half_lines(tensor, lines, sizes.batch * count, count, depth, limits, transposed=along, apart=lies)
    addend = q if q.dtype == out.dtype else wide.weights.factors  # an absent one still needs a buffer in its place
    shape = (sizes.batch, rows, padded, sizes.size)
    yield _product(wide.scores, wide.keys.factors, wide.queries, wide.keys, shape, scale, limits)
    yield SOFTMAX_LINES(
        wide.weights.halves, wide.weights.factors, wide.scores, rows=sizes.rows, keys=keys, eights=sizes.eights,
        WG=halving_threads(limits), groups=sizes.rows,
    )  # fmt: skip
    yield _product(out, addend, wide.weights, wide.values, (sizes.batch, rows, columns, keys), 1.0, limits)


def _product(
    out: LiveTensor,
    addend: LiveTensor,
    left: Lines,
    right: Lines,
    shape: tuple[int, int, int, int],
    alpha: float,
    limits: Limits,
) -> Dispatch:
    """Of a batch of lines; `shape` has the batch, rows, columns and depth."""
    batch, rows, columns, depth = shape
    tiles, splits = matrix_tiles(rows, columns, depth, limits, batch=batch, deep_step=True, max_splits=1)
    return MATRIX_TILES["lines", "lines", "whole", "fours"](
        out, addend, right.factors, left.halves, right.halves, left.factors, batch=batch, rows=rows, columns=columns,
        depth=depth, x_stride=rows * depth, weight_stride=columns * depth, addend_batch_stride=0, addend_row_stride=0,
        addend_column_stride=0, alpha=alpha, beta=0.0, low=float("-inf"), high=float("inf"), splits=splits,
        WHOLE_STEPS=depth % (tiles["BLOCKS_DEEP"] * tiles["MATRIX_DEPTH"]) == 0, **tiles,
    )  # fmt: skip
