"""Rotary position embeddings (RoPE): pairs of elements of every head are rotated by the angle of their row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Node, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Carried, PositionTables
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.registry import Tensors, op
from liveshape.ops.row_rules import axis_of_all, outputs_along
from liveshape.ops.row_tables import RowKernels, Start, axis_by_table, check_row_table

ROTARY = RowKernels.load("attention/rotary")
ROTARY_COMPLEX = Kernel.load("attention/rotary_complex")


def _check_heads(xq: LiveTensor, xk: LiveTensor, heads: int = 2) -> None:
    """Queries and keys are [B, S, H, D], or [B, H, S, D] with heads along 1, and differ in that number only."""
    others = [axis for axis in range(4) if axis != heads]
    if xq.rank != 4 or xk.rank != 4 or any(xq.shape[axis] != xk.shape[axis] for axis in others):
        order = "batch, rows, heads, size" if heads == 2 else "batch, heads, rows, size"
        raise ShapeError(f"queries {xq.shape} and keys {xk.shape} must be [{order}] and differ in heads only")
    if xq.shape[3] % 2:
        raise ShapeError(f"a head of {xq.shape[3]} elements does not consist of pairs")


def rotate(
    tensors: tuple[LiveTensor, ...],
    angles: dict[str, Any],
    first: Start,
    run: int,
    start: int,
    stride: int,
    kernels: RowKernels = ROTARY,
) -> Dispatch:
    """Rotate queries and keys, from the `first` row of angles on or by a table of rows.

    Keys go `start` elements into each `stride` of their output, `run` of them there; by a table to their slots.
    """
    xq, xk, cosine = tensors[2:5]
    total = (xq.numel + xk.numel) // 2
    if isinstance(first, LiveTensor):
        kernel, tensors, rows = kernels.by_table, (*tensors, first), {"positions": cosine.shape[-2]}
    else:
        kernel, rows = kernels.consecutive, {"first_row": first}
    return kernel(
        *tensors,
        **rows,
        query_pairs=xq.numel // 2,
        count=total,
        size=xq.shape[3],
        table_width=cosine.shape[-1],
        key_run=run,
        key_start=start,
        key_stride=stride,
        **angles,
        threads=total,
    )


def angles_of_rows(xq: LiveTensor, xk: LiveTensor, cosine: LiveTensor, sine: LiveTensor) -> dict[str, Any]:
    """Tables of the live rows, [rows, pairs]; a pair is two neighbours."""
    _check_heads(xq, xk)
    check_rows(xq.shape, cosine, sine)
    return {"half": xq.shape[3] // 2, "INTERLEAVED": True, **_rows_before_heads(xq, xk)}


def check_rows(queries: Shape, cosine: LiveTensor, sine: LiveTensor) -> None:
    """Whether tables are those of the live rows of queries [B, S, H, D]."""
    _, rows, _, size = queries
    for table in (cosine, sine):
        if table.shape != (rows, size // 2):
            raise ShapeError(
                f"angles {table.shape} for queries {queries}: {(rows, size // 2)} is needed, a row for every live row"
            )


def angles_of_positions(
    xq: LiveTensor, xk: LiveTensor, cosine: LiveTensor, sine: LiveTensor, start: Start
) -> dict[str, Any]:
    """Tables of every position, [positions, rotated elements]; elements of a head beyond those pass through."""
    _check_heads(xq, xk)
    check_positions(xq.shape, cosine, sine, start)
    return {"half": cosine.shape[1] // 2, "INTERLEAVED": False, **_rows_before_heads(xq, xk)}


def check_positions(queries: Shape, cosine: LiveTensor, sine: LiveTensor, start: Start) -> None:
    """Whether tables have the positions of queries [B, S, H, D]."""
    _, rows, _, size = queries
    if cosine.rank != 2 or cosine.shape != sine.shape:
        raise ShapeError(f"tables of angles {cosine.shape} and {sine.shape} must be two alike of rank 2")
    positions, width = cosine.shape
    _check_table(width, size, start, rows, positions)


def _rows_before_heads(xq: LiveTensor, xk: LiveTensor) -> dict[str, Any]:
    """[B, S, H, D]: the heads of a row are neighbours, and all of a batch are rotated by the same tables."""
    _, rows, query_heads, _ = xq.shape
    return {
        "rows": rows,
        "query_heads": query_heads,
        "key_heads": xk.shape[2],
        "query_vectors": rows * query_heads,
        "key_vectors": rows * xk.shape[2],
        "table_stride": 0,
    }


def angles_of_batches(
    xq: LiveTensor, xk: LiveTensor, cosine: LiveTensor, sine: LiveTensor, start: Start
) -> dict[str, Any]:
    """Tables [B or 1, rows, rotated elements] for queries and keys [B, H, S, D], as transformers has them."""
    _check_heads(xq, xk, heads=1)
    batch, query_heads, rows, size = xq.shape
    if cosine.shape != sine.shape or cosine.shape[0] not in (1, batch):
        raise ShapeError(
            f"tables of angles {cosine.shape} and {sine.shape} must be two alike, for one batch or for all of {batch}"
        )
    _, positions, width = cosine.shape
    _check_table(width, size, start, rows, positions)
    return {
        "half": width // 2,
        "INTERLEAVED": False,
        "rows": rows,
        # The rows of a head are neighbours: no two heads lie beside each other.
        "query_heads": 1,
        "key_heads": 1,
        "query_vectors": query_heads * rows,
        "key_vectors": xk.shape[1] * rows,
        "table_stride": 0 if cosine.shape[0] == 1 else positions * width,
    }


def _check_table(width: int, size: int, start: Start, rows: int, positions: int) -> None:
    if width % 2 or width > size:
        raise ShapeError(f"angles for {width} elements of a head of {size}: it must be an even number up to that")
    if isinstance(start, LiveTensor):
        check_row_table(start, rows)
    elif start < 0 or start + rows > positions:
        raise ShapeError(
            f"position {start} and {rows} rows need {start + rows} rows of angles, the tables hold "
            f"{positions}; start at an earlier position, or export with larger tables"
        )


def _rotated(node: Node, carried: Carried) -> Carried | None:
    """Queries and keys [B, S, H, D], each row with its row of the tables; or members of a batch, all by the same."""
    axis = axis_of_all(node, carried, "xq", "xk")
    if axis is not None:
        return outputs_along(node, 0) if axis == 0 else None
    tables = [node.named[name] for name in ("freqs_cos", "freqs_sin")]
    heads = [node.named[name] for name in ("xq", "xk")]
    by_row = all(carried.get(each) == 1 for each in heads) and all(carried.get(each) == 0 for each in tables)
    return outputs_along(node, 1) if by_row else None


def _rotated_by_position(node: Node, carried: Carried) -> Carried | None:
    """A row is rotated by its position: row-wise along S if a table says it; members of a batch are alike."""
    table = node.named["freqs_cos"]
    axis = axis_by_table(node, carried, ("start_pos",), "xq", "xk")
    if axis is not None:
        return outputs_along(node, axis) if axis == table.rank - 1 else None
    shared = table.rank == 2 or table.max_shape[0] == 1
    return outputs_along(node, 0) if shared and axis_of_all(node, carried, "xq", "xk") == 0 else None


def _rotated_as_complex(node: Node, carried: Carried) -> Carried | None:
    """[.., S, D] by a table of S times D floats: rows of both along S, or along a dimension before it."""
    x, table = node.named["x"], node.named["freqs_cis"]
    axis = carried.get(x)
    if axis is None or axis == x.rank - 1:
        return None
    if axis < x.rank - 2:
        return outputs_along(node, axis) if table not in carried else None
    place = carried.get(table)
    if place is None or prod(table.max_shape[:place]) != 1 or prod(table.max_shape[place + 1 :]) != x.max_shape[-1]:
        return None
    return outputs_along(node, axis)


@op("et_vk.apply_rotary_emb.default", rows=_rotated)
def apply_rotary_emb(
    xq: LiveTensor, xk: LiveTensor, freqs_cos: LiveTensor, freqs_sin: LiveTensor, out: Tensors
) -> Iterator[Dispatch]:
    angles = angles_of_rows(xq, xk, freqs_cos, freqs_sin)
    out[0].shape, out[1].shape = xq.shape, xk.shape
    yield rotate((*out, xq, xk, freqs_cos, freqs_sin), angles, 0, xk.numel, 0, xk.numel)


@op(
    "et_vk.apply_rotary_emb_hf.default",
    rows=_rotated_by_position,
    tables=PositionTables(("freqs_cos", "freqs_sin"), "start_pos"),
)
def apply_rotary_emb_hf(
    xq: LiveTensor, xk: LiveTensor, freqs_cos: LiveTensor, freqs_sin: LiveTensor, start_pos: Start, out: Tensors
) -> Iterator[Dispatch]:
    # The rank of the tables tells the layouts of queries and keys apart.
    find = angles_of_batches if freqs_cos.rank == 3 else angles_of_positions
    angles = find(xq, xk, freqs_cos, freqs_sin, start_pos)
    out[0].shape, out[1].shape = xq.shape, xk.shape
    yield rotate((*out, xq, xk, freqs_cos, freqs_sin), angles, start_pos, xk.numel, 0, xk.numel)


@op("et_vk.apply_rotary_emb_interleaved.default", rows=_rotated_as_complex)
def apply_rotary_emb_interleaved(x: LiveTensor, freqs_cis: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    if x.rank < 2 or x.shape[-1] % 2 or freqs_cis.numel != x.shape[-2] * x.shape[-1]:
        raise ShapeError(
            f"angles {freqs_cis.shape} for {x.shape}: as many as the last two dimensions have elements, the last of "
            "them an even number, are needed"
        )
    out.shape = x.shape
    count = x.numel // 2
    yield ROTARY_COMPLEX(out, x, freqs_cis, count=count, period=freqs_cis.numel // 2, threads=count)
