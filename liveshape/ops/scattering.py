"""Scatter: elements of a source go where an index says, and are stored, added, multiplied or compared there.

WGSL has no atomic float add, and several may go to one place. So each line of the index is sorted, and every
element of the result finds its own by search: the order is that of the source, the last one stored stays, and the
result is deterministic. That costs a sort of the index, 8 bytes for each of its elements (16 where its lines are
longer than 512), and two searches per element of the result. PyTorch raises on an index outside of its dimension; here
it names nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Shape
from liveshape.graph.limits import MAX_TURNS
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.creation import fill
from liveshape.ops.reduction import KINDS
from liveshape.ops.registry import Number, op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import MAX_RANK, axis_of, strides_of
from liveshape.ops.sorting import sorted_pairs

MAX_PASS = MAX_TURNS // 2  # elements that a dispatch adds to one place, beside which there are searches
SCATTER = Kernel.load("indexing/scatter")
_REDUCTIONS = {
    "add": "SUM",
    "multiply": "PRODUCT",
    "sum": "SUM",
    "prod": "PRODUCT",
    "mean": "MEAN",
    "amax": "MAXIMUM",
    "amin": "MINIMUM",
}

Steps = Generator[Dispatch | Scratch, Any, None]


def element_passes(count: int) -> Iterator[dict[str, int]]:
    """The dispatches that one place takes to which all of `count` elements may go.

    >>> list(element_passes(20000))
    [{'skip': 0, 'most': 16384}, {'skip': 16384, 'most': 16384}]
    """
    yield from ({"skip": skip, "most": MAX_PASS} for skip in range(0, max(count, 1), MAX_PASS))


def _scatter(
    function: str,
    x: LiveTensor,
    dim: int,
    index: LiveTensor,
    source: LiveTensor,
    strides: Shape,
    out: LiveTensor,
    include_self: bool = True,
) -> Steps:
    """out = x with function(x, source) where the index says; the source is walked along `strides`."""
    axis = axis_of(dim, x.rank)
    pairs = yield from sorted_pairs(index, axis)
    shape, extents = x.shape or (1,), index.shape or (1,)
    if index.numel and (
        len(shape) != len(extents)
        or any(have > most for other, (have, most) in enumerate(zip(extents, shape, strict=True)) if other != axis)
    ):
        raise ShapeError(f"index {index.shape} does not fit {x.shape} outside of dimension {dim}")
    if len(shape) > MAX_RANK:
        raise UnsupportedError(f"a scatter over the {len(shape)} dimensions of {x.shape}, kernels take {MAX_RANK}")
    if function == "MEAN" and KINDS[x.dtype]:
        raise UnsupportedError(f"a mean of {x.dtype} is not whole; cast to a float before export")
    out.shape = x.shape
    length = extents[axis] if index.numel else 0
    for values in element_passes(0 if function == "SET" else length):
        yield SCATTER(
            out, x, pairs, source, count=x.numel, rank=len(shape), axis=axis, length=length, stride=strides[axis],
            sizes=shape, extents=extents, strides=strides, OP=function, INCLUDE_SELF=include_self, KIND=KINDS[x.dtype],
            threads=x.numel, **values,
        )  # fmt: skip


def _from(
    function: str,
    x: LiveTensor,
    dim: int,
    index: LiveTensor,
    source: LiveTensor,
    out: LiveTensor,
    include_self: bool = True,
) -> Steps:
    if any(have > most for have, most in zip(index.shape, source.shape, strict=False)) or index.rank != source.rank:
        raise ShapeError(f"index {index.shape} does not fit the source {source.shape}")
    yield from _scatter(function, x, dim, index, source, strides_of(source.shape or (1,)), out, include_self)


def _of_value(function: str, x: LiveTensor, dim: int, index: LiveTensor, value: Number, out: LiveTensor) -> Steps:
    source: LiveTensor = yield Scratch(out.dtype, (1,))
    yield from fill((1,), value, source)
    yield from _scatter(function, x, dim, index, source, (0,) * max(x.rank, 1), out)


def _named(reduce: str) -> str:
    if reduce not in _REDUCTIONS:
        raise UnsupportedError(f"reduce {reduce!r} is not one of {', '.join(map(repr, _REDUCTIONS))}")
    return _REDUCTIONS[reduce]


@op("aten.scatter.src", "aten::scatter.src_out", rows=but_dims("x", "dim", "index", "source"))
def scatter(x: LiveTensor, dim: int, index: LiveTensor, source: LiveTensor, out: LiveTensor) -> Steps:
    yield from _from("SET", x, dim, index, source, out)


@op("aten.scatter.value", "aten::scatter.value_out", rows=but_dims("x", "dim", "index"))
def scatter_value(x: LiveTensor, dim: int, index: LiveTensor, value: Number, out: LiveTensor) -> Steps:
    yield from _of_value("SET", x, dim, index, value, out)


@op("aten.scatter_add.default", "aten::scatter_add.out", rows=but_dims("x", "dim", "index", "source"))
def scatter_add(x: LiveTensor, dim: int, index: LiveTensor, source: LiveTensor, out: LiveTensor) -> Steps:
    yield from _from("SUM", x, dim, index, source, out)


@op("aten.scatter.reduce", "aten::scatter.reduce_out", rows=but_dims("x", "dim", "index", "source"))
def scatter_reduced(
    x: LiveTensor, dim: int, index: LiveTensor, source: LiveTensor, reduce: str, out: LiveTensor
) -> Steps:
    yield from _from(_named(reduce), x, dim, index, source, out)


@op("aten.scatter.value_reduce", "aten::scatter.value_reduce_out", rows=but_dims("x", "dim", "index"))
def scatter_value_reduced(
    x: LiveTensor, dim: int, index: LiveTensor, value: Number, reduce: str, out: LiveTensor
) -> Steps:
    yield from _of_value(_named(reduce), x, dim, index, value, out)


@op("aten.scatter_reduce.two", "aten::scatter_reduce.two_out", rows=but_dims("x", "dim", "index", "source"))
def scatter_reduce(
    x: LiveTensor, dim: int, index: LiveTensor, source: LiveTensor, reduce: str, include_self: bool, out: LiveTensor
) -> Steps:
    yield from _from(_named(reduce), x, dim, index, source, out, include_self)
