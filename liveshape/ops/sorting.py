"""Order along a dimension: sort, topk, median and kthvalue, from one stable merge sort of (key, index) pairs.

Keys order as torch orders elements, a NaN above everything. Blocks of a row are sorted in workgroup memory, then runs
merge two by two, so that a row takes one dispatch for 512 elements and one more for each doubling; a top-k merges only
the first k of each run. Where threads are few, one of few elements selects them without a sort.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.creation import fill
from liveshape.ops.reduction import KINDS
from liveshape.ops.registry import Tensors, op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import axis_of, ceil_div

SORT_CHUNKS = Kernel.load("sorting/chunks")
SORT_MERGE = Kernel.load("sorting/merge")
SORT_STORE = Kernel.load("sorting/store")
MERGE_ROWS = Kernel.load("sorting/merge_rows")
LANE_SELECT = Kernel.load("sorting/lane_select")
STORE_SELECTED = Kernel.load("sorting/store_selected")
CHUNK = 512  # of sorting/chunks.wgsl
MOST_SELECTED = 128  # elements of a row, of which each is compared with all
SELECT_PASSES = 10  # over a row, of sorting/lane_select.wgsl

Steps = Generator[Dispatch | GetLimits | Scratch, Any, None]


def sorted_pairs(
    x: LiveTensor, axis: int | None, descending: bool = False, keep: int | None = None
) -> Generator[Dispatch | Scratch, Any, LiveTensor]:
    """(key, index) of every element, a row of `axis` after the other, each row in order as far as its first `keep`.

    Without an axis all elements are one row. Ask before any routing.
    """
    most = prod(x.max_shape)
    pairs: LiveTensor = yield Scratch("int32", (most, 2))
    longest = most if axis is None or not x.rank else x.max_shape[axis]
    spare: LiveTensor = yield Scratch("int32", (most if longest > CHUNK else 0, 2))
    length, inner = _row(x, axis)
    count = x.numel
    block = 1
    while block < length and block < CHUNK:
        block = block * 2
    yield _blocks(pairs, x, length, inner, block, descending)
    width = block
    while width < length:
        yield SORT_MERGE(
            spare, pairs, count=count, length=length, width=width, keep=length if keep is None else keep, threads=count
        )
        pairs, spare, width = spare, pairs, width * 2
    return pairs


def keyed_pairs(x: LiveTensor) -> Generator[Dispatch | Scratch, Any, LiveTensor]:
    """(key, index) of every element in the order of memory."""
    pairs: LiveTensor = yield Scratch("int32", (prod(x.max_shape), 2))
    yield _blocks(pairs, x, x.numel, 1, 1, False)
    return pairs


def row_layout(x: LiveTensor, axis: int) -> dict[str, Any]:
    """The params of sorting/row_order.wgsl: a row is all that has one index along the axis."""
    rows, inner = _row(x, axis)
    return {"rows": rows, "columns": x.numel // rows if rows else 0, "inner": inner, "KIND": _kind(x)}


def ordered_rows(x: LiveTensor, axis: int, *, in_order: bool) -> Generator[Dispatch | Scratch, Any, LiveTensor]:
    """Pairs whose second numbers are the rows of x, as their elements order them or as they are."""
    pairs: LiveTensor = yield Scratch("int32", (x.max_shape[axis], 2))
    spare: LiveTensor = yield Scratch("int32", (x.max_shape[axis], 2))
    layout = row_layout(x, axis)
    rows, width = layout["rows"], 0
    while width == 0 or (in_order and width < rows):
        yield MERGE_ROWS(spare, pairs, x, count=rows, width=width, **layout, threads=rows)
        pairs, spare, width = spare, pairs, width * 2 if width else 1
    return pairs


def _kind(x: LiveTensor) -> int:
    if x.dtype not in KINDS:
        raise UnsupportedError(f"a sort of {x.dtype} is not supported; cast to int32 or a float before export")
    return KINDS[x.dtype]


def _blocks(pairs: LiveTensor, x: LiveTensor, length: int, inner: int, block: int, descending: bool) -> Dispatch:
    row_blocks = ceil_div(length, block)
    blocks = x.numel // length * row_blocks if length else 0
    return SORT_CHUNKS(
        pairs, x, blocks=blocks, row_blocks=row_blocks, block=block, length=length, inner=inner,
        DESCENDING=descending, KIND=_kind(x), groups=ceil_div(blocks * block, CHUNK),
    )  # fmt: skip


def _row(x: LiveTensor, axis: int | None) -> tuple[int, int]:
    """The number of elements of a row, and their stride."""
    return (x.numel, 1) if axis is None or not x.rank else (x.shape[axis], prod(x.shape[axis + 1 :]))


def _store(
    outputs: tuple[LiveTensor | None, ...],  # values and indices, as far as they are wanted
    x: LiveTensor,
    axis: int | None,
    pairs: LiveTensor,
    first: int,
    take: int,
    nan_first: bool = False,
) -> Iterator[Dispatch]:
    """Elements `first` up to `first + take` of every sorted row."""
    length, inner = _row(x, axis)
    count = x.numel // length * take if length else 0
    for place, out in enumerate(outputs):
        if out is not None:
            yield SORT_STORE(
                out, pairs, x, count=count, take=take, first=first, length=length, inner=inner, INDEX=place == 1,
                NAN_FIRST=nan_first, KIND=KINDS[x.dtype], threads=count,
            )  # fmt: skip


@op("aten.sort.stable", "aten::sort.values_stable", rows=but_dims("x", "dim"))
def sort_stable(x: LiveTensor, stable: Any, dim: int, descending: bool, out: Tensors) -> Steps:
    axis = axis_of(dim, x.rank)
    pairs = yield from sorted_pairs(x, axis, descending)
    out[0].shape = out[1].shape = x.shape
    yield from _store(out, x, axis, pairs, 0, _row(x, axis)[0])


@op("aten.sort.default", "aten::sort.values", rows=but_dims("x", "dim"))
def sort(x: LiveTensor, dim: int, descending: bool, out: Tensors) -> Steps:
    yield from sort_stable(x, True, dim, descending, out)


@op("aten.argsort.default", "aten::argsort.out", rows=but_dims("x", "dim"))
def argsort(x: LiveTensor, dim: int, descending: bool, out: LiveTensor) -> Steps:
    axis = axis_of(dim, x.rank)
    pairs = yield from sorted_pairs(x, axis, descending)
    out.shape = x.shape
    yield from _store((None, out), x, axis, pairs, 0, _row(x, axis)[0])


@op("aten.topk.default", "aten::topk.values", rows=but_dims("x", "dim"))
def topk(x: LiveTensor, k: int, dim: int, largest: bool, is_sorted: Any, out: Tensors) -> Steps:
    """In order even where that is not asked for."""
    axis = axis_of(dim, x.rank)
    limits: Limits = yield GetLimits()
    lanes = _selecting_lanes(x, axis, out[0], limits)
    selected: LiveTensor | None = None
    pairs: LiveTensor | None = None
    if lanes:
        selected = yield Scratch("int32", (prod(out[0].max_shape), 2))
    else:
        pairs = yield from sorted_pairs(x, axis, largest, k)
    length, inner = _row(x, axis)
    if not 0 <= k <= length:
        raise ShapeError(f"topk takes {k} of the {length} elements of dimension {dim} of {x.shape}")
    out[0].shape = out[1].shape = _with(x, axis, k)
    if pairs is not None:
        yield from _store(out, x, axis, pairs, 0, k)
        return
    assert selected is not None
    width = 4 if inner == 1 and length % 4 == 0 else 1
    rows = x.numel // length if length and k else 0
    shared = {"inner": inner, "keep": k}
    yield LANE_SELECT(
        selected, x, rows=rows, length=length // width, **shared, VEC=width, WG=lanes, LARGEST=largest, KIND=_kind(x),
        groups=rows,
    )  # fmt: skip
    yield STORE_SELECTED(*out, selected, x, count=rows * k, length=length, **shared, threads=rows * k)


def _selecting_lanes(x: LiveTensor, axis: int, out: LiveTensor, limits: Limits) -> int:
    """The lanes that select some elements of a row; 0 where all are sorted."""
    lanes = limits.few_threads_lanes
    longest, most = (x.max_shape[axis], out.max_shape[axis]) if x.rank else (1, 1)
    turns = SELECT_PASSES * ceil_div(longest, lanes) if lanes else 0
    return lanes if most <= MOST_SELECTED and turns <= limits.max_turns else 0


@op("aten.kthvalue.default", "aten::kthvalue.values", rows=but_dims("x", "dim", keepdim="keepdim"))
def kthvalue(x: LiveTensor, k: int, dim: int, keepdim: bool, out: Tensors) -> Steps:
    axis = axis_of(dim, x.rank)
    pairs = yield from sorted_pairs(x, axis, keep=k)
    length = _row(x, axis)[0]
    if not 1 <= k <= length:
        raise ShapeError(f"kthvalue takes number {k} of the {length} elements of dimension {dim} of {x.shape}")
    out[0].shape = out[1].shape = _reduced(x, axis, keepdim)
    yield from _store(out, x, axis, pairs, k - 1, 1)


@op("aten.median.dim", "aten::median.dim_values", rows=but_dims("x", "dim", keepdim="keepdim"))
def median_dim(x: LiveTensor, dim: int, keepdim: bool, out: Tensors) -> Steps:
    """The lower of the two middle elements; NaN where there is one."""
    axis = axis_of(dim, x.rank)
    pairs = yield from sorted_pairs(x, axis)
    length = _row(x, axis)[0]
    if length == 0:
        raise ShapeError(f"shape {x.shape} has nothing in dimension {dim} to take a median of")
    out[0].shape = out[1].shape = _reduced(x, axis, keepdim)
    yield from _store(out, x, axis, pairs, (length - 1) // 2, 1, nan_first=True)


@op("aten.median.default", "aten::median.out")
def median(x: LiveTensor, out: LiveTensor) -> Steps:
    pairs = yield from sorted_pairs(x, None)
    if x.numel == 0:
        # As torch has it: the median of nothing is no number.
        yield from fill((), float("nan"), out)
    else:
        out.shape = ()
        yield from _store((out,), x, None, pairs, (x.numel - 1) // 2, 1, nan_first=True)


def _with(x: LiveTensor, axis: int, size: int) -> tuple[int, ...]:
    return (*x.shape[:axis], size, *x.shape[axis + 1 :]) if x.rank else ()


def _reduced(x: LiveTensor, axis: int, keepdim: bool) -> tuple[int, ...]:
    return _with(x, axis, 1) if keepdim else (*x.shape[:axis], *x.shape[axis + 1 :])
