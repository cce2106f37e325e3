"""4-bit linear, group-wise quantized (q4gsw): GEMV and GEMM of rows of floats or of int8 activations.

A weight byte holds two neighbours of the depth, each offset by 8; a scale belongs to a group of neighbours of a column.
The kernels dequantize the words as the file has them: few rows are bound by bandwidth, many rows by arithmetic.

Two more kinds are told by their shapes, which `lower/weight_patterns.py` gives them: scales [groups, 2, columns] have
below each row the minima that are added to the weights of its groups (asymmetric); a weight [columns, groups, group]
has signed bytes. The dtype of a weight tells whether its rows are quantized, not what its bytes are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from liveshape.errors import ShapeError
from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Product
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.composition import gated
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.operations import packed_weight
from liveshape.ops.q4_heuristics import (
    MIN_MATRIX_ROWS,
    QUANT_GROUP,
    few_rows_config,
    gemv_config,
    half_bytes,
    half_rows_together,
    half_weight_config,
    int8_gemv_config,
    is_few,
    is_gemv,
    is_large,
    matrix_sums_bound,
    matrix_tile_config,
    partial_sums_bound,
    split_k_of,
    staged_row_config,
    stages_row,
    takes_packed,
    tile_config,
)
from liveshape.ops.q4_kernels import SPLIT_K, STORE, Q4Epilogue
from liveshape.ops.q4_layer import LAYER, Norm, Q4Layer, Steps, Weight, q4_layer
from liveshape.ops.quantized_rows import (
    ASYMMETRIC_UINT8,
    NIBBLES_RANK,
    QUANTIZED_DTYPES,
    SYMMETRIC_INT8,
    WITH_MINIMA_RANK,
    can_quantize_rows,
    depth_of,
    quantize_rows,
    quantized_shape,
)
from liveshape.ops.registry import OPS, Tensors, op
from liveshape.ops.row_rules import row_wise, with_scales
from liveshape.ops.shapes import ceil_div

HALF_ROWS = Kernel.load("quantization/half_rows")
NORMED_HALF_ROWS = Kernel.load("quantization/half_rows", OF="rms_norm")
HALF_WEIGHT = Kernel.load("q4/half_weight")

ONE_GROUP = 1 << 30

MAX_STAGED_ROW = 8192  # bytes: it and the scratch to quantize it fit the workgroup memory of any device


@q4_layer("et_vk.linear_q4gsw.default", rows=row_wise("x"), normed=row_wise("x", "quantized"), product=LAYER)
def linear_q4gsw(layer: Q4Layer, out: LiveTensor) -> Steps:
    out.shape = layer.shape
    if (scales := layer.weights[0].scales).rank < 2:
        raise ShapeError(f"scales {scales.shape} must be [groups, columns]")
    yield from q4_product(layer, [(out,)])


@op("et_vk.linear_qcs4w.default", rows=row_wise("x"), product=Product(packed_weight, "x", "weight", linear=True))
def linear_qcs4w(x: LiveTensor, weight: LiveTensor, scales: LiveTensor, out: LiveTensor) -> Steps:
    """One scale per column, and the high nibble of a byte first."""
    out.shape = (*x.shape[:-1], weight.shape[0])
    yield from q4_product(Q4Layer(x, (Weight(weight, scales, x.shape[-1]),)), [(out,)], high_first=True)


@op(
    "et_vk.linear_dq8ca_q4gsw.default",
    rows=with_scales("x", "input_scale", "input_zero_point"),
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
    """Dynamically quantized activations, 8 bits per row, times the weight: int8 dot products, scaled by group."""
    if can_quantize_rows(x.max_shape[-1], group_size, weight, scales, ASYMMETRIC_UINT8):
        rows: LiveTensor = yield Scratch(ASYMMETRIC_UINT8, quantized_shape(x.max_shape))
        yield from quantize_rows(x, input_scale, input_zero_point, rows)
    else:
        rows = yield Scratch("float32", x.max_shape)
        yield from OPS["liveshape.fake_quantize_rows"].run(x, input_scale, input_zero_point, rows)
    yield from linear_q4gsw(Q4Layer(rows, (Weight(weight, scales, group_size),), bias), out)


def q4_product(
    layer: Q4Layer, outputs: Sequence[Tensors], epilogue: Q4Epilogue = STORE, *, high_first: bool = False
) -> Steps:
    """x @ weight.T + bias, of each weight: their columns are those of the epilogue, behind each other.

    The epilogue stores to what `outputs` has for each weight. Rows of x are floats, quantized by `quantize_rows`, or
    floats that are quantized here, if the dtype of the weight says so (`INT8_ACTIVATIONS`). With a norm, x is one row
    before its RMSNorm, or many where `rounds_normed` says so.
    """
    first = 0
    for weight, outs in zip(layer.weights, outputs, strict=True):
        of_weight = epilogue.of(FIRST_COLUMN=first) if epilogue.values else epilogue
        yield from _product(layer._replace(weights=(weight,)), outs, of_weight, first, high_first)
        first = first + weight.codes.shape[0]


def _product(own: Q4Layer, outs: Tensors, epilogue: Q4Epilogue, first_column: int, high_first: bool) -> Steps:
    """That of one weight."""
    x, ((weight, scales, group),), bias, norm = own
    quantizes = not high_first and own.quantizes()
    int8 = quantizes or x.dtype in QUANTIZED_DTYPES
    depth = x.shape[-1] if quantizes else depth_of(x.shape[-1], int8)
    quantized: LiveTensor | None = None
    if quantizes and norm is None:
        quantized = yield Scratch(SYMMETRIC_INT8, quantized_shape(x.max_shape))
    limits: Limits = yield GetLimits()
    max_rows, columns, rows = prod(x.max_shape[:-1]), weight.shape[0], prod(x.shape[:-1])
    room = partial_sums_bound(max_rows, columns, depth, int8, limits)
    halved: Tensors = ()
    if not int8 and (norm is None or rows >= MIN_MATRIX_ROWS) and own.weights[0].fits_matrices(x, limits):
        halved_x: LiveTensor = yield Scratch(SYMMETRIC_INT8, (half_bytes(max_rows, depth),))
        halved_weight: LiveTensor = yield Scratch(SYMMETRIC_INT8, (half_bytes(columns, depth),))
        factors: LiveTensor = yield Scratch("float32", (columns,))
        halved = (halved_x, halved_weight, factors)
        room = (max(*room, matrix_sums_bound(max_rows, columns, depth, limits)),)
    partial_sums: LiveTensor = yield Scratch("float32", room)
    layer = _layer(x, weight, scales, group, bias, depth, first_column, high_first)
    # An absent bias still needs a buffer in its place; the scales are there and only read.
    terms = bias if norm is None or norm.terms is None or halved else norm.terms
    operands = (weight, scales, scales if terms is None else terms)
    product = Q4Product(x, operands, outs, epilogue, norm, layer, limits)
    staged = MAX_STAGED_ROW // 2 if epilogue.quantized_units else MAX_STAGED_ROW
    if quantizes and is_gemv(rows, limits) and (norm is not None or x.max_shape[-1] <= staged):
        yield _int8_row(product, quantizes=True)
        return
    if quantized is not None:
        yield from quantize_rows(x, None, None, quantized)
        product = product._replace(x=quantized)
    if halved and rows >= MIN_MATRIX_ROWS:
        yield from _matrix_tiles(product, halved, partial_sums)
    elif is_few(rows, int8, limits):
        yield _few_rows(product, int8)
    else:
        yield from _tiles(product, partial_sums, int8)


def _layer(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group: int,
    bias: LiveTensor | None,
    depth: int,
    first_column: int,
    high_first: bool,
) -> dict[str, Any]:
    """The Params and constants of q4/layer.wgsl; kernels trust them: nothing else keeps them inside the tensors."""
    nibbles, minima = weight.rank == NIBBLES_RANK, scales.rank == WITH_MINIMA_RANK
    columns, column_bytes = weight.shape[0], prod(weight.shape[1:])
    scale_stride = 0 if high_first else prod(scales.shape[1:])
    if column_bytes * (2 if nibbles else 1) < depth:
        raise ShapeError(f"a weight of {weight.shape} bytes is too narrow for x {x.shape}")
    if not nibbles and x.dtype == ASYMMETRIC_UINT8:
        raise ShapeError(f"rows with a zero point need a weight of nibbles, {weight.shape} is of bytes")
    if group < 1 or depth % group:
        raise ShapeError(f"groups of {group} do not divide a depth of {depth}")
    groups = depth // group
    if minima and scales.shape[1] != 2:
        raise ShapeError(f"scales {scales.shape} with minima must be [groups, 2, columns]")
    width = scales.shape[-1] if minima else scale_stride
    needed = (groups - 1) * scale_stride + (width if minima else 0) + columns
    if scales.numel < needed or ((minima or groups > 1) and width < columns):
        raise ShapeError(f"scales {scales.shape} are too few for {groups} groups of {columns} columns")
    if bias is not None and bias.numel < first_column + columns:
        raise ShapeError(f"a bias of {bias.shape} is too short for {first_column + columns} columns")
    return {
        "rows": prod(x.shape[:-1]),
        "columns": columns,
        "depth": depth,
        "column_bytes": column_bytes,
        "weight_words": ceil_div(columns * column_bytes, 4),
        "scale_stride": scale_stride,
        "splits": 1,
        "norm_at": 0 if bias is None else bias.numel,
        "HIGH_FIRST": high_first,
        "SCALES_ALIGNED": high_first or scales.shape[-1] % 4 == 0,
        "BITS": 4 if nibbles else 8,
        "MINIMA": minima,
        "BIAS": bias is not None,
        # As large as can be where it is the depth, so that one variant of the kernel serves every depth.
        "GROUP": ONE_GROUP if group == depth else group,
    }


class Q4Product(NamedTuple):
    """What every kernel of a product binds, and its Params and constants."""

    x: LiveTensor
    operands: tuple[LiveTensor, LiveTensor, LiveTensor]  # the weight, its scales, its bias
    outs: Tensors
    epilogue: Q4Epilogue
    norm: Norm | None
    layer: dict[str, Any]
    limits: Limits

    def dispatch(self, name: str, **values: Any) -> Dispatch:
        kernels, _, given, gate = self.epilogue
        kernel = kernels[name] if gate is None else gated(kernels[name], gate)
        return kernel(self.x, *self.operands, *self.outs, **self.layer, **dict(given), **values)

    def one_row(self, name: str, **values: Any) -> Dispatch:
        """By the kernel of this name, or by that of a row before its RMSNorm."""
        if self.norm is None:
            return self.dispatch(name, **values)
        return self.dispatch(f"normed_{name}", **values, EPS=self.norm.eps)

    def in_splits(
        self, splits: int, partial_sums: LiveTensor, name: str, combining: Q4Product, **values: Any
    ) -> Iterator[Dispatch]:
        """By the kernel of this name; in split-K its partial sums, which then get the epilogue by `combining`."""
        ours = self._replace(layer=self.layer | {"splits": splits})
        if splits == 1:
            yield ours.dispatch(name, **values)
            return
        part = ours._replace(outs=(partial_sums,), epilogue=SPLIT_K)
        yield part.dispatch(name, **values)
        rows, columns, _ = self.sizes()
        combining = combining._replace(x=partial_sums, layer=combining.layer | {"splits": splits})
        yield combining.dispatch("combine_splits", threads=rows * ceil_div(columns, 4))

    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns and depth."""
        return self.layer["rows"], self.layer["columns"], self.layer["depth"]

    def loads(self, int8: bool) -> dict[str, Any]:
        """How kernels of quantized rows or of floats load both operands."""
        if int8:
            return {"ASYMMETRIC": self.x.dtype == ASYMMETRIC_UINT8}
        depth, column_bytes = self.layer["depth"], self.layer["column_bytes"]
        return {
            "COLUMN_ALIGNED": column_bytes % 4 == 0,
            "DEPTH_ALIGNED": depth % 8 == 0,
            "VEC": 4 if depth % 4 == 0 else 1,
        }


def _int8_row(product: Q4Product, quantizes: bool) -> Dispatch:
    """One quantized row, or one that every workgroup quantizes itself: a dispatch for that would take longer."""
    config = int8_gemv_config(product.layer, product.epilogue.quantized_units, product.limits)
    if quantizes:
        return product.one_row("quantizing_gemv", **config, DEPTH_GROUPS=product.x.max_shape[-1] // QUANT_GROUP)
    return product.one_row("int8_gemv", **product.loads(int8=True), **config)


def _few_rows(product: Q4Product, int8: bool) -> Dispatch:
    """Up to FEW_ROWS rows of floats or FEW_INT8_ROWS quantized ones, bound by the bandwidth of the weight."""
    rows, columns, depth = product.sizes()
    limits, loads = product.limits, product.loads(int8)
    if not is_gemv(rows, limits):
        config = few_rows_config(
            rows, columns, depth, product.layer["GROUP"], int8, product.epilogue.quantized_units > 0
        )
        return product.dispatch("int8_few_rows" if int8 else "few_rows", **loads, **config)
    if int8:
        return _int8_row(product, quantizes=False)
    config = gemv_config(product.layer, limits)
    if product.norm is None and not stages_row(config, depth, limits):
        return product.dispatch("gemv", **loads, **config)
    return product.one_row("staged_gemv", **loads, **config, **staged_row_config(config, depth, limits))


def _tiles(product: Q4Product, partial_sums: LiveTensor, int8: bool) -> Iterator[Dispatch]:
    """GEMM of many rows, bound by arithmetic: in tiles, with split-K where they are too few to fill a device."""
    rows, columns, depth = product.sizes()
    layer, limits = product.layer, product.limits
    large = is_large(rows, depth, layer["GROUP"], limits)
    name = "int8_tiles" if int8 else "tiles"
    tiles = tile_config(rows, columns, layer["GROUP"], int8, large, limits)
    splits = split_k_of(rows, columns, depth, int8, limits)
    tiles["groups"] = tiles["groups"] * splits
    yield from product.in_splits(splits, partial_sums, name, product, **product.loads(int8), **tiles)


# Of a layer whose weight is unpacked: whatever it was packed as, one variant serves it.
_UNPACKED = {"BITS": 8, "MINIMA": False, "HIGH_FIRST": False, "SCALES_ALIGNED": True, "GROUP": QUANT_GROUP}


def _matrix_tiles(product: Q4Product, halved: Tensors, partial_sums: LiveTensor) -> Iterator[Dispatch]:
    """GEMM by matrix units, of rows as halves: tiles of a weight that becomes halves, too, or unpacked by each tile of
    few rows; with split-K where tiles are few.

    `halved` is scratch for both factors as halves, and for what columns of the weight were divided by.
    """
    half_x, half_weight, factors = halved
    rows, columns, depth = product.sizes()
    weight, scales, bias = product.operands
    layer = product.layer
    packed = takes_packed(rows, depth, layer["GROUP"], layer["BITS"], product.limits)
    yield _half_rows(product, half_x)
    ours = product._replace(x=half_x)
    if not packed:
        unpacked = {name: value for name, value in layer.items() if name not in ("rows", "splits", "norm_at", "BIAS")}
        yield HALF_WEIGHT(half_weight, factors, weight, scales, **unpacked, **half_weight_config(columns, depth))
        ours = ours._replace(operands=(half_weight, factors, bias), layer=layer | _UNPACKED)
    tiles, splits = matrix_tile_config(rows, columns, depth, packed, product.limits)
    yield from ours.in_splits(splits, partial_sums, "matrix_tiles", product, **tiles)


def _half_rows(product: Q4Product, out: LiveTensor) -> Dispatch:
    """Rows as halves, or their RMSNorm."""
    rows, _, depth = product.sizes()
    together = half_rows_together(rows)
    sizes = {"rows": rows, "depth": depth, "ROWS": together, "groups": ceil_div(rows, together)}
    norm = product.norm
    if norm is None or norm.weight is None:
        return HALF_ROWS(out, product.x, **sizes)
    return NORMED_HALF_ROWS(out, product.x, norm.weight, **sizes, eps=norm.eps)
