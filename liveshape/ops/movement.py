"""Operators that read a tensor along other strides. Each is a function of layouts, from that of its first argument to
those of its results: its copy, its row rule, and in lower/ its live sizes and its index map follow from it.

@movement("aten.t.default")
def t(x: Strided, out: LiveTensor) -> Strided:
    return Strided(x.shape[::-1], x.strides[::-1])
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Role
from liveshape.kernels import Dispatch
from liveshape.ops.copies import copy_strided, copy_values
from liveshape.ops.moved_rows import repeated, rows_of
from liveshape.ops.registry import Ints, Tensors, exported, op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import (
    MAX_RANK,
    Strided,
    axis_of,
    broadcast_strides,
    ceil_div,
    index_in,
    slice_bounds,
    strides_of,
    without,
)

Define = TypeVar("Define", bound=Callable[..., Any])
_ONE: dict[str, Any] = {"epilogues": True}  # result


def movement(*names: str, alias: bool = False, **traits: Any) -> Callable[[Define], Define]:
    """Register a movement under its exported names, by where its results lie in its first argument."""

    def register(define: Define) -> Define:
        @functools.wraps(define)
        def run(x: LiveTensor, *given: Any) -> Iterator[Dispatch]:
            yield from moved(define, x, *given, alias=alias)

        run.__annotations__ = define.__annotations__ | {"x": LiveTensor}
        declared: dict[str, Any] = {"rows": rows_of(define), "moves": define, "reads_as_written": True} | traits
        op(*names, alias=alias, **declared)(run)
        return define

    return register


def moved(define: Callable[..., Any], x: LiveTensor, *given: Any, alias: bool = False) -> Iterator[Dispatch]:
    """Copy to the result of a movement, the last that is given, or to each; an alias has the elements in order.

    Example: `yield from moved(permute_copy, x, (1, 0), out)`.
    """
    out = given[-1]
    layouts = define(Strided(x.shape, strides_of(x.shape), 0, x.max_shape), *given)
    several = isinstance(out, tuple)
    for part, layout in zip(out if several else (out,), layouts if several else (layouts,), strict=True):
        part.shape = layout.shape
        yield from copy_values(x, part) if alias else copy_strided(x, part, layout)


@movement(*exported("permute_copy"), "aten.permute.default", any_size=True, **_ONE)
def permute_copy(x: Strided, dims: Ints, out: LiveTensor) -> Strided:
    axes = tuple(axis_of(dim, x.rank) for dim in dims)
    if tuple(sorted(axes)) != tuple(range(x.rank)):
        raise ShapeError(f"{dims} is not an order of the {x.rank} dimensions of {x.shape}")
    return Strided(tuple(x.shape[axis] for axis in axes), tuple(x.strides[axis] for axis in axes))


@movement(*exported("transpose_copy", "int"), "aten.transpose.int", **_ONE)
def transpose_copy(x: Strided, dim0: int, dim1: int, out: LiveTensor) -> Strided:
    order = [*range(x.rank)]
    one, other = axis_of(dim0, x.rank), axis_of(dim1, x.rank)
    if order:
        order[one], order[other] = other, one
    return permute_copy(x, tuple(order), out)


@movement(*exported("t_copy"), "aten.t.default", **_ONE)
def t_copy(x: Strided, out: LiveTensor) -> Strided:
    if x.rank > 2:
        raise ShapeError(f"t takes at most two dimensions, {x.shape} has {x.rank}")
    return Strided(x.shape[::-1], x.strides[::-1])


@movement(*exported("slice_copy", "Tensor"), role=Role.SLICE, **_ONE)
def slice_copy(x: Strided, dim: int, start: int | None, end: int | None, step: int, out: LiveTensor) -> Strided:
    axis = axis_of(dim, x.rank)
    first, count = slice_bounds(start, end, step, x.shape[axis])
    return x.put(axis, count, x.strides[axis] * step, first * x.strides[axis])


@movement(*exported("narrow_copy"), **_ONE)
def narrow_copy(x: Strided, dim: int, start: int, length: int, out: LiveTensor) -> Strided:
    first = start + x.shape[axis_of(dim, x.rank)] if start < 0 else start
    return slice_copy(x, dim, first, first + length, 1, out)


@movement(*exported("select_copy", "int"), role=Role.SELECT, **_ONE)
def select_copy(x: Strided, dim: int, index: int, out: LiveTensor) -> Strided:
    axis = axis_of(dim, x.rank)
    start = index_in(index, x.shape[axis]) * x.strides[axis]
    return Strided(without(x.shape, axis), without(x.strides, axis), start)


@movement(*exported("split_with_sizes_copy"))
def split_with_sizes_copy(x: Strided, sizes: Ints, dim: int, out: Tensors) -> list[Strided]:
    axis = axis_of(dim, x.rank)
    if sum(sizes) != x.shape[axis] or len(sizes) != len(out):
        raise ShapeError(f"sizes {sizes} do not split dimension {dim} of {x.shape} into {len(out)} parts")
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    parts = zip(starts, sizes, out, strict=True)
    return [slice_copy(x, dim, start, start + size, 1, part) for start, size, part in parts]


@movement(*exported("split_copy", "Tensor"))
def split_copy(x: Strided, split_size: int, dim: int, out: Tensors) -> list[Strided]:
    # A live size may need fewer parts than the bound does; the rest are empty.
    starts = [place * split_size for place in range(len(out))]
    return [slice_copy(x, dim, start, start + split_size, 1, part) for start, part in zip(starts, out, strict=True)]


@movement("aten.chunk.default")
def chunk(x: Strided, chunks: int, dim: int, out: Tensors) -> list[Strided]:
    return split_copy(x, ceil_div(x.shape[axis_of(dim, x.rank)], chunks), dim, out)


@movement(*exported("unbind_copy", "int"))
def unbind_copy(x: Strided, dim: int, out: Tensors) -> list[Strided]:
    if x.shape[axis_of(dim, x.rank)] != len(out):
        raise ShapeError(f"dimension {dim} of {x.shape} is unbound to {len(out)} tensors")
    return [select_copy(x, dim, index, part) for index, part in enumerate(out)]


@movement(*exported("expand_copy"), **_ONE)
def expand_copy(x: Strided, size: Ints, implicit: bool, out: LiveTensor) -> Strided:
    lead = len(size) - x.rank
    given = (1,) * lead + x.shape
    shape = tuple(given[axis] if wanted == -1 else wanted for axis, wanted in enumerate(size))
    if lead < 0 or any(have != 1 and have != wanted for have, wanted in zip(given, shape, strict=True)):
        raise ShapeError(f"{x.shape} cannot be expanded to {size}")
    return Strided(shape, broadcast_strides(x.shape, shape, x.strides))


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
    yield from copy_strided(x, out, Strided(shape, tuple(part for step in steps for part in (0, step))))


@movement(*exported("flip"), **_ONE)
def flip(x: Strided, dims: Ints, out: LiveTensor) -> Strided:
    for axis in {axis_of(dim, x.rank) for dim in dims if x.rank}:
        x = x.put(axis, x.shape[axis], -x.strides[axis], (x.shape[axis] - 1) * x.strides[axis])
    return x


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
    out.shape = x.shape
    whole = Strided.contiguous(shape)
    regions = [(whole, whole)]  # of x and of out
    for axis, shift in rolled.items():
        size, stride = shape[axis], whole.strides[axis]
        ahead = shift % size if size else 0
        cuts = ((0, ahead, size - ahead), (size - ahead, 0, ahead))
        regions = [
            (source.put(axis, length, stride, start * stride), target.put(axis, length, stride, to * stride))
            for source, target in regions
            for start, to, length in cuts
        ]
    for source, target in regions:
        yield from copy_strided(x, out, source, target)


@movement(*exported("unfold_copy"), **_ONE)
def unfold_copy(x: Strided, dim: int, size: int, step: int, out: LiveTensor) -> Strided:
    axis = axis_of(dim, x.rank)
    if step < 1 or size > x.shape[axis]:
        raise ShapeError(f"windows of {size}, {step} apart, do not fit dimension {dim} of {x.shape}")
    stride = x.strides[axis]
    windows = x.put(axis, (x.shape[axis] - size) // step + 1, stride * step)
    return Strided((*windows.shape, size), (*windows.strides, stride))


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
    yield from copy_strided(x, out, Strided(size, stride, start))


@movement(*exported("diagonal_copy"), **_ONE)
def diagonal_copy(x: Strided, offset: int, dim1: int, dim2: int, out: LiveTensor) -> Strided:
    one, other = axis_of(dim1, x.rank), axis_of(dim2, x.rank)
    if one == other:
        raise ShapeError(f"a diagonal of {x.shape} lies between two dimensions, {dim1} and {dim2} are one")
    down, right = (0, offset) if offset >= 0 else (-offset, 0)
    length = max(min(x.shape[one] - down, x.shape[other] - right), 0)
    kept = tuple(axis for axis in range(x.rank) if axis not in (one, other))
    shape = (*(x.shape[axis] for axis in kept), length)
    strides = (*(x.strides[axis] for axis in kept), x.strides[one] + x.strides[other])
    return Strided(shape, strides, down * x.strides[one] + right * x.strides[other])
