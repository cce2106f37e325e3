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


# Types that are stored alike share memory.
_CAST: dict[str, Any] = {"alias": True, "rows": elementwise(), "reads_as_written": True, "pointwise": cast}


@op(
    "aten._to_copy.default",
    "dim_order_ops._to_dim_order_copy.default",
    schema="x dtype layout device pin_memory non_blocking order out",
    **_CAST,
)
@op(
    "aten::_to_copy.out",
    "dim_order_ops::_to_dim_order_copy.out",
    "dim_order_ops._clone_dim_order.default",
    "dim_order_ops::_clone_dim_order.out",
    schema="x non_blocking order out",
    **_CAST,
)
def to_copy(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    """x in out's type."""
    out.shape = x.shape
    yield from copy_values(x, out)
