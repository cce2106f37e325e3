"""Stream compaction: operators whose results are as large as the data says (nonzero, unique, masks).

Elements are flagged, or say how often they count; a prefix sum over spans of them, and over the spans, gives each its
index, and a binary search finds the element of any index. The host reads the total back and sets the live size from it.
A result keeps the bound of its file, and a total above it is an error.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Read, Scratch
from liveshape.ops.copies import as_dtype, copy_strided, copy_values
from liveshape.ops.lookup import gather_rows
from liveshape.ops.reduction import KINDS
from liveshape.ops.registry import Tensors, op
from liveshape.ops.shapes import Strided, axis_of, broadcast_shapes, broadcast_strides, ceil_div, merge_dims
from liveshape.ops.sorting import keyed_pairs, ordered_rows, row_layout, sorted_pairs

FLAGS = Kernel.load("compaction/flags")
CHANGES = Kernel.load("compaction/changes")
PREFIX_SUMS = Kernel.load("compaction/prefix_sums")
LOCATED = Kernel.load("compaction/located")
COORDINATES = Kernel.load("compaction/coordinates")
SELECTED = Kernel.load("compaction/selected")
MASKED_SCATTER = Kernel.load("compaction/masked_scatter")
UNIQUE_RUNS = Kernel.load("compaction/unique_runs")
ROW_CHANGES = Kernel.load("sorting/row_changes")
SPAN = 4096  # elements that one workgroup adds up

Steps = Generator[Dispatch | Scratch | Read, Any, None]


@dataclass(frozen=True)
class Counts:
    """How often each of `size` elements counts, and from `scan` on the prefix sums of that."""

    sums: LiveTensor
    totals: LiveTensor  # of the spans
    grand_total: LiveTensor
    size: int

    def scan(self) -> Iterator[Dispatch]:
        """A prefix sum in every span, then over the spans."""
        spans = ceil_div(self.size, SPAN)
        yield PREFIX_SUMS(self.sums, self.totals, count=self.size, span=SPAN, groups=spans)
        yield PREFIX_SUMS(self.totals, self.grand_total, count=spans, span=spans, groups=1 if spans else 0)

    def total(self, bound: int) -> Generator[Read, Any, int]:
        """All that was counted, which must not be more than the `bound` of its result."""
        found: int = (yield Read(self.grand_total, 0)) if self.size else 0
        if not 0 <= found <= bound:
            raise ShapeError(
                f"the data gives {found} elements, the file has room for {bound}; export with a larger bound, "
                f"such as torch._check(result.size(0) <= {found})"
            )
        return found

    @property
    def params(self) -> dict[str, int]:
        """The params of compaction/counted.wgsl."""
        return {"size": self.size, "span": SPAN}


def _scratch(bound: int, size: int) -> Generator[Scratch, Any, Counts]:
    sums = yield Scratch("int32", (bound,))
    totals = yield Scratch("int32", (ceil_div(bound, SPAN),))
    grand_total = yield Scratch("int32", (1,))
    return Counts(sums, totals, grand_total, size)


def flagged(mask: LiveTensor, shape: Shape, bound: Shape) -> Generator[Dispatch | Scratch, Any, Counts]:
    """The elements of a mask that are not zero, counted, as it broadcasts to a shape."""
    counts = yield from _scratch(prod(bound), prod(shape))
    sizes, (strides,) = merge_dims(shape, broadcast_strides(mask.shape, shape))
    yield FLAGS(
        counts.sums, mask, count=counts.size, rank=len(sizes), sizes=sizes, strides=strides, threads=counts.size
    )
    yield from counts.scan()
    return counts


@op("aten.nonzero.default", "aten::nonzero.out", reads_data=True)
def nonzero(x: LiveTensor, out: LiveTensor) -> Steps:
    counts = yield from flagged(x, x.shape, x.max_shape)
    total = yield from counts.total(out.max_shape[0])
    out.shape = (total, x.rank)
    yield COORDINATES(
        out, counts.sums, counts.totals, count=total, rank=x.rank, sizes=x.shape, **counts.params, threads=total
    )


@op("aten.masked_select.default", "aten::masked_select.out", reads_data=True)
def masked_select(x: LiveTensor, mask: LiveTensor, out: LiveTensor) -> Steps:
    shape = broadcast_shapes(x.shape, mask.shape)
    counts = yield from flagged(mask, shape, broadcast_shapes(x.max_shape, mask.max_shape))
    total = yield from counts.total(out.max_shape[0])
    out.shape = (total,)
    yield _select(out, x, counts, shape, total, 1)


def select_masked(x: LiveTensor, mask: LiveTensor, axis: int, out: LiveTensor) -> Steps:
    """x[:, mask, :], the mask over the dimensions of x from `axis` on."""
    past = _masked_dims(x, mask, axis)
    counts = yield from flagged(mask, mask.shape, mask.max_shape)
    total = yield from counts.total(out.max_shape[axis])
    out.shape = (*x.shape[:axis], total, *x.shape[past:])
    yield _select(out, x, counts, x.shape, total, prod(x.shape[past:]))


def _select(out: LiveTensor, x: LiveTensor, counts: Counts, shape: Shape, total: int, inner: int) -> Dispatch:
    sizes, (strides,) = merge_dims(shape, broadcast_strides(x.shape, shape))
    return SELECTED(
        out, x, counts.sums, counts.totals, count=out.numel, picks=total, inner=inner, rank=len(sizes), sizes=sizes,
        strides=strides, **counts.params, threads=out.numel,
    )  # fmt: skip


def put_masked(x: LiveTensor, mask: LiveTensor, axis: int, values: LiveTensor, out: LiveTensor) -> Steps:
    """out = x, with x[:, mask, :] = values; the mask lies over the dimensions of x from `axis` on."""
    past = _masked_dims(x, mask, axis)
    values = yield from as_dtype(values, out.dtype)
    counts = yield from flagged(mask, mask.shape, mask.max_shape)
    lead, tail = x.shape[:axis], x.shape[past:]
    # How many there are only the data knows: as many as the values, unless one of them serves all.
    place = len(values.shape) - len(tail) - 1
    picks = values.shape[place] if place >= 0 else 1
    shape = (*lead, picks, *tail)
    if broadcast_shapes(values.shape, shape) != shape:
        raise ShapeError(f"values {values.shape} do not broadcast to the masked {shape}")
    out.shape = x.shape
    yield from copy_values(x, out)
    yield _put(out, values, values.shape, counts, shape, picks, prod(tail))


@op("aten.masked_scatter.default", "aten::masked_scatter.out")
def masked_scatter(x: LiveTensor, mask: LiveTensor, source: LiveTensor, out: LiveTensor) -> Steps:
    """Elements of the source, in order, where the mask is set. If they are too few the last one is taken again."""
    source = yield from as_dtype(source, out.dtype)
    shape = broadcast_shapes(x.shape, mask.shape)
    counts = yield from flagged(mask, shape, broadcast_shapes(x.max_shape, mask.max_shape))
    out.shape = shape
    yield from copy_strided(x, out, Strided(shape, broadcast_strides(x.shape, shape)))
    yield _put(out, source, (source.numel,), counts, (source.numel,), source.numel, 1)


def _put(
    out: LiveTensor, values: LiveTensor, given: Shape, counts: Counts, shape: Shape, picks: int, inner: int
) -> Dispatch:
    """Values, taken as the shape `given` and broadcast to one with `picks` places; nothing where there are none."""
    sizes, (strides,) = merge_dims(shape, broadcast_strides(given, shape))
    return MASKED_SCATTER(
        out, values, counts.sums, counts.totals, count=out.numel, picks=picks, inner=inner, rank=len(sizes),
        sizes=sizes, strides=strides, **counts.params, threads=out.numel if picks else 0,
    )  # fmt: skip


def _masked_dims(x: LiveTensor, mask: LiveTensor, axis: int) -> int:
    past = axis + mask.rank
    if mask.rank == 0:
        raise UnsupportedError("a mask of no dimensions adds one to what it selects; use where")
    if x.shape[axis:past] != mask.shape:
        raise ShapeError(f"a mask of shape {mask.shape} does not lie on dimensions {axis} to {past} of {x.shape}")
    return past


@op("aten.repeat_interleave.Tensor", "aten::repeat_interleave.Tensor_out", reads_data=True)
def repeat_interleave(repeats: LiveTensor, output_size: int | None, out: LiveTensor) -> Steps:
    """The index of every element, as often as it says."""
    if repeats.rank != 1:
        raise ShapeError(f"repeats of one dimension are expected, {repeats.shape} was given")
    counts = yield from _scratch(repeats.max_shape[0], repeats.shape[0])
    yield from copy_values(repeats, counts.sums)
    yield from counts.scan()
    total = yield from counts.total(out.max_shape[0])
    if output_size is not None and output_size != total:
        raise ShapeError(f"output_size {output_size} was given, the repeats add up to {total}")
    out.shape = (total,)
    yield LOCATED(out, counts.sums, counts.totals, count=total, **counts.params, threads=total)


def _unique(x: LiveTensor, inverse: bool, lengths: bool, out: Tensors, *, in_order: bool) -> Steps:
    """The elements of x, one of each, and if asked for which of them each is, and how often it occurs."""
    pairs = yield from (sorted_pairs(x, None) if in_order else keyed_pairs(x))
    counts = yield from _scratch(prod(x.max_shape), x.numel)
    yield CHANGES(counts.sums, pairs, count=counts.size, FLOATS=KINDS[x.dtype] == 0, threads=counts.size)
    yield from counts.scan()
    total = yield from counts.total(out[0].max_shape[0])
    out[0].shape = (total,)
    yield _of_runs("VALUE", out[0], x, pairs, counts, total)
    yield from _described(x.shape, inverse, lengths, out, x, pairs, counts, total)


def _unique_rows(x: LiveTensor, dim: int, inverse: bool, lengths: bool, out: Tensors, *, in_order: bool) -> Steps:
    """The same of all that has one index along a dimension."""
    axis = axis_of(dim, x.rank)
    pairs = yield from ordered_rows(x, axis, in_order=in_order)
    counts = yield from _scratch(x.max_shape[axis], x.shape[axis])
    picks: LiveTensor = yield Scratch("int32", (out[0].max_shape[axis],))
    yield ROW_CHANGES(counts.sums, pairs, x, count=counts.size, **row_layout(x, axis), threads=counts.size)
    yield from counts.scan()
    total = yield from counts.total(out[0].max_shape[axis])
    picks.shape = (total,)
    yield _of_runs("PLACE", picks, x, pairs, counts, total)
    out[0].shape = (*x.shape[:axis], total, *x.shape[axis + 1 :])
    yield gather_rows(out[0], x, picks, prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))
    yield from _described((x.shape[axis],), inverse, lengths, out, x, pairs, counts, total)


def _described(
    shape: Shape,
    inverse: bool,
    lengths: bool,
    out: Tensors,
    x: LiveTensor,
    pairs: LiveTensor,
    counts: Counts,
    total: int,
) -> Iterator[Dispatch]:
    """The run that each element is in, and the length of each run; nothing where it is not asked for."""
    out[1].shape = shape if inverse else (0,)
    out[2].shape = (total,) if lengths else (0,)
    if inverse:
        yield _of_runs("RUN", out[1], x, pairs, counts, counts.size)
    if lengths:
        yield _of_runs("LENGTH", out[2], x, pairs, counts, total)


def _of_runs(what: str, out: LiveTensor, x: LiveTensor, pairs: LiveTensor, counts: Counts, count: int) -> Dispatch:
    return UNIQUE_RUNS(out, x, pairs, counts.sums, counts.totals, count=count, OP=what, **counts.params, threads=count)


@op("aten._unique2.default", "aten::_unique2.out", reads_data=True)
def unique(x: LiveTensor, is_sorted: Any, inverse: bool, lengths: bool, out: Tensors) -> Steps:
    """In order, whether that is asked for or not."""
    yield from _unique(x, inverse, lengths, out, in_order=True)


@op("aten.unique_consecutive.default", "aten::unique_consecutive.out", reads_data=True)
def unique_consecutive(x: LiveTensor, inverse: bool, lengths: bool, dim: int | None, out: Tensors) -> Steps:
    if dim is None:
        yield from _unique(x, inverse, lengths, out, in_order=False)
    else:
        yield from _unique_rows(x, dim, inverse, lengths, out, in_order=False)


@op("aten.unique_dim.default", "aten::unique_dim.out", reads_data=True)
def unique_dim(x: LiveTensor, dim: int, is_sorted: Any, inverse: bool, lengths: bool, out: Tensors) -> Steps:
    yield from _unique_rows(x, dim, inverse, lengths, out, in_order=True)
