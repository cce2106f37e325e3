"""Arithmetic on shapes that operators share: axes, strides, broadcasting, and coalescing dimensions."""

from __future__ import annotations

from typing import Any, NamedTuple

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Shape
from liveshape.graph.elements import prod

MAX_RANK = 8  # what the Params of the strided kernels hold


def ceil_div(a: int, b: int) -> int:
    """
    >>> ceil_div(7, 4)
    2
    """
    return -(-a // b)


def axis_of(dim: int, rank: int) -> int:
    """A dimension counted from the front; a scalar has the one dimension that PyTorch grants it."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise ShapeError(f"dimension {dim} is outside a tensor of rank {rank}")
    return dim + max(rank, 1) if dim < 0 else dim


def strides_of(shape: Shape) -> Shape:
    """Element strides of a contiguous tensor.

    >>> strides_of((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


class Strided(NamedTuple):
    """How a tensor is read or written: a shape, a stride of each dimension, and the first element.

    What an operator is given has its `max_shape`, too.
    """

    shape: Shape
    strides: Shape
    start: int = 0
    max_shape: Shape = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @classmethod
    def contiguous(cls, shape: Shape, start: int = 0) -> Strided:
        """
        >>> Strided.contiguous((2, 3)).strides
        (3, 1)
        """
        return cls(shape, strides_of(shape), start)

    def put(self, axis: int, size: int, stride: int, first: int = 0) -> Strided:
        """Another size and stride along an axis, and so many elements further along it.

        >>> Strided.contiguous((4, 3)).put(0, 2, 6, 3)[:3]
        ((2, 3), (6, 1), 3)
        """
        shape = (*self.shape[:axis], size, *self.shape[axis + 1 :])
        return Strided(shape, (*self.strides[:axis], stride, *self.strides[axis + 1 :]), self.start + first)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that all of them broadcast to.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    rank = max(len(shape) for shape in shapes)
    result = []
    for column in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        size = next((size for size in column if size != 1), 1)
        if any(other not in (1, size) for other in column):
            raise ShapeError(f"shapes {' and '.join(map(str, shapes))} do not broadcast together")
        result.append(size)
    return tuple(result)


def broadcast_strides(shape: Shape, target: Shape, strides: Shape | None = None) -> Shape:
    """Strides that read `shape` as if it were `target`: zero along every broadcast dimension; its own, or contiguous.

    >>> broadcast_strides((3, 1), (2, 3, 4))
    (0, 1, 0)
    """
    lead = len(target) - len(shape)
    strides = strides_of(shape) if strides is None else strides
    return (0,) * lead + tuple(0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True))


def merge_dims(shape: Shape, *strides: Shape) -> tuple[Shape, tuple[Shape, ...]]:
    """Coalesce dimensions: drop those of one and merge neighbours that are one stride in every operand, innermost last.

    >>> merge_dims((2, 3, 4), (12, 4, 1), (0, 4, 1))
    ((2, 12), ((12, 1), (0, 1)))
    """
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(steps[-1] == row[axis] * size for steps, row in zip(merged, strides, strict=True)):
            sizes[-1] = sizes[-1] * size
            for steps, row in zip(merged, strides, strict=True):
                steps[-1] = row[axis]
        else:
            sizes.append(size)
            for steps, row in zip(merged, strides, strict=True):
                steps.append(row[axis])
    if len(sizes) > MAX_RANK:
        raise UnsupportedError(f"shape {shape} keeps {len(sizes)} independent dimensions, kernels take {MAX_RANK}")
    return tuple(sizes), tuple(tuple(steps) for steps in merged)


def resolve_sizes(sizes: Shape, numel: int) -> Shape:
    """A size list with at most one -1 filled in so that it holds `numel` elements.

    >>> resolve_sizes((2, -1), 6)
    (2, 3)
    """
    if -1 in sizes:
        rest = prod(size for size in sizes if size != -1)
        if rest == 0 or numel % rest or sizes.count(-1) > 1:
            raise ShapeError(f"sizes {sizes} cannot hold {numel} elements")
        sizes = tuple(numel // rest if size == -1 else size for size in sizes)
    if prod(sizes) != numel:
        raise ShapeError(f"sizes {sizes} hold {prod(sizes)} elements, the live tensor has {numel}")
    return sizes


def without(values: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    """
    >>> without((2, 3, 4), 1)
    (2, 4)
    """
    return values[:axis] + values[axis + 1 :]


def in_three(sizes: Shape, missing: int = 1) -> Shape:
    """One to three sizes as those of depth, height and width.

    >>> in_three((5, 7))
    (1, 5, 7)
    """
    return (missing,) * (3 - len(sizes)) + sizes


def index_in(index: int, size: int) -> int:
    """An index counted from the front, or a ShapeError where it lies outside."""
    if index < -size or index >= size:
        raise ShapeError(f"index {index} is outside a dimension of live size {size}")
    return index + size if index < 0 else index


def slice_bounds(start: int | None, end: int | None, step: int, size: int) -> tuple[int, int]:
    """The first index and the number of elements of a slice, cut to the dimension as Python cuts it.

    >>> slice_bounds(-3, None, 2, 10), slice_bounds(7, 2, 1, 10)
    ((7, 2), (7, 0))
    """
    if step < 1:
        raise ShapeError(f"a slice takes steps of at least one, {step} was given")
    first = _cut(0 if start is None else start, size)
    stop = _cut(size if end is None else end, size)
    return first, ceil_div(max(stop - first, 0), step)


def _cut(index: int, size: int) -> int:
    index = index + size if index < 0 else index
    return 0 if index < 0 else size if index > size else index
