"""Scans along a dimension: cumsum and cumprod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.graph import Limits, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.reduction import KINDS, Steps
from liveshape.ops.registry import Tensors, op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import axis_of, ceil_div
from liveshape.ops.stages import thread_elements

# Of elements, and of pairs, which totals of parts are: running totals of all of a line; totals of its parts; running
# totals of a part, given what comes before it.
ELEMENTS, PAIRS = (
    tuple(Kernel.load("reduction/cumsum", STAGES=stage, OF=values) for stage in ("none", "totals", "carried"))
    for values in ("elements", "pairs")
)
MAX_SPAN = 64  # elements of a part, each with a thread


@op("aten.cumsum.default", "aten::cumsum.out", rows=but_dims("x", "dim"))
def cumsum(x: LiveTensor, dim: int, dtype: Any, out: LiveTensor) -> Steps:
    yield from _running(x, dim, out, product=False)


@op("aten.cumprod.default", "aten::cumprod.out", rows=but_dims("x", "dim"))
def cumprod(x: LiveTensor, dim: int, dtype: Any, out: LiveTensor) -> Steps:
    yield from _running(x, dim, out, product=True)


def _running(x: LiveTensor, dim: int, out: LiveTensor, *, product: bool) -> Steps:
    axis = axis_of(dim, x.rank)
    limits: Limits = yield GetLimits()
    most = thread_elements(limits)
    span = max(2, min(MAX_SPAN, most // 4))
    # Of each level the totals of its parts, and what runs up to each of them.
    scratch: list[LiveTensor] = []
    outer, length, inner = _lines(x.max_shape, axis)
    dtype = out.dtype if KINDS.get(out.dtype) else "float32"
    while length > most:
        length = ceil_div(length, span)
        for _ in range(2):
            scratch.append((yield Scratch(dtype, (outer, length, inner, 2))))
    out.shape = x.shape
    yield from _levels(x, out, *_lines(x.shape, axis), tuple(scratch), most, span, product, ELEMENTS)


def _lines(shape: Shape, axis: int) -> tuple[int, int, int]:
    """Lines outside of an axis, their length, and those inside of it."""
    return prod(shape[:axis]), shape[axis] if shape else 1, prod(shape[axis + 1 :])


def _levels(
    x: LiveTensor,
    out: LiveTensor,
    outer: int,
    length: int,
    inner: int,
    scratch: Tensors,
    most: int,
    span: int,
    product: bool,
    kernels: tuple[Kernel, ...],
) -> Iterator[Dispatch]:
    """out = the running totals of x; of long lines, those of the totals of their parts come first."""
    whole, find_totals, carry = kernels
    values: dict[str, Any] = {"length": length, "inner": inner, "zero": 0, "PRODUCT": product}
    if length <= most:
        lines = outer * inner
        yield whole(out, x, **values, count=lines, threads=lines if length else 0)
        return
    totals, carries, *deeper = scratch
    parts = ceil_div(length, span)
    threads = outer * parts * inner
    values |= {"span": span, "parts": parts, "count": threads, "threads": threads}
    yield find_totals(totals, x, **values)
    yield from _levels(totals, carries, outer, parts, inner, tuple(deeper), most, span, product, PAIRS)
    yield carry(out, x, carries, **values)
