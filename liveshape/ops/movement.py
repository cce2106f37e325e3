"""Operators that read a tensor along other strides: each is one strided copy per output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Shape
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Role
from liveshape.kernels import Dispatch
from liveshape.ops.copies import copy_strided
from liveshape.ops.moved_rows import (
    expanded,
    keeping,
    on_diagonals,
    permuted,
    repeated,
    selected_from,
    swapped,
    transposed,
)
from liveshape.ops.registry import Ints, Tensors, exported, op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import (
    MAX_RANK,
    axis_of,
    broadcast_strides,
    ceil_div,
    index_in,
    slice_bounds,
    strides_of,
    without,
)

_MOVES: dict[str, Any] = {"reads_as_written": True, "epilogues": True}


def _read(x: LiveTensor, out: LiveTensor, shape: Shape, strides: Shape, start: int = 0) -> Iterator[Dispatch]:
    """out, of this shape, is x along these strides."""
    out.shape = shape
    yield from copy_strided(x, out, shape, (start, strides), (0, strides_of(shape)))


@op(*exported("permute_copy"), "aten.permute.default", any_size=True, **_MOVES, **keeping(permuted))
def permute_copy(x: LiveTensor, dims: Ints, out: LiveTensor) -> Iterator[Dispatch]:
    axes = tuple(axis_of(dim, x.rank) for dim in dims)
    if tuple(sorted(axes)) != tuple(range(x.rank)):
        raise ShapeError(f"{dims} is not an order of the {x.rank} dimensions of {x.shape}")
    strides = strides_of(x.shape)
    yield from _read(x, out, tuple(x.shape[axis] for axis in axes), tuple(strides[axis] for axis in axes))


@op(*exported("transpose_copy", "int"), "aten.transpose.int", **_MOVES, **keeping(transposed))
def transpose_copy(x: LiveTensor, dim0: int, dim1: int, out: LiveTensor) -> Iterator[Dispatch]:
    yield from permute_copy(x, swapped(x.rank, axis_of(dim0, x.rank), axis_of(dim1, x.rank)), out)


@op(*exported("t_copy"), "aten.t.default", **_MOVES, **keeping(transposed))
def t_copy(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    if x.rank > 2:
        raise ShapeError(f"t takes at most two dimensions, {x.shape} has {x.rank}")
    yield from permute_copy(x, tuple(reversed(range(x.rank))), out)


@op(*exported("slice_copy", "Tensor"), rows=but_dims("x", "dim"), role=Role.SLICE, **_MOVES)
def slice_copy(
    x: LiveTensor, dim: int, start: int | None, end: int | None, step: int, out: LiveTensor
) -> Iterator[Dispatch]:
    axis = axis_of(dim, x.rank)
    first, count = slice_bounds(start, end, step, x.shape[axis])
    strides = strides_of(x.shape)
    steps = _put(strides, axis, strides[axis] * step)
    yield from _read(x, out, _put(x.shape, axis, count), steps, first * strides[axis])


@op(*exported("narrow_copy"), rows=but_dims("x", "dim"), **_MOVES)
def narrow_copy(x: LiveTensor, dim: int, start: int, length: int, out: LiveTensor) -> Iterator[Dispatch]:
    first = start + x.shape[axis_of(dim, x.rank)] if start < 0 else start
    yield from slice_copy(x, dim, first, first + length, 1, out)


@op(*exported("select_copy", "int"), role=Role.SELECT, **_MOVES, **keeping(selected_from))
def select_copy(x: LiveTensor, dim: int, index: int, out: LiveTensor) -> Iterator[Dispatch]:
    axis = axis_of(dim, x.rank)
    strides = strides_of(x.shape)
    start = index_in(index, x.shape[axis]) * strides[axis]
    yield from _read(x, out, without(x.shape, axis), without(strides, axis), start)


@op(*exported("split_with_sizes_copy"), rows=but_dims("x", "dim"), reads_as_written=True)
def split_with_sizes_copy(x: LiveTensor, sizes: Ints, dim: int, out: Tensors) -> Iterator[Dispatch]:
    axis = axis_of(dim, x.rank)
    if sum(sizes) != x.shape[axis] or len(sizes) != len(out):
        raise ShapeError(f"sizes {sizes} do not split dimension {dim} of {x.shape} into {len(out)} parts")
    start = 0
    for part, size in zip(out, sizes, strict=True):
        yield from slice_copy(x, dim, start, start + size, 1, part)
        start = start + size


@op(*exported("split_copy", "Tensor"), rows=but_dims("x", "dim"), reads_as_written=True)
def split_copy(x: LiveTensor, split_size: int, dim: int, out: Tensors) -> Iterator[Dispatch]:
    # A live size may need fewer parts than the bound does; the rest are empty.
    for position, part in enumerate(out):
        yield from slice_copy(x, dim, position * split_size, (position + 1) * split_size, 1, part)


@op("aten.chunk.default", rows=but_dims("x", "dim"))
def chunk(x: LiveTensor, chunks: int, dim: int, out: Tensors) -> Iterator[Dispatch]:
    yield from split_copy(x, ceil_div(x.shape[axis_of(dim, x.rank)], chunks), dim, out)


@op(*exported("unbind_copy", "int"), reads_as_written=True, **keeping(selected_from))
def unbind_copy(x: LiveTensor, dim: int, out: Tensors) -> Iterator[Dispatch]:
    if x.shape[axis_of(dim, x.rank)] != len(out):
        raise ShapeError(f"dimension {dim} of {x.shape} is unbound to {len(out)} tensors")
    for index, part in enumerate(out):
        yield from select_copy(x, dim, index, part)


@op(*exported("expand_copy"), rows=expanded, **_MOVES)
def expand_copy(x: LiveTensor, size: Ints, implicit: bool, out: LiveTensor) -> Iterator[Dispatch]:
    lead = len(size) - x.rank
    given = (1,) * lead + x.shape
    shape = tuple(given[axis] if wanted == -1 else wanted for axis, wanted in enumerate(size))
    if lead < 0 or any(have not in (1, wanted) for have, wanted in zip(given, shape, strict=True)):
        raise ShapeError(f"{x.shape} cannot be expanded to {size}")
    yield from _read(x, out, shape, broadcast_strides(x.shape, shape))


@op(*exported("repeat"), rows=repeated, epilogues=True)
def repeat(x: LiveTensor, repeats: Ints, out: LiveTensor) -> Iterator[Dispatch]:
    lead = len(repeats) - x.rank
    if lead < 0 or any(times < 0 for times in repeats):
        raise ShapeError(f"{x.shape} cannot be repeated {repeats} times")
    sizes = (1,) * lead + x.shape
    steps = (0,) * lead + strides_of(x.shape)
    out.shape = tuple(times * size for times, size in zip(repeats, sizes, strict=True))
    # Each dimension becomes two: which copy, which stays in place in x, and which element of it.
    shape = tuple(part for pair in zip(repeats, sizes, strict=True) for part in pair)
    reads = tuple(part for step in steps for part in (0, step))
    yield from copy_strided(x, out, shape, (0, reads), (0, strides_of(shape)))


@op(*exported("flip"), rows=but_dims("x", "dims"), epilogues=True)
def flip(x: LiveTensor, dims: Ints, out: LiveTensor) -> Iterator[Dispatch]:
    axes = {axis_of(dim, x.rank) for dim in dims if x.rank}
    strides = strides_of(x.shape)
    start = sum((x.shape[axis] - 1) * strides[axis] for axis in axes)
    yield from _read(
        x, out, x.shape, tuple(-step if axis in axes else step for axis, step in enumerate(strides)), start
    )


@op(*exported("roll"), rows=but_dims("x", "dims"), epilogues=True)
def roll(x: LiveTensor, shifts: Ints, dims: Ints, out: LiveTensor) -> Iterator[Dispatch]:
    # Without dims the elements roll as one row.
    shape = x.shape if dims else (x.numel,)
    if len(shifts) != len(dims or (0,)):
        raise ShapeError(f"roll has {len(shifts)} shifts for {len(dims or (0,))} dimensions")
    rolled: dict[int, int] = {}
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        axis = axis_of(dim, x.rank)
        rolled[axis] = rolled.get(axis, 0) + shift
    if len(rolled) > MAX_RANK:  # each doubles the copies
        raise UnsupportedError(f"roll of {len(rolled)} dimensions, {MAX_RANK} are supported")
    strides = strides_of(shape)
    out.shape = x.shape
    regions = [((0,) * len(shape), (0,) * len(shape), shape)]  # first index in x, in out, and sizes
    for axis, shift in rolled.items():
        size = shape[axis]
        ahead = shift % size if size else 0
        cuts = ((0, ahead, size - ahead), (size - ahead, 0, ahead))
        regions = [
            (_put(first, axis, first[axis] + start), _put(place, axis, to), _put(extent, axis, length))
            for first, place, extent in regions
            for start, to, length in cuts
        ]
    for first, place, extent in regions:
        source, target = _dot(first, strides), _dot(place, strides)
        yield from copy_strided(x, out, extent, (source, strides), (target, strides))


@op(*exported("unfold_copy"), rows=but_dims("x", "dim"), **_MOVES)
def unfold_copy(x: LiveTensor, dim: int, size: int, step: int, out: LiveTensor) -> Iterator[Dispatch]:
    axis = axis_of(dim, x.rank)
    if step < 1 or size > x.shape[axis]:
        raise ShapeError(f"windows of {size}, {step} apart, do not fit dimension {dim} of {x.shape}")
    strides = strides_of(x.shape)
    windows = (x.shape[axis] - size) // step + 1
    reads = (*_put(strides, axis, strides[axis] * step), strides[axis])
    yield from _read(x, out, (*_put(x.shape, axis, windows), size), reads)


@op(*exported("as_strided_copy"), reads_as_written=True)
def as_strided_copy(
    x: LiveTensor, size: Ints, stride: Ints, storage_offset: int | None, out: LiveTensor
) -> Iterator[Dispatch]:
    start = 0 if storage_offset is None else storage_offset
    if len(size) != len(stride):
        raise ShapeError(f"{len(size)} sizes {size} and {len(stride)} strides {stride} were given")
    ends = [(extent - 1) * step for extent, step in zip(size, stride, strict=True)]
    first, last = start + sum(end for end in ends if end < 0), start + sum(end for end in ends if end > 0)
    out.shape = size
    if out.numel and (first < 0 or last >= x.numel):
        raise ShapeError(f"sizes {size} with strides {stride} from {start} on reach outside of the {x.numel} elements")
    yield from _read(x, out, size, stride, start)


@op(*exported("diagonal_copy"), rows=on_diagonals, **_MOVES)
def diagonal_copy(x: LiveTensor, offset: int, dim1: int, dim2: int, out: LiveTensor) -> Iterator[Dispatch]:
    one, other = axis_of(dim1, x.rank), axis_of(dim2, x.rank)
    if one == other:
        raise ShapeError(f"a diagonal of {x.shape} lies between two dimensions, {dim1} and {dim2} are one")
    strides = strides_of(x.shape)
    down, right = (0, offset) if offset >= 0 else (-offset, 0)
    rows, columns = x.shape[one] - down, x.shape[other] - right
    length = rows if rows < columns else columns
    kept = tuple(axis for axis in range(x.rank) if axis not in (one, other))
    shape = (*(x.shape[axis] for axis in kept), length if length > 0 else 0)
    reads = (*(strides[axis] for axis in kept), strides[one] + strides[other])
    yield from _read(x, out, shape, reads, down * strides[one] + right * strides[other])


def _put(values: Ints, axis: int, value: int) -> Ints:
    return (*values[:axis], value, *values[axis + 1 :])


def _dot(index: Ints, strides: Ints) -> int:
    return sum(i * stride for i, stride in zip(index, strides, strict=True))
