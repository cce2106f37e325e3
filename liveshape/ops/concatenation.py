"""Concatenation (cat, stack), and scatters into a region of a tensor (slice_scatter, select_scatter)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Shape
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch
from liveshape.kernels.requests import Scratch
from liveshape.ops.copies import Place, as_dtype, copy_strided, copy_values
from liveshape.ops.moved_rows import concatenated, select_scattered
from liveshape.ops.registry import Tensors, exported, op
from liveshape.ops.row_rules import but_dims, row_wise
from liveshape.ops.shapes import (
    axis_of,
    broadcast_strides,
    index_in,
    slice_bounds,
    strides_of,
    without,
)

Steps = Generator[Dispatch | Scratch, Any, None]


@op(*exported("cat"), rows=concatenated(new_dim=False), any_size=True, epilogues=True)
def cat(tensors: Tensors, dim: int, out: LiveTensor) -> Steps:
    parts = []
    for tensor in tensors:
        parts.append(((yield from as_dtype(tensor, out.dtype)), tensor.shape))
    # An empty tensor of one dimension joins anything: PyTorch keeps that for old programs.
    shapes = [shape for _, shape in parts if shape != (0,)]
    if not shapes:
        out.shape = (0,)
        return
    axis = axis_of(dim, len(shapes[0]))
    if not shapes[0] or any(without(shape, axis) != without(shapes[0], axis) for shape in shapes):
        raise ShapeError(f"shapes {', '.join(map(str, shapes))} cannot be joined along dimension {dim}")
    total = sum(shape[axis] for shape in shapes)
    out.shape = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
    strides = strides_of(out.shape)
    start = 0
    for part, shape in parts:
        if shape != (0,) or len(shapes[0]) == 1:
            yield from copy_strided(part, out, shape, (0, strides_of(shape)), (start * strides[axis], strides))
            start = start + shape[axis]


@op(*exported("stack"), rows=concatenated(new_dim=True), epilogues=True)
def stack(tensors: Tensors, dim: int, out: LiveTensor) -> Steps:
    parts = []
    for tensor in tensors:
        parts.append((yield from as_dtype(tensor, out.dtype)))
    shape = tensors[0].shape
    if any(tensor.shape != shape for tensor in tensors):
        raise ShapeError(f"shapes {', '.join(str(tensor.shape) for tensor in tensors)} cannot be stacked")
    axis = axis_of(dim, len(shape) + 1)
    out.shape = (*shape[:axis], len(tensors), *shape[axis:])
    strides = strides_of(out.shape)
    for position, part in enumerate(parts):
        target = position * strides[axis], without(strides, axis)
        yield from copy_strided(part, out, shape, (0, strides_of(shape)), target)


@op(*exported("slice_scatter"), rows=but_dims("x", "dim", "source"))
def slice_scatter(
    x: LiveTensor, source: LiveTensor, dim: int, start: int | None, end: int | None, step: int, out: LiveTensor
) -> Steps:
    axis = axis_of(dim, x.rank)
    first, count = slice_bounds(start, end, step, x.shape[axis])
    strides = strides_of(x.shape)
    steps = (*strides[:axis], strides[axis] * step, *strides[axis + 1 :])
    region = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    yield from _scattered(x, source, out, "slice", region, (first * strides[axis], steps))


@op(*exported("select_scatter"), rows=select_scattered)
def select_scatter(x: LiveTensor, source: LiveTensor, dim: int, index: int, out: LiveTensor) -> Steps:
    axis = axis_of(dim, x.rank)
    strides = strides_of(x.shape)
    target = index_in(index, x.shape[axis]) * strides[axis], without(strides, axis)
    yield from _scattered(x, source, out, "selection", without(x.shape, axis), target)


def _scattered(x: LiveTensor, source: LiveTensor, out: LiveTensor, part: str, region: Shape, target: Place) -> Steps:
    """out = x with what is given in a part of it."""
    given = yield from as_dtype(source, out.dtype)
    if source.shape != region:
        raise ShapeError(f"{source.shape} is written to a {part} of shape {region}")
    out.shape = x.shape
    yield from copy_values(x, out)
    yield from copy_strided(given, out, region, (0, strides_of(region)), target)


@op(*exported("copy"), rows=row_wise("x", "source", tail=0))
def copy(x: LiveTensor, source: LiveTensor, non_blocking: Any, out: LiveTensor) -> Steps:
    part = yield from as_dtype(source, out.dtype)
    out.shape = shape = x.shape
    yield from copy_strided(part, out, shape, (0, _broadcast_to(source.shape, shape)), (0, strides_of(shape)))


@op("aten.copy_.default", "aten::copy_", mutates=("x",))
def copy_(x: LiveTensor, source: LiveTensor, non_blocking: Any, out: LiveTensor) -> Steps:
    yield from copy(x, source, non_blocking, out)


@op("executorch_prim::et_copy_index.tensor", mutates=("x",))
def copy_index(x: LiveTensor, source: LiveTensor, index: int, out: Tensors) -> Iterator[Dispatch]:
    """Row `index` of x, which holds that many rows and this one from now on: how a mapped loop collects its results."""
    x.shape = (index + 1, *source.shape)
    yield from copy_strided(
        source, x, source.shape, (0, strides_of(source.shape)), (index * source.numel, strides_of(source.shape))
    )


def _broadcast_to(shape: Shape, target: Shape) -> Shape:
    lead = len(target) - len(shape)
    if lead < 0 or any(size not in (1, wanted) for size, wanted in zip(shape, target[lead:], strict=True)):
        raise ShapeError(f"{shape} cannot be copied to {target}")
    return broadcast_strides(shape, target)
