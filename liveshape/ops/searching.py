"""searchsorted and bucketize: a binary search in sorted rows for each value."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.creation import fill
from liveshape.ops.registry import Number, op
from liveshape.ops.row_rules import elementwise
from liveshape.ops.scalars import are_integers

SEARCH = Kernel.load("indexing/search")


def search(rows: LiveTensor, x: LiveTensor, right: bool, out: LiveTensor) -> Iterator[Dispatch]:
    """out = how many elements of its row lie before each value of x; one row serves all values."""
    one = rows.rank == 1
    if not rows.rank or (not one and (x.rank != rows.rank or rows.shape[:-1] != x.shape[:-1])):
        raise ShapeError(f"values of {x.shape} cannot be searched in rows of {rows.shape}; all but the last must agree")
    out.shape = x.shape
    count = x.numel
    per_row = count if one else x.shape[-1]
    yield SEARCH(
        out, rows, x, count=count, length=rows.shape[-1], per_row=per_row, RIGHT=right, INTEGER=are_integers(rows, x),
        threads=count,
    )  # fmt: skip


@op("aten.searchsorted.Tensor", "aten::searchsorted.Tensor_out")
def searchsorted(
    rows: LiveTensor, x: LiveTensor, out_int32: Any, right: bool, side: str | None, sorter: LiveTensor | None,
    out: LiveTensor,
) -> Iterator[Dispatch]:  # fmt: skip
    if sorter is not None:
        raise UnsupportedError("searchsorted with a sorter has no kernel; sort the rows first")
    yield from search(rows, x, right or side == "right", out)


@op("aten.searchsorted.Scalar", "aten::searchsorted.Scalar_out")
def searchsorted_scalar(
    rows: LiveTensor, value: Number, out_int32: Any, right: bool, side: str | None, sorter: LiveTensor | None,
    out: LiveTensor,
) -> Generator[Dispatch | Scratch, Any, None]:  # fmt: skip
    one: LiveTensor = yield Scratch(_dtype_of(rows, value), ())
    yield from fill((), value, one)
    yield from searchsorted(rows, one, out_int32, right, side, sorter, out)


@op("aten.bucketize.Tensor", "aten::bucketize.Tensor_out", rows=elementwise("x"))
def bucketize(
    x: LiveTensor, boundaries: LiveTensor, out_int32: Any, right: bool, out: LiveTensor
) -> Iterator[Dispatch]:
    if boundaries.rank != 1:
        raise ShapeError(f"boundaries are one row, {boundaries.shape} was given")
    yield from search(boundaries, x, right, out)


@op("aten.bucketize.Scalar", "aten::bucketize.Scalar_out")
def bucketize_scalar(
    value: Number, boundaries: LiveTensor, out_int32: Any, right: bool, out: LiveTensor
) -> Generator[Dispatch | Scratch, Any, None]:
    one: LiveTensor = yield Scratch(_dtype_of(boundaries, value), ())
    yield from fill((), value, one)
    yield from bucketize(one, boundaries, out_int32, right, out)


def _dtype_of(rows: LiveTensor, value: Number) -> str:
    """A scalar is compared as an integer with integers if it is one."""
    return "int32" if are_integers(rows) and value % 1 == 0 else "float32"
