"""Views: the same elements under another shape or in another type. They alias their source, so most of them dispatch
nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Role
from liveshape.kernels import Dispatch
from liveshape.ops.copies import conversion, copy_values
from liveshape.ops.moved_rows import viewed
from liveshape.ops.movement import movement, permute_copy
from liveshape.ops.pointwise import Build, Term
from liveshape.ops.registry import Ints, exported, op
from liveshape.ops.row_rules import elementwise
from liveshape.ops.shapes import Strided, axis_of, resolve_sizes


def cast(e: Build, x: Any, *_: Any) -> Term:
    """x in the type of the result: among other pointwise operators a cast, or a copy, costs nothing."""
    return e.call(conversion(x.dtype, e.out), x)


_VIEW: dict[str, Any] = {"alias": True, "reads_as_written": True}
# Types that are stored alike share memory.
_CAST: dict[str, Any] = _VIEW | {"rows": elementwise(), "pointwise": cast}


@op("et_vk.prepack.default", alias=True, rows=elementwise(), role=Role.PREPACK)
def prepack(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    out.shape = x.shape
    if out.constant is None:  # else its own data was uploaded at load, and may have changed since
        yield from copy_values(x, out)


@op(*exported("view_copy"), "executorch_prim::et_view.default", rows=viewed, any_size=True, **_VIEW)
def view_copy(x: LiveTensor, size: Ints, out: LiveTensor) -> Iterator[Dispatch]:
    out.shape = resolve_sizes(size, x.numel)
    yield from copy_values(x, out)


@movement(*exported("squeeze_copy", "dims"), alias=True)
def squeeze_copy_dims(x: Strided, dims: Ints, out: LiveTensor) -> Strided:
    axes = {axis_of(dim, x.rank) for dim in dims if x.rank}
    # What is squeezed was settled at export, at the bound: a live size of one elsewhere stays.
    if x.rank - len(axes) != out.rank:
        axes = {axis for axis in axes if x.max_shape[axis] == 1}
    if any(x.shape[axis] != 1 for axis in axes) or x.rank - len(axes) != out.rank:
        raise ShapeError(f"dimensions {dims} of {x.shape} cannot be squeezed to rank {out.rank}")
    kept = [axis for axis in range(x.rank) if axis not in axes]
    return Strided(tuple(x.shape[axis] for axis in kept), tuple(x.strides[axis] for axis in kept))


@movement(*exported("squeeze_copy", "dim"), alias=True)
def squeeze_copy_dim(x: Strided, dim: int, out: LiveTensor) -> Strided:
    return squeeze_copy_dims(x, (dim,), out)


@movement(*exported("squeeze_copy"), alias=True)
def squeeze_copy(x: Strided, out: LiveTensor) -> Strided:
    return squeeze_copy_dims(x, tuple(axis for axis in range(x.rank) if x.max_shape[axis] == 1), out)


@movement(*exported("unsqueeze_copy"), alias=True)
def unsqueeze_copy(x: Strided, dim: int, out: LiveTensor) -> Strided:
    axis = axis_of(dim, x.rank + 1)
    return Strided((*x.shape[:axis], 1, *x.shape[axis:]), (*x.strides[:axis], 0, *x.strides[axis:]))


# A permute that moves nothing but dimensions of one.
movement("liveshape.permuted_view", alias=True)(permute_copy)


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
@op(*exported("clone"), schema="x memory_format out", **_CAST | {"reads_as_written": False})
@op(
    *exported("alias_copy"),
    *exported("detach_copy"),
    *exported("lift_fresh_copy"),
    "et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out",
    **_CAST)  # fmt: skip
def to_copy(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    """x in out's type."""
    out.shape = x.shape
    yield from copy_values(x, out)
