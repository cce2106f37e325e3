"""Linear layers with 4-bit weights, and the 8-bit activations that some of them take.

A weight byte holds two neighbours of the depth, each offset by 8; a scale belongs to a group of neighbours of a column.
The kernels read the words as the file has them: few rows are bound by that reading, many rows by arithmetic.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from liveshape.errors import ShapeError
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.registry import Tensors, op
from liveshape.ops.shapes import ceil_div


class Q4Kernels(NamedTuple):
    """The kernels of few and of many rows, and of one row that is normed, that put their sums in one way."""

    rows: Kernel
    blocks: Kernel
    normed: Kernel

    @classmethod
    def putting(cls, put: str, params: str = "q4_put_params") -> Q4Kernels:
        """The kernels with an include that says where the sums go, and one with the params that it needs for that."""
        return cls(
            Kernel.load("q4_rows", q4_put=put, q4_put_params=params),
            Kernel.load("q4_blocks", q4_put=put, q4_put_params=params),
            Kernel.load("q4_rows", q4_put=put, q4_put_params=params, q4_row="q4_row_normed"),
        )


class Norm(NamedTuple):
    """The RMS norm of a row; `terms` are the bias of the layer, if it has one, and then the weight of the norm."""

    terms: LiveTensor
    eps: float


ONE_LAYER = Q4Kernels.putting("q4_put")
ROUNDED_ROWS = Kernel.load("rounded_rows")

FEW_ROWS = 16  # up to here a layer is bound by reading the weight, once for four rows
MOST_PARTS = 256  # threads that share the depth of four columns
TURNS = 4  # words that a thread of one row asks for at once
ONE_GROUP = 1 << 30
ENOUGH_TILES = 160  # below this a device is better filled with smaller tiles

Steps = Generator[Dispatch | Scratch, Any, None]


@op("et_vk.linear_q4gsw.default")
def linear_q4gsw(
    x: LiveTensor, weight: LiveTensor, scales: LiveTensor, group_size: int, bias: LiveTensor | None, out: LiveTensor
) -> Iterator[Dispatch]:
    out.shape = (*x.shape[:-1], weight.shape[0])
    if scales.rank != 2:
        raise ShapeError(f"scales {scales.shape} must be [groups, columns]")
    yield from q4_product(x, weight, scales, group_size, scales.shape[1], bias, (out,))


@op("et_vk.linear_qcs4w.default")
def linear_qcs4w(x: LiveTensor, weight: LiveTensor, scales: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    """One scale per column, and the nibbles of a byte the other way round."""
    out.shape = (*x.shape[:-1], weight.shape[0])
    yield from q4_product(x, weight, scales, x.shape[-1], 0, None, (out,), HIGH_FIRST=True)


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
    """The rows of x as eight bits can hold them, times the weight; as eager torchao has it, sums are of floats."""
    rounded: LiveTensor = yield Scratch("float32", x.max_shape)
    yield from rounded_rows(x, input_scale, input_zero_point, rounded)
    yield from linear_q4gsw(rounded, weight, scales, group_size, bias, out)


@op("liveshape.rounded_rows")
def rounded_rows(x: LiveTensor, scale: LiveTensor, zero_point: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    """The rows of x as eight bits can hold them."""
    *lead, depth = x.shape
    rows = prod(lead)
    if min(scale.numel, zero_point.numel) < rows:
        raise ShapeError(f"{rows} rows need as many scales and zero points, {scale.shape} were given")
    out.shape = x.shape
    yield ROUNDED_ROWS(out, x, scale, zero_point, count=rows * depth, width=depth, threads=rows * depth)


def q4_product(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group: int,
    scale_stride: int,
    bias: LiveTensor | None,
    outs: Tensors,
    kernels: Q4Kernels = ONE_LAYER,
    norm: Norm | None = None,
    **choices: Any,
) -> Iterator[Dispatch]:
    """x @ weight.T + bias; scales lie `scale_stride` apart from group to group, columns next to each other.

    The kernels say what becomes of the sums in `outs`. With a `norm`, x is one row before it.
    """
    *lead, depth = x.shape
    rows = prod(lead)
    columns, column_bytes = weight.shape
    _check(x, weight, scales, group, scale_stride, bias)
    if group == depth:  # as large as can be, so that it is one variant of the kernel for every depth
        group = ONE_GROUP
    values: dict[str, Any] = {
        "rows": rows,
        "columns": columns,
        "depth": depth,
        "column_bytes": column_bytes,
        "weight_words": ceil_div(columns * column_bytes, 4),
        "scale_stride": scale_stride,
        "ALIGNED": column_bytes % 4 == 0,
        "WHOLE": depth % 8 == 0,
        "SCALE_FOURS": scale_stride % 4 == 0,
        "BIAS": bias is not None,
        "GROUP": group,
        "VEC": 4 if depth % 4 == 0 else 1,
        **choices,
    }
    # An absent bias still needs a buffer in its place; x is there and only read.
    tensors = (x, weight, scales, x if bias is None else bias, *outs)
    if norm is not None:
        normed = (x, weight, scales, norm.terms, *outs)
        values |= {"KEPT": depth // 4, "EPS": norm.eps}
        yield kernels.normed(*normed, **values, **_shares(rows, columns, depth, group))
    elif rows <= FEW_ROWS:
        yield kernels.rows(*tensors, **values, **_shares(rows, columns, depth, group))
    else:
        yield kernels.blocks(*tensors, **values, **_tiles(rows, columns), SCALED=4 if group % 4 == 0 else 1)


def _shares(rows: int, columns: int, depth: int, group: int) -> dict[str, Any]:
    """How threads share the depth of four columns of one row, or of four rows."""
    words = ceil_div(depth, 8)
    parts = 1
    while parts < MOST_PARTS and parts * TURNS < words:
        parts = parts * 2
    scaled = 8 if group % 8 == 0 else 1
    at_once = TURNS if rows == 1 and scaled == 8 and words % (parts * TURNS) == 0 else 1
    held = 1 if rows == 1 else 4
    units = ceil_div(rows, held) * ceil_div(columns, 4)
    return {"ROWS": held, "TURNS": at_once, "SCALED": scaled, "PARTS": parts, "shared": units}


def _tiles(rows: int, columns: int) -> dict[str, Any]:
    """Tiles of 64 by 64; by half the columns where these are too few, of half the rows where there are no more."""
    tiles = ceil_div(rows, 64) * ceil_div(columns, 64)
    if rows <= 32:
        return {"ROW_THREADS": 8, "ROW_FOURS": 1, "DEPTH": 4, "groups": tiles}
    if tiles < ENOUGH_TILES:
        groups = ceil_div(rows, 64) * ceil_div(columns, 32)
        return {"ROW_THREADS": 16, "ROW_FOURS": 1, "DEPTH": 8, "groups": groups}
    return {"ROW_THREADS": 8, "ROW_FOURS": 2, "DEPTH": 4, "groups": tiles}


def _check(
    x: LiveTensor, weight: LiveTensor, scales: LiveTensor, group: int, scale_stride: int, bias: LiveTensor | None
) -> None:
    """The kernels trust these sizes: nothing else keeps them inside the tensors."""
    depth = x.shape[-1]
    columns, column_bytes = weight.shape
    if column_bytes * 2 < depth:
        raise ShapeError(f"a weight of {weight.shape} bytes is too narrow for x {x.shape}")
    if group < 1 or depth % group:
        raise ShapeError(f"groups of {group} do not divide a depth of {depth}")
    groups = depth // group
    if scales.numel < (groups - 1) * scale_stride + columns or (groups > 1 and scale_stride < columns):
        raise ShapeError(f"scales {scales.shape} are too few for {groups} groups of {columns} columns")
    if bias is not None and bias.numel < columns:
        raise ShapeError(f"a bias of {bias.shape} is too short for {columns} columns")
