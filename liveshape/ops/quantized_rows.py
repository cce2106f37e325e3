"""Activations of 4- and 8-bit layers, quantized row by row to 8 bits, in the order of the weights that they meet.

A scale for every 32 neighbours (int8), or a scale and a zero point for a row (uint8), as a file asks for.
"""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.errors import ShapeError
from liveshape.graph import Shape, Tensor
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.pointwise import Build, Term
from liveshape.ops.q4_heuristics import QUANT_GROUP
from liveshape.ops.quantizing import RANGES, by_blocks, tokens, values_of
from liveshape.ops.registry import op
from liveshape.ops.row_rules import with_scales

QUANTIZE_ROWS = Kernel.load("quantization/quantize_rows")
QUANTIZE_ROWS_GIVEN = Kernel.load("quantization/quantize_rows", STEPS="given_steps")

NIBBLES_RANK = 2  # of a weight; one more, and it is bytes by groups
WITH_MINIMA_RANK = 3  # of scales

# Dtypes of quantized rows: a scale for 32 neighbours, or a scale and a zero point for a row.
QUANTIZED_DTYPES = SYMMETRIC_INT8, ASYMMETRIC_UINT8 = ("int8", "uint8")
INT8_ACTIVATIONS, FLOAT_ACTIVATIONS = "int8", "uint8"  # the dtype of a weight whose layer quantizes its rows, or not
QUANT_GROUP_VECTORS = 3  # of 16 bytes, for 32 neighbours: see quantization/quantize_group.wgsl


@by_blocks("liveshape.fake_quantize_rows", rows=with_scales("x", "scale", "zero_point"), cheap_to_keep=True)
def fake_quantize_rows(e: Build, x: LiveTensor, scale: LiveTensor, zero_point: LiveTensor) -> Term:
    """Quantize and dequantize: floats that 8 bits can hold, for layers that cannot take quantized rows.

    A value that is no number has no place in the range: it comes through as it is.
    """
    rows, factor, zero = tokens(x).operands(x, scale, zero_point)
    steps = e.exact("round", e.exact("mul", rows, e.exact("reciprocal", factor)))
    codes = e.exact("clamp", e.exact("add", steps, zero), *RANGES["int8"])
    return values_of(e, codes, factor, zero)


@op("liveshape.quantize_rows", rows=with_scales("x", "scale", "zero_point"), cheap_to_keep=True)
def quantize_rows(
    x: LiveTensor, scale: LiveTensor | None, zero_point: LiveTensor | None, out: LiveTensor
) -> Iterator[Dispatch]:
    """Quantized rows of x, in the order of 4-bit weights: see quantization/quantize_group.wgsl.

    With a scale and a zero point per row (`out` is uint8), or with a scale for every 32 neighbours (int8).
    """
    groups = x.shape[-1] // QUANT_GROUP
    count = prod(x.shape[:-1]) * groups
    out.shape = quantized_shape(x.shape)
    if scale is None or zero_point is None:
        yield QUANTIZE_ROWS(out, x, count=count, per_row=groups, threads=count)
    else:
        _check_scales(prod(x.shape[:-1]), scale, zero_point)
        yield QUANTIZE_ROWS_GIVEN(out, x, scale, zero_point, count=count, per_row=groups, threads=count)


def can_quantize_rows(
    depth: int, group: int, weight: Tensor | LiveTensor, scales: Tensor | LiveTensor, dtype: str = SYMMETRIC_INT8
) -> bool:
    """Whether a layer can take rows quantized so: no padding, and groups that align with those of the rows.

    Bytes may have two groups to one of the rows; not so with minima, nor nibbles, which need its sum for their offset.
    They take no zero points.
    """
    nibbles = weight.rank == NIBBLES_RANK
    halves = group == QUANT_GROUP // 2 and not nibbles and scales.rank != WITH_MINIMA_RANK
    aligned = depth % QUANT_GROUP == 0 and (group % QUANT_GROUP == 0 or halves)
    whole = depth == prod(weight.max_shape[1:]) * (2 if nibbles else 1) > 0
    return whole and aligned and (nibbles or dtype == SYMMETRIC_INT8)


def quantizes_rows(x: LiveTensor, weight: LiveTensor, scales: LiveTensor, group: int) -> bool:
    """Whether a layer quantizes rows of floats."""
    wanted = x.dtype not in QUANTIZED_DTYPES and weight.dtype == INT8_ACTIVATIONS
    return wanted and can_quantize_rows(x.max_shape[-1], group, weight, scales)


def quantized_shape(shape: Shape) -> Shape:
    """The shape of rows of this shape when they are quantized."""
    return (*shape[:-1], shape[-1] // QUANT_GROUP * QUANT_GROUP_VECTORS * 16)


def _check_scales(rows: int, scale: LiveTensor, zero_point: LiveTensor) -> None:
    if min(scale.numel, zero_point.numel) < rows:
        raise ShapeError(f"{rows} rows need as many scales and zero points, {scale.shape} were given")


def depth_of(width: int, int8: bool) -> int:
    """The depth of rows that are `width` wide.

    >>> depth_of(96, int8=True), depth_of(96, int8=False)
    (64, 96)
    """
    return width // (QUANT_GROUP_VECTORS * 16) * QUANT_GROUP if int8 else width
