"""Conversions between element types, and the copies that only change a memory order we do not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch
from liveshape.ops.copies import conversion, copy_values
from liveshape.ops.pointwise import Build, Term
from liveshape.ops.registry import op
from liveshape.ops.row_rules import elementwise


def cast(e: Build, x: Any, *_: Any) -> Term:
    """x in the type of the result: among other pointwise operators a cast costs nothing."""
    return e.call(conversion(x.dtype, e.out), x)


def converted(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    """x in out's type; types that are stored alike share memory."""
    out.shape = x.shape
    yield from copy_values(x, out)


@op(
    "aten._to_copy.default",
    "dim_order_ops._to_dim_order_copy.default",
    alias=True,
    rows=elementwise(),
    reads_as_written=True,
    pointwise=cast,
)
def to_copy(
    x: LiveTensor, dtype: Any, layout: Any, device: Any, pin_memory: Any, non_blocking: Any, order: Any, out: LiveTensor
) -> Iterator[Dispatch]:
    yield from converted(x, out)


@op(
    "aten::_to_copy.out",
    "dim_order_ops::_to_dim_order_copy.out",
    "dim_order_ops._clone_dim_order.default",
    "dim_order_ops::_clone_dim_order.out",
    alias=True,
    rows=elementwise(),
    reads_as_written=True,
    pointwise=cast,
)
def to_copy_out(x: LiveTensor, non_blocking: Any, order: Any, out: LiveTensor) -> Iterator[Dispatch]:
    yield from converted(x, out)
