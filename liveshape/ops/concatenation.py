"""Concatenation (cat, stack), and scatters into a region of a tensor (slice_scatter, select_scatter)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Shape
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch
from liveshape.kernels.requests import Scratch
from liveshape.ops.copies import as_dtype, copy_strided, copy_values
from liveshape.ops.moved_rows import concatenated, select_scattered
from liveshape.ops.movement import select_copy, slice_copy
from liveshape.ops.registry import Tensors, exported, op
from liveshape.ops.row_rules import but_dims, row_wise
from liveshape.ops.shapes import Strided, axis_of, broadcast_strides, without

Steps = Generator[Dispatch | Scratch, Any, None]


@op(*exported("cat"), rows=concatenated, any_size=True, epilogues=True)
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
    given = [(part, shape) for part, shape in parts if shape != (0,) or len(shapes[0]) == 1]
    yield from _joined(given, axis, out)


@op(*exported("stack"), rows=concatenated, epilogues=True)
def stack(tensors: Tensors, dim: int, out: LiveTensor) -> Steps:
    parts = []
    for tensor in tensors:
        parts.append((yield from as_dtype(tensor, out.dtype)))
    shape = tensors[0].shape
    if any(tensor.shape != shape for tensor in tensors):
        raise ShapeError(f"shapes {', '.join(str(tensor.shape) for tensor in tensors)} cannot be stacked")
    axis = axis_of(dim, len(shape) + 1)
    yield from _joined([(part, (*shape[:axis], 1, *shape[axis:])) for part in parts], axis, out)


def _joined(parts: list[tuple[LiveTensor, Shape]], axis: int, out: LiveTensor) -> Steps:
    """out = tensors of these shapes behind each other along an axis."""
    (_, first), start = parts[0], 0
    out.shape = (*first[:axis], sum(shape[axis] for _, shape in parts), *first[axis + 1 :])
    whole = Strided.contiguous(out.shape)
    for part, shape in parts:
        target = whole.put(axis, shape[axis], whole.strides[axis], start * whole.strides[axis])
        yield from copy_strided(part, out, Strided.contiguous(shape), target)
        start = start + shape[axis]


@op(*exported("slice_scatter"), rows=but_dims("x", "dim", "source"))
def slice_scatter(
    x: LiveTensor, source: LiveTensor, dim: int, start: int | None, end: int | None, step: int, out: LiveTensor
) -> Steps:
    region = slice_copy(Strided.contiguous(x.shape), dim, start, end, step, out)
    yield from _scattered(x, source, out, "slice", region)


@op(*exported("select_scatter"), rows=select_scattered)
def select_scatter(x: LiveTensor, source: LiveTensor, dim: int, index: int, out: LiveTensor) -> Steps:
    yield from _scattered(x, source, out, "selection", select_copy(Strided.contiguous(x.shape), dim, index, out))


def _scattered(x: LiveTensor, source: LiveTensor, out: LiveTensor, part: str, region: Strided) -> Steps:
    """out = x with what is given in a part of it."""
    given = yield from as_dtype(source, out.dtype)
    if source.shape != region.shape:
        raise ShapeError(f"{source.shape} is written to a {part} of shape {region.shape}")
    out.shape = x.shape
    yield from copy_values(x, out)
    yield from copy_strided(given, out, Strided.contiguous(region.shape), region)


@op(*exported("copy"), rows=row_wise("x", "source", tail=0))
def copy(x: LiveTensor, source: LiveTensor, non_blocking: Any, out: LiveTensor) -> Steps:
    part = yield from as_dtype(source, out.dtype)
    out.shape = x.shape
    lead = x.rank - source.rank
    if lead < 0 or any(size not in (1, wanted) for size, wanted in zip(source.shape, x.shape[lead:], strict=True)):
        raise ShapeError(f"{source.shape} cannot be copied to {x.shape}")
    yield from copy_strided(part, out, Strided(x.shape, broadcast_strides(source.shape, x.shape)))


@op("aten.copy_.default", "aten::copy_", mutates=("x",))
def copy_(x: LiveTensor, source: LiveTensor, non_blocking: Any, out: LiveTensor) -> Steps:
    yield from copy(x, source, non_blocking, out)


@op("executorch_prim::et_copy_index.tensor", mutates=("x",))
def copy_index(x: LiveTensor, source: LiveTensor, index: int, out: Tensors) -> Iterator[Dispatch]:
    """Row `index` of x, which holds that many rows and this one from now on: how a mapped loop collects its results."""
    x.shape = (index + 1, *source.shape)
    whole = Strided.contiguous(source.shape)
    yield from copy_strided(source, x, whole, whole._replace(start=index * source.numel))
