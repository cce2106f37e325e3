"""Views: the same elements under another shape. They alias their source, so most of them dispatch nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.graph import Tensor
from liveshape.kernel import Dispatch
from liveshape.ops.copies import copy_values
from liveshape.ops.registry import Ints, op
from liveshape.ops.shapes import axis_of, resolve_sizes


@op("et_vk.prepack.default", alias=True)
def prepack(x: Tensor, out: Tensor) -> Iterator[Dispatch]:
    out.shape = x.shape
    yield from copy_values(x, out)


@op("aten.view_copy.default", "aten::view_copy.out", "executorch_prim::et_view.default", alias=True)
def view_copy(x: Tensor, size: Ints, out: Tensor) -> Iterator[Dispatch]:
    out.shape = resolve_sizes(size, x.numel)
    yield from copy_values(x, out)


@op("aten.squeeze_copy.dims", "aten::squeeze_copy.dims_out", alias=True)
def squeeze_copy(x: Tensor, dims: Ints, out: Tensor) -> Iterator[Dispatch]:
    axes = {axis_of(dim, x.rank) for dim in dims}
    # What is squeezed was settled at export, at the bound: a live size of one elsewhere stays.
    out.shape = tuple(size for axis, size in enumerate(x.shape) if axis not in axes or x.max_shape[axis] != 1)
    yield from copy_values(x, out)


@op("aten.unsqueeze_copy.default", "aten::unsqueeze_copy.out", alias=True)
def unsqueeze_copy(x: Tensor, dim: int, out: Tensor) -> Iterator[Dispatch]:
    axis = axis_of(dim, x.rank + 1)
    out.shape = (*x.shape[:axis], 1, *x.shape[axis:])
    yield from copy_values(x, out)


@op("aten.clone.default", "aten::clone.out", alias=True)
def clone(x: Tensor, memory_format: Any, out: Tensor) -> Iterator[Dispatch]:
    out.shape = x.shape
    yield from copy_values(x, out)
