"""Linear layers with 4-bit weights, of rows of floats or quantized rows.

A weight byte holds two neighbours of the depth, each offset by 8; a scale belongs to a group of neighbours of a column.
The kernels read the words as the file has them: few rows are bound by that reading, many rows by arithmetic.

Two more kinds are told by their shapes, which `lower/weight_patterns.py` gives them: scales [groups, 2, columns] have
below each row the minima that are added to the weights of its groups; a weight [columns, groups, group] is bytes with a
sign.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from liveshape.errors import ShapeError
from liveshape.graph import Limits, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Product
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.operations import packed_weight
from liveshape.ops.q4_kernels import SPLIT_K, STORE, Q4Kernels
from liveshape.ops.quantized_ways import (
    MANY_THREADS,
    STEP_PLACES,
    int8_tiles_of,
    is_few,
    is_large,
    large_tiles_of,
    partial_sums_bound,
    shares_of_int8_row,
    shares_of_int8_rows,
    shares_of_row,
    shares_of_rows,
    splits_of,
    tiles_of,
)
from liveshape.ops.registry import Tensors, op
from liveshape.ops.row_rules import row_wise, with_steps
from liveshape.ops.shapes import ceil_div


class Norm(NamedTuple):
    """The RMSNorm of a row; `terms` are the bias of the layer, if it has one, and then the weight of the norm.

    None where the row was quantized with that weight, and only the RMSNorm scale is still to be applied.
    """

    terms: LiveTensor | None
    eps: float


FAKE_QUANTIZE_ROWS = Kernel.load("quantization/fake_quantize_rows")
QUANTIZE_ROWS = Kernel.load("quantization/quantize_rows")
QUANTIZE_ROWS_GIVEN = Kernel.load("quantization/quantize_rows", STEPS="given_steps")

ONE_GROUP = 1 << 30
NIBBLES_RANK = 2  # of a weight; one more, and it is bytes by groups
WITH_MINIMA_RANK = 3  # of scales

BYTES = ("int8", "uint8")  # dtypes of quantized rows: a step for 32 neighbours, or one and a zero point for a row
FOR_BYTES = "int8"  # the dtype of a weight whose rows are quantized; else it is that of a file, uint8
STEP_VECTORS = 3  # of 16 bytes, that 32 neighbours become: see quantization/quantize_group.wgsl
KEPT_BYTES = 8192  # of a row: it and the scratch to quantize it fit in the workgroup memory of any device

Steps = Generator[Dispatch | Scratch | GetLimits, Any, None]

# A layer of 4-bit weights whose rows may be quantized; one of several layers or with more than a layer in it; its norm.
LAYER = Product(packed_weight, "x", "weight", linear=True, byte_rows=True)
FUSED_LAYER = replace(LAYER, linear=False)
NORMED_LAYER = replace(FUSED_LAYER, normed=True)


@op(
    "et_vk.linear_q4gsw.default",
    rows=row_wise("x"),
    product=LAYER,
)
def linear_q4gsw(
    x: LiveTensor, weight: LiveTensor, scales: LiveTensor, group_size: int, bias: LiveTensor | None, out: LiveTensor
) -> Steps:
    out.shape = (*x.shape[:-1], weight.shape[0])
    if scales.rank < 2:
        raise ShapeError(f"scales {scales.shape} must be [groups, columns]")
    yield from q4_product(x, weight, scales, group_size, bias, (out,))


@op("et_vk.linear_qcs4w.default", rows=row_wise("x"), product=Product(packed_weight, "x", "weight", linear=True))
def linear_qcs4w(x: LiveTensor, weight: LiveTensor, scales: LiveTensor, out: LiveTensor) -> Steps:
    """One scale per column, and the nibbles of a byte the other way round."""
    out.shape = (*x.shape[:-1], weight.shape[0])
    yield from q4_product(x, weight, scales, x.shape[-1], None, (out,), high_first=True)


@op(
    "et_vk.linear_dq8ca_q4gsw.default",
    rows=with_steps("x", "input_scale", "input_zero_point"),
    product=LAYER,
)
def linear_dq8ca_q4gsw(
    x: LiveTensor,
    input_scale: LiveTensor,
    input_zero_point: LiveTensor,
    weight: LiveTensor,
    weight_sums: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> Steps:
    """The rows of x as eight bits can hold them, times the weight: products of integers, and sums of their groups."""
    if not can_quantize_rows(x.max_shape[-1], group_size, weight.max_shape):
        rounded: LiveTensor = yield Scratch("float32", x.max_shape)
        yield from rounded_rows(x, input_scale, input_zero_point, rounded)
        yield from linear_q4gsw(rounded, weight, scales, group_size, bias, out)
        return
    quantized: LiveTensor = yield Scratch(BYTES[1], quantized_shape(x.max_shape))
    yield from row_bytes(x, input_scale, input_zero_point, quantized)
    yield from linear_q4gsw(quantized, weight, scales, group_size, bias, out)


@op("liveshape.rounded_rows", rows=with_steps("x", "scale", "zero_point"), cheap_to_keep=True)
def rounded_rows(x: LiveTensor, scale: LiveTensor, zero_point: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    """The rows of x as eight bits can hold them."""
    *lead, depth = x.shape
    rows = prod(lead)
    _check_steps(rows, scale, zero_point)
    out.shape = x.shape
    yield FAKE_QUANTIZE_ROWS(out, x, scale, zero_point, count=rows * depth, width=depth, threads=rows * depth)


@op("liveshape.row_bytes", rows=with_steps("x", "scale", "zero_point"), cheap_to_keep=True)
def row_bytes(
    x: LiveTensor, scale: LiveTensor | None, zero_point: LiveTensor | None, out: LiveTensor
) -> Iterator[Dispatch]:
    """The rows of x as integers, in the order in which 4-bit weights want them: see quantization/quantize_group.wgsl.

    With a step and a zero point per row (`out` is uint8), or with a step for every 32 neighbours (int8).
    """
    groups = x.shape[-1] // STEP_PLACES
    count = prod(x.shape[:-1]) * groups
    out.shape = quantized_shape(x.shape)
    if scale is None or zero_point is None:
        yield QUANTIZE_ROWS(out, x, count=count, per_row=groups, threads=count)
    else:
        _check_steps(prod(x.shape[:-1]), scale, zero_point)
        yield QUANTIZE_ROWS_GIVEN(out, x, scale, zero_point, count=count, per_row=groups, threads=count)


def can_quantize_rows(depth: int, group: int, weight: Shape) -> bool:
    """Whether a layer can take quantized rows: scales are for whole vectors of nibbles, and no padding."""
    whole = depth % STEP_PLACES == 0 and group % STEP_PLACES == 0
    return len(weight) == NIBBLES_RANK and depth == weight[-1] * 2 > 0 and whole


def rounds(x: LiveTensor, weight: LiveTensor, group: int) -> bool:
    """Whether a layer quantizes rows of floats."""
    known = x.dtype not in BYTES and weight.dtype == FOR_BYTES
    return known and can_quantize_rows(x.max_shape[-1], group, weight.max_shape)


def quantized_shape(shape: Shape) -> Shape:
    """The shape of rows of this shape when they are quantized."""
    return (*shape[:-1], shape[-1] // STEP_PLACES * STEP_VECTORS * 16)


def _check_steps(rows: int, scale: LiveTensor, zero_point: LiveTensor) -> None:
    if min(scale.numel, zero_point.numel) < rows:
        raise ShapeError(f"{rows} rows need as many scales and zero points, {scale.shape} were given")


def q4_product(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group: int,
    bias: LiveTensor | None,
    outs: Tensors,
    kernels: Q4Kernels = STORE,
    norm: Norm | None = None,
    *,
    high_first: bool = False,
    together: int = 0,
    **epilogue: Any,
) -> Steps:
    """x @ weight.T + bias.

    The epilogue of the kernels says what becomes of the sums in `outs`, by the values that it takes. Rows of x are
    floats, quantized as `row_bytes` leaves them, or floats that are quantized here, if the weight is for such
    (`FOR_BYTES`). With a `norm`, x is one row before it. So many units are quantized `together`, in one workgroup.
    """
    quantizes = not high_first and rounds(x, weight, group)
    int8 = quantizes or x.dtype in BYTES
    depth = x.shape[-1] if quantizes else _depth(x.shape[-1], int8)
    quantized: LiveTensor | None = None
    if quantizes and norm is None:
        quantized = yield Scratch(BYTES[0], quantized_shape(x.max_shape))
    limits: Limits = yield GetLimits()
    room = partial_sums_bound(prod(x.max_shape[:-1]), weight.shape[0], depth, int8, limits)
    partial_sums: LiveTensor = yield Scratch("float32", room)
    scale_stride = 0 if high_first else prod(scales.shape[1:])
    _check(depth, x, weight, scales, group, scale_stride, bias)
    rows = prod(x.shape[:-1])
    layer = _layer(weight, scales, bias, rows, depth, group, scale_stride, high_first)
    # An absent bias still needs a buffer in its place; the scales are there and only read.
    terms = bias if norm is None or norm.terms is None else norm.terms
    operands = (weight, scales, scales if terms is None else terms)
    product = Q4Product(x, operands, outs, kernels, norm, layer, epilogue, together, limits)
    kept = KEPT_BYTES // 2 if together else KEPT_BYTES
    if quantizes and rows == 1 and (norm is not None or x.max_shape[-1] <= kept):
        yield _quantizing_gemv(product)
        return
    if quantized is not None:
        yield from row_bytes(x, None, None, quantized)
        product = product._replace(x=quantized)
    if is_few(rows, int8, limits):
        yield _int8_few_rows(product) if int8 else _few_rows(product)
    else:
        yield from _tiles(product, partial_sums, int8)


def _layer(
    weight: LiveTensor,
    scales: LiveTensor,
    bias: LiveTensor | None,
    rows: int,
    depth: int,
    group: int,
    scale_stride: int,
    high_first: bool,
) -> dict[str, Any]:
    """The Params and constants of q4/layer.wgsl."""
    columns, column_bytes = weight.shape[0], prod(weight.shape[1:])
    return {
        "rows": rows,
        "columns": columns,
        "depth": depth,
        "column_bytes": column_bytes,
        "weight_words": ceil_div(columns * column_bytes, 4),
        "scale_stride": scale_stride,
        "splits": 1,
        "HIGH_FIRST": high_first,
        "SCALE_FOURS": high_first or scales.shape[-1] % 4 == 0,
        "BITS": 4 if weight.rank == NIBBLES_RANK else 8,
        "MINIMA": scales.rank == WITH_MINIMA_RANK,
        "BIAS": bias is not None,
        # As large as can be where it is the depth, so that it is one variant of the kernel for every depth.
        "GROUP": ONE_GROUP if group == depth else group,
    }


class Q4Product(NamedTuple):
    """What every route of a product binds and tells its kernel."""

    x: LiveTensor
    operands: tuple[LiveTensor, LiveTensor, LiveTensor]  # the weight, its scales, its bias
    outs: Tensors
    kernels: Q4Kernels
    norm: Norm | None
    layer: dict[str, Any]
    epilogue: dict[str, Any]
    together: int
    limits: Limits

    def dispatch(self, kernel: Kernel, **values: Any) -> Dispatch:
        return kernel(self.x, *self.operands, *self.outs, **self.layer, **self.epilogue, **values)

    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns and depth."""
        return self.layer["rows"], self.layer["columns"], self.layer["depth"]

    def float_factors(self) -> dict[str, Any]:
        """How kernels of rows of floats read both factors."""
        depth, column_bytes = self.layer["depth"], self.layer["column_bytes"]
        return {"ALIGNED": column_bytes % 4 == 0, "WHOLE": depth % 8 == 0, "VEC": 4 if depth % 4 == 0 else 1}

    def int8_factors(self) -> dict[str, Any]:
        return {"ASYMMETRIC": self.x.dtype == BYTES[1]}


def _quantizing_gemv(product: Q4Product) -> Dispatch:
    """One row of floats, quantized by every workgroup: a dispatch for that would take longer."""
    _, columns, depth = product.sizes()
    shares = shares_of_int8_row(columns, depth, product.together, product.limits)
    shares["HELD"] = product.x.max_shape[-1] // STEP_PLACES
    if product.norm is None:
        return product.dispatch(product.kernels.quantizing_gemv, **shares)
    return product.dispatch(product.kernels.normed_quantizing_gemv, **shares, EPS=product.norm.eps)


def _int8_few_rows(product: Q4Product) -> Dispatch:
    """Up to FEW_INT8_ROWS quantized rows, bound by reading the weight."""
    rows, columns, depth = product.sizes()
    factors = product.int8_factors()
    if rows != 1:
        shares = shares_of_int8_rows(rows, columns, depth, product.together > 0)
        return product.dispatch(product.kernels.int8_few_rows, **factors, **shares)
    shares = shares_of_int8_row(columns, depth, product.together, product.limits)
    if product.norm is None:
        return product.dispatch(product.kernels.int8_gemv, **factors, **shares)
    return product.dispatch(product.kernels.normed_int8_gemv, **factors, **shares, EPS=product.norm.eps)


def _few_rows(product: Q4Product) -> Dispatch:
    """Up to FEW_ROWS rows of floats, bound by reading the weight."""
    rows, columns, depth = product.sizes()
    layer, factors = product.layer, product.float_factors()
    if rows != 1:
        shares = shares_of_rows(rows, columns, depth, layer["GROUP"])
        return product.dispatch(product.kernels.few_rows, **factors, **shares)
    # Neighbours are read in vectors, and their scales once; where threads are many, words were measured.
    many = product.limits.max_cooperating_threads >= MANY_THREADS
    vectors = layer["column_bytes"] % 16 == 0 and (layer["BITS"] == 8 or layer["MINIMA"] or not many)
    shares = shares_of_row(columns, depth, layer["GROUP"], vectors)
    if product.norm is None:
        return product.dispatch(product.kernels.gemv, **factors, **shares)
    return product.dispatch(product.kernels.normed_gemv, **factors, **shares, KEPT=depth // 4, EPS=product.norm.eps)


def _tiles(product: Q4Product, partial_sums: LiveTensor, int8: bool) -> Iterator[Dispatch]:
    """Many rows, bound by arithmetic: in tiles, which split the depth (split-K) where they are too few for a device."""
    rows, columns, depth = product.sizes()
    layer, kernels, limits = product.layer, product.kernels, product.limits
    factors = product.int8_factors() if int8 else product.float_factors()
    # Large tiles of integers have no minima.
    if is_large(rows, depth, layer["GROUP"], limits) and not (int8 and layer["MINIMA"]):
        tiles = large_tiles_of(rows, columns)
        whole, split = (each.int8_large_tiles if int8 else each.large_tiles for each in (kernels, SPLIT_K))
    else:
        tiles = int8_tiles_of(rows, columns) if int8 else tiles_of(rows, columns, layer["GROUP"])
        whole, split = (each.int8_tiles if int8 else each.tiles for each in (kernels, SPLIT_K))
    splits = splits_of(rows, columns, depth, int8, limits)
    if splits == 1:
        yield product.dispatch(whole, **factors, **tiles)
        return
    layer["splits"] = splits
    tiles["groups"] = tiles["groups"] * splits
    yield product._replace(outs=(partial_sums,), epilogue={}).dispatch(split, **factors, **tiles)
    yield product._replace(x=partial_sums).dispatch(kernels.combine_splits, threads=rows * ceil_div(columns, 4))


def _depth(width: int, int8: bool) -> int:
    """The depth of rows that are `width` wide."""
    return width // (STEP_VECTORS * 16) * STEP_PLACES if int8 else width


def _check(
    depth: int,
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group: int,
    scale_stride: int,
    bias: LiveTensor | None,
) -> None:
    """The kernels trust these sizes: nothing else keeps them inside the tensors."""
    nibbles, minima = weight.rank == NIBBLES_RANK, scales.rank == WITH_MINIMA_RANK
    columns, column_bytes = weight.shape[0], prod(weight.shape[1:])
    if column_bytes * (2 if nibbles else 1) < depth:
        raise ShapeError(f"a weight of {weight.shape} bytes is too narrow for x {x.shape}")
    if not nibbles and x.dtype in BYTES:
        raise ShapeError(f"rows of bytes need a weight of nibbles, {weight.shape} is of bytes")
    if group < 1 or depth % group:
        raise ShapeError(f"groups of {group} do not divide a depth of {depth}")
    groups = depth // group
    if minima and scales.shape[1] != 2:
        raise ShapeError(f"scales {scales.shape} with minima must be [groups, 2, columns]")
    width = scales.shape[-1] if minima else scale_stride
    needed = (groups - 1) * scale_stride + (width if minima else 0) + columns
    if scales.numel < needed or ((minima or groups > 1) and width < columns):
        raise ShapeError(f"scales {scales.shape} are too few for {groups} groups of {columns} columns")
    if bias is not None and bias.numel < columns:
        raise ShapeError(f"a bias of {bias.shape} is too short for {columns} columns")
