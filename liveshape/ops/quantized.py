"""Linear layers with 4-bit weights, of rows of numbers or of bytes.

A weight byte holds two neighbours of the depth, each offset by 8; a scale belongs to a group of neighbours of a column.
The kernels read the words as the file has them: few rows are bound by that reading, many rows by arithmetic.

Two more kinds are told by their shapes, which `lower/weight_patterns.py` gives them: scales [groups, 2, columns] have
below each row the minima that are added to the weights of its groups; a weight [columns, groups, group] is bytes with a
sign.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from liveshape.errors import ShapeError
from liveshape.graph import Limits, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Allowed, Scratch
from liveshape.ops.quantized_ways import (
    BYTES_TOGETHER,
    MANY_THREADS,
    byte_tiles_of,
    is_few,
    is_large,
    large_tiles_of,
    partial_sums_bound,
    shares_of_byte_row,
    shares_of_byte_rows,
    shares_of_row,
    shares_of_rows,
    splits_of,
    tiles_of,
)
from liveshape.ops.registry import Tensors, op
from liveshape.ops.shapes import ceil_div


class Q4Kernels(NamedTuple):
    """The kernels that put their sums in one way: of rows of numbers and of bytes, of one, of few and of many."""

    row: Kernel
    rows: Kernel
    blocks: Kernel
    combine: Kernel  # of blocks that share the depth
    normed: Kernel  # of one row, by its norm
    byte_row: Kernel  # of one row of numbers that become bytes
    byte_row_normed: Kernel
    byte_rows: Kernel
    byte_blocks: Kernel
    tiles: Kernel  # of very many
    byte_tiles: Kernel
    one_byte_row: Kernel  # of one row that is bytes already
    one_byte_row_normed: Kernel  # and waits for the factor of its norm

    @classmethod
    def ending(cls, epilogue: str, numbers: Q4Kernels | None = None) -> Q4Kernels:
        """The kernels with this epilogue: see q4/epilogue.wgsl.

        Those of `numbers` are for rows of numbers, where only sums of bytes end this way.
        """

        def load(name: str, **choices: str) -> Kernel:
            return Kernel.load(name, EPILOGUE=epilogue, **choices)

        return cls(
            numbers.row if numbers else load("q4/gemv"),
            numbers.rows if numbers else load("q4/few_rows"),
            numbers.blocks if numbers else load("q4/tiles"),
            load("q4/combine_splits"),
            numbers.normed if numbers else load("q4/gemv", NORM="rms"),
            load("q4/quantizing_gemv"),
            load("q4/quantizing_gemv", NORM="rms"),
            load("q4/int8_few_rows"),
            load("q4/int8_tiles"),
            numbers.tiles if numbers else load("q4/large_tiles"),
            numbers.byte_tiles if numbers else load("q4/int8_large_tiles"),
            load("q4/int8_gemv"),
            load("q4/int8_gemv", TOTAL="sums_and_squares"),
        )


class Norm(NamedTuple):
    """The RMS norm of a row; `terms` are the bias of the layer, if it has one, and then the weight of the norm.

    None where the row is bytes, with the weight in them, which wait for their factor.
    """

    terms: LiveTensor | None
    eps: float


ONE_LAYER = Q4Kernels.ending("store")
ROUNDED_ROWS = Kernel.load("quantization/fake_quantize_rows")
SPLIT_K = Q4Kernels.ending("split_k")
ROW_BYTES = Kernel.load("quantization/quantize_rows")
ROW_BYTES_GIVEN = Kernel.load("quantization/quantize_rows", STEPS="of_rows")

ONE_GROUP = 1 << 30
NIBBLES_RANK = 2  # of a weight; one more, and it is bytes by groups
WITH_MINIMA_RANK = 3  # of scales

BYTES = ("int8", "uint8")  # dtypes of rows as bytes: with a step for 32 neighbours, or one and a zero point for a row
FOR_BYTES = "int8"  # the dtype of a weight that rows of bytes are for; else it is that of a file, uint8
BYTE_VECTORS = 3  # of 16 bytes, that 32 neighbours become: see quantization/quantize_group.wgsl
KEPT_BYTES = 8192  # of a row, that a workgroup of any device can keep with what it needs to make them

Steps = Generator[Dispatch | Scratch | Allowed, Any, None]


@op("et_vk.linear_q4gsw.default")
def linear_q4gsw(
    x: LiveTensor, weight: LiveTensor, scales: LiveTensor, group_size: int, bias: LiveTensor | None, out: LiveTensor
) -> Steps:
    out.shape = (*x.shape[:-1], weight.shape[0])
    if scales.rank < 2:
        raise ShapeError(f"scales {scales.shape} must be [groups, columns]")
    yield from q4_product(x, weight, scales, group_size, bias, (out,))


@op("et_vk.linear_qcs4w.default")
def linear_qcs4w(x: LiveTensor, weight: LiveTensor, scales: LiveTensor, out: LiveTensor) -> Steps:
    """One scale per column, and the nibbles of a byte the other way round."""
    out.shape = (*x.shape[:-1], weight.shape[0])
    yield from q4_product(x, weight, scales, x.shape[-1], None, (out,), high_first=True)


@op("et_vk.linear_dq8ca_q4gsw.default")
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
    if not takes_bytes(x.max_shape[-1], group_size, weight.max_shape):
        rounded: LiveTensor = yield Scratch("float32", x.max_shape)
        yield from rounded_rows(x, input_scale, input_zero_point, rounded)
        yield from linear_q4gsw(rounded, weight, scales, group_size, bias, out)
        return
    in_bytes: LiveTensor = yield Scratch(BYTES[1], bytes_shape(x.max_shape))
    yield from row_bytes(x, input_scale, input_zero_point, in_bytes)
    yield from linear_q4gsw(in_bytes, weight, scales, group_size, bias, out)


@op("liveshape.rounded_rows")
def rounded_rows(x: LiveTensor, scale: LiveTensor, zero_point: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    """The rows of x as eight bits can hold them."""
    *lead, depth = x.shape
    rows = prod(lead)
    _check_steps(rows, scale, zero_point)
    out.shape = x.shape
    yield ROUNDED_ROWS(out, x, scale, zero_point, count=rows * depth, width=depth, threads=rows * depth)


@op("liveshape.row_bytes")
def row_bytes(
    x: LiveTensor, scale: LiveTensor | None, zero_point: LiveTensor | None, out: LiveTensor
) -> Iterator[Dispatch]:
    """The rows of x as integers, in the order in which 4-bit weights want them: see quantization/quantize_group.wgsl.

    With a step and a zero point per row (`out` is uint8), or with a step for every 32 neighbours (int8).
    """
    groups = x.shape[-1] // BYTES_TOGETHER
    count = prod(x.shape[:-1]) * groups
    out.shape = bytes_shape(x.shape)
    if scale is None or zero_point is None:
        yield ROW_BYTES(out, x, count=count, per_row=groups, threads=count)
    else:
        _check_steps(prod(x.shape[:-1]), scale, zero_point)
        yield ROW_BYTES_GIVEN(out, x, scale, zero_point, count=count, per_row=groups, threads=count)


def takes_bytes(depth: int, group: int, weight: Shape) -> bool:
    """Whether a layer has a road for rows of bytes: scales are for whole vectors of nibbles, and no padding."""
    whole = depth % BYTES_TOGETHER == 0 and group % BYTES_TOGETHER == 0
    return len(weight) == NIBBLES_RANK and depth == weight[-1] * 2 > 0 and whole


def rounds(x: LiveTensor, weight: LiveTensor, group: int) -> bool:
    """Whether a layer makes rows of numbers bytes."""
    known = x.dtype not in BYTES and weight.dtype == FOR_BYTES
    return known and takes_bytes(x.max_shape[-1], group, weight.max_shape)


def bytes_shape(shape: Shape) -> Shape:
    """The shape of rows of this shape as bytes."""
    return (*shape[:-1], shape[-1] // BYTES_TOGETHER * BYTE_VECTORS * 16)


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
    kernels: Q4Kernels = ONE_LAYER,
    norm: Norm | None = None,
    *,
    high_first: bool = False,
    together: int = 0,
    **put: Any,
) -> Steps:
    """x @ weight.T + bias.

    The kernels say what becomes of the sums in `outs`; `put` are values of that. Rows of x are numbers, bytes as
    `row_bytes` leaves them, or numbers that become bytes here, if the weight is for such (`FOR_BYTES`). With a `norm`,
    x is one row before it. So many units are put in bytes `together`, and lie in a workgroup.
    """
    rounding = not high_first and rounds(x, weight, group)
    in_bytes = rounding or x.dtype in BYTES
    columns, column_bytes = weight.shape[0], prod(weight.shape[1:])
    scale_stride = 0 if high_first else prod(scales.shape[1:])
    depth = x.shape[-1] if rounding else _depth(x.shape[-1], in_bytes)
    rounded: LiveTensor | None = None
    if rounding and norm is None:
        rounded = yield Scratch(BYTES[0], bytes_shape(x.max_shape))
    limits: Limits = yield Allowed()
    room = partial_sums_bound(prod(x.max_shape[:-1]), columns, depth, in_bytes, limits)
    partial_sums: LiveTensor = yield Scratch("float32", room)
    _check(depth, x, weight, scales, group, scale_stride, bias)
    rows = prod(x.shape[:-1])
    layer: dict[str, Any] = {
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
    # An absent bias still needs a buffer in its place; the scales are there and only read.
    operands = (weight, scales, scales if bias is None else bias)
    if norm is not None and norm.terms is not None:
        operands = (weight, scales, norm.terms)
    kept = KEPT_BYTES // 2 if together else KEPT_BYTES
    if rounding and rows == 1 and (norm is not None or x.max_shape[-1] <= kept):
        shares = shares_of_byte_row(columns, depth, together, limits) | {"HELD": x.max_shape[-1] // BYTES_TOGETHER}
        if norm is None:
            yield kernels.byte_row(x, *operands, *outs, **layer, **shares, **put)
        else:
            yield kernels.byte_row_normed(x, *operands, *outs, **layer, **shares, **put, EPS=norm.eps)
        return
    if rounded is not None:
        yield from row_bytes(x, None, None, rounded)
        x = rounded
    factors: dict[str, Any]
    if in_bytes:
        factors = {"ASYMMETRIC": x.dtype == BYTES[1]}
        few, many, split = kernels.byte_rows, kernels.byte_blocks, SPLIT_K.byte_blocks
    else:
        factors = {"ALIGNED": column_bytes % 4 == 0, "WHOLE": depth % 8 == 0, "VEC": 4 if depth % 4 == 0 else 1}
        few, many, split = kernels.rows, kernels.blocks, SPLIT_K.blocks
    if is_few(rows, in_bytes, limits):
        if in_bytes and rows == 1:
            few, shares = kernels.one_byte_row, shares_of_byte_row(columns, depth, together, limits)
            if norm is not None:
                few, factors = kernels.one_byte_row_normed, factors | {"EPS": norm.eps}
        elif in_bytes:
            shares = shares_of_byte_rows(rows, columns, depth, together > 0)
        elif rows == 1:
            # Neighbours are asked for in vectors, and their scales once; where threads are many, words were measured.
            more = layer["BITS"] == 8 or layer["MINIMA"] or limits.max_cooperating_threads < MANY_THREADS
            together = column_bytes % 16 == 0 and more
            few, shares = kernels.row, shares_of_row(columns, depth, layer["GROUP"], together)
        else:
            shares = shares_of_rows(rows, columns, depth, layer["GROUP"])
        if norm is not None and not in_bytes:
            few, factors = kernels.normed, factors | {"KEPT": depth // 4, "EPS": norm.eps}
        yield few(x, *operands, *outs, **layer, **factors, **shares, **put)
        return
    # Large tiles of bytes have no minima.
    if is_large(rows, depth, layer["GROUP"], limits) and not (in_bytes and layer["MINIMA"]):
        tiles = large_tiles_of(rows, columns)
        many, split = (kernels.byte_tiles, SPLIT_K.byte_tiles) if in_bytes else (kernels.tiles, SPLIT_K.tiles)
    else:
        tiles = byte_tiles_of(rows, columns) if in_bytes else tiles_of(rows, columns, layer["GROUP"])
    splits = splits_of(rows, columns, depth, in_bytes, limits)
    if splits == 1:
        yield many(x, *operands, *outs, **layer, **factors, **tiles, **put)
        return
    layer["splits"] = splits
    tiles["groups"] = tiles["groups"] * splits
    yield split(x, *operands, partial_sums, **layer, **factors, **tiles)
    yield kernels.combine(partial_sums, *operands, *outs, **layer, **put, threads=rows * ceil_div(columns, 4))


def _depth(width: int, in_bytes: bool) -> int:
    """The depth of rows that are `width` wide."""
    return width // (BYTE_VECTORS * 16) * BYTES_TOGETHER if in_bytes else width


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
