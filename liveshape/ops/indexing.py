"""Gathers: embedding, index_select, gather, and advanced indexing with tensors.

PyTorch raises on an index outside of its dimension. So does the executor where the ids of an embedding come from the
caller. A kernel cannot: it reads nothing and gives NaN (zero for integers), and writes nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Read, Scratch
from liveshape.ops.compaction import put_masked, select_masked
from liveshape.ops.copies import as_dtype, copy_values
from liveshape.ops.lookup import gather_rows, invalid_of
from liveshape.ops.moved_rows import gathered, indexed, selected
from liveshape.ops.movement import moved, permute_copy
from liveshape.ops.registry import Tensors, op
from liveshape.ops.row_rules import gathered_rows
from liveshape.ops.scattering import element_passes
from liveshape.ops.shapes import axis_of, broadcast_shapes, broadcast_strides, merge_dims, strides_of
from liveshape.ops.sorting import sorted_pairs

GATHER = Kernel.load("indexing/gather")
LINEAR_INDEX = Kernel.load("indexing/linear_index")
INDEX_PUT = Kernel.load("indexing/index_put")
INDEX_ADD = Kernel.load("indexing/index_add")

Steps = Generator[Dispatch | Scratch | Read, Any, None]


@op(
    "aten.embedding.default",
    "aten::embedding.out",
    gathers=("indices", "weight"),
    rows=gathered_rows("indices"),
    epilogues=True,
)
def embedding(
    weight: LiveTensor, indices: LiveTensor, padding_idx: Any, scale_grad_by_freq: Any, sparse: Any, out: LiveTensor
) -> Iterator[Dispatch]:
    rows, width = weight.shape
    out.shape = (*indices.shape, width)
    yield gather_rows(out, weight, indices, 1, rows, width)


@op("aten.index_select.default", "aten::index_select.out", rows=selected, epilogues=True)
def index_select(x: LiveTensor, dim: int, index: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    if index.rank > 1:
        raise ShapeError(f"index_select takes an index of one dimension, {index.shape} was given")
    axis = axis_of(dim, x.rank)
    lead, tail = x.shape[:axis], x.shape[axis + 1 :]
    size = x.shape[axis] if x.rank else 1
    out.shape = (*lead, index.numel, *tail) if x.rank else ()
    yield gather_rows(out, x, index, prod(lead), size, prod(tail))


@op("aten.gather.default", "aten::gather.out", rows=gathered, epilogues=True)
def gather(x: LiveTensor, dim: int, index: LiveTensor, sparse_grad: Any, out: LiveTensor) -> Iterator[Dispatch]:
    axis = axis_of(dim, x.rank)
    fits = all(
        have <= most for other, (have, most) in enumerate(zip(index.shape, x.shape, strict=False)) if other != axis
    )
    if index.rank != x.rank or not fits:
        raise ShapeError(f"index {index.shape} does not fit {x.shape} outside of dimension {dim}")
    out.shape = index.shape
    strides = strides_of(x.shape)
    index_strides = tuple(0 if other == axis else stride for other, stride in enumerate(strides))
    sizes, (merged,) = merge_dims(index.shape, index_strides)
    count = index.numel
    yield GATHER(
        out, x, index, count=count, rank=len(sizes), size=x.shape[axis] if x.rank else 1,
        stride=strides[axis] if x.rank else 1, invalid=invalid_of(x), sizes=sizes, strides=merged, threads=count,
    )  # fmt: skip


@op("aten.index.Tensor", "aten::index.Tensor_out", masks="indices", rows=indexed)
def index_tensor(x: LiveTensor, indices: Tensors, out: LiveTensor) -> Steps:
    """x[i, j, :, ...]: the indices broadcast together and take the place of the dimensions they index."""
    mask = _mask(indices)
    if mask is not None:
        yield from select_masked(x, indices[mask], mask, out)
        return
    axes = _indexed_axes(x, indices)
    chosen = [indices[axis] for axis in axes]
    separated = axes != tuple(range(axes[0], axes[0] + len(axes)))
    order = (*axes, *(axis for axis in range(x.rank) if axis not in axes))
    if separated:  # indices with dimensions between them go to the front, so their dimensions do
        permuted: LiveTensor = yield Scratch(x.dtype, tuple(x.max_shape[axis] for axis in order))
        yield from moved(permute_copy, x, order, permuted)
        x = permuted
        axes = tuple(range(len(axes)))
    linear = yield from _linear(x, axes, chosen)
    first, past = axes[0], axes[-1] + 1
    picked = broadcast_shapes(*(index.shape for index in chosen))
    out.shape = (*x.shape[:first], *picked, *x.shape[past:])
    outer, size, inner = prod(x.shape[:first]), prod(x.shape[first:past]), prod(x.shape[past:])
    yield gather_rows(out, x, linear, outer, size, inner, prod(picked), wrap=len(chosen) == 1)


@op("aten.index_put.default", "aten::index_put.out")
def index_put(x: LiveTensor, indices: Tensors, values: LiveTensor, accumulate: bool, out: LiveTensor) -> Steps:
    mask = _mask(indices)
    if mask is not None and not accumulate:
        yield from put_masked(x, indices[mask], mask, values, out)
        return
    axes = _indexed_axes(x, indices)
    chosen = [indices[axis] for axis in axes]
    if axes != tuple(range(axes[0], axes[0] + len(axes))):
        raise UnsupportedError(f"index_put at dimensions {axes} of {x.shape}: they must follow each other")
    values = yield from as_dtype(values, out.dtype)
    linear = yield from _linear(x, axes, chosen, wrapped=True)
    first, past = axes[0], axes[-1] + 1
    picked = broadcast_shapes(*(index.shape for index in chosen))
    shape = (*x.shape[:first], *picked, *x.shape[past:])
    if broadcast_shapes(values.shape, shape) != shape:
        raise ShapeError(f"values {values.shape} do not broadcast to the indexed {shape}")
    where = (yield from sorted_pairs(linear, None)) if accumulate else linear
    out.shape = x.shape
    yield from copy_values(x, out)
    sizes, (strides,) = merge_dims(shape, broadcast_strides(values.shape, shape))
    places: dict[str, Any] = {
        "picks": prod(picked),
        "inner": prod(x.shape[past:]),
        "size": prod(x.shape[first:past]),
        "rank": len(sizes),
        "sizes": sizes,
        "strides": strides,
    }
    if not accumulate:
        yield INDEX_PUT(out, where, values, **places, count=prod(shape), threads=prod(shape))
        return
    for passed in element_passes(prod(picked)):
        yield INDEX_ADD(out, where, values, **places, **passed, count=x.numel, threads=x.numel)


@op("aten.index_put_.default", "aten::index_put_", mutates=("x",))
def index_put_(x: LiveTensor, indices: Tensors, values: LiveTensor, accumulate: bool, out: LiveTensor) -> Steps:
    yield from index_put(x, indices, values, accumulate, out)


def _mask(indices: Tensors) -> int | None:
    """The dimension that a mask begins at, where it is the only index."""
    given = [axis for axis, index in enumerate(indices) if index is not None]
    return given[0] if len(given) == 1 and indices[given[0]].dtype == "bool" else None


def _indexed_axes(x: LiveTensor, indices: Tensors) -> Shape:
    axes = tuple(axis for axis, index in enumerate(indices) if index is not None)
    if not axes or len(indices) > x.rank:
        raise ShapeError(f"{len(axes)} indices given for {x.shape}")
    if any(indices[axis].dtype == "bool" for axis in axes):
        raise UnsupportedError("a mask beside other indices, or one that is added to, is not supported; use where")
    return axes


def _linear(
    x: LiveTensor, axes: Shape, chosen: list[LiveTensor], wrapped: bool = False
) -> Generator[Dispatch | Scratch, Any, LiveTensor]:
    """The indices of neighbouring dimensions as one index into those dimensions merged; -1 where one is outside."""
    if len(chosen) == 1 and not wrapped:
        return chosen[0]
    bound = broadcast_shapes(*(index.max_shape for index in chosen))
    linear: LiveTensor = yield Scratch("int32", bound)
    linear.shape = shape = broadcast_shapes(*(index.shape for index in chosen))
    for position, (axis, index) in enumerate(zip(axes, chosen, strict=True)):
        sizes, (strides,) = merge_dims(shape, broadcast_strides(index.shape, shape))
        yield LINEAR_INDEX(
            linear, index, count=prod(shape), rank=len(sizes), size=x.shape[axis], sizes=sizes, strides=strides,
            FIRST_DIMENSION=position == 0, threads=prod(shape),
        )  # fmt: skip
    return linear
