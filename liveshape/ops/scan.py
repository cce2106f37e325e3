"""Scans along a dimension: cumsum and cumprod."""

from __future__ import annotations

from typing import Any

from liveshape.graph import Limits, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.reduction import KINDS, Steps
from liveshape.ops.registry import op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import axis_of, ceil_div
from liveshape.ops.stages import thread_elements

# Of elements, and of pairs, which totals of parts are: running totals of all of a line; totals of its parts; running
# totals of a part, given what comes before it.
ELEMENTS, PAIRS = (
    [
        Kernel.load("reduction/cumsum", STAGE=stage, OF=values, STORES="pairs" if stage == "totals" else values)
        for stage in ("whole", "totals", "carried")
    ]
    for values in ("elements", "pairs")
)
MAX_SHARE = 64  # elements of a part, each with a thread


@op("aten.cumsum.default", "aten::cumsum.out", rows=but_dims("x", "dim"))
def cumsum(x: LiveTensor, dim: int, dtype: Any, out: LiveTensor) -> Steps:
    yield from _running(x, dim, out, product=False)


@op("aten.cumprod.default", "aten::cumprod.out", rows=but_dims("x", "dim"))
def cumprod(x: LiveTensor, dim: int, dtype: Any, out: LiveTensor) -> Steps:
    yield from _running(x, dim, out, product=True)


def _running(x: LiveTensor, dim: int, out: LiveTensor, *, product: bool) -> Steps:
    """out = the running totals of x; of long lines, those of the totals of their parts come first."""
    axis = axis_of(dim, x.rank)
    limits: Limits = yield GetLimits()
    most = thread_elements(limits)
    share = max(2, min(MAX_SHARE, most // 4))
    outer, length, inner = _lines(x.max_shape, axis)
    dtype = out.dtype if KINDS.get(out.dtype) else "float32"
    scratch: list[LiveTensor] = []
    while length > most:
        length = ceil_div(length, share)
        for _ in range(2):  # totals of parts, and what runs up to each of them
            scratch.append((yield Scratch(dtype, (outer, length, inner, 2))))
    out.shape = x.shape
    outer, length, inner = _lines(x.shape, axis)

    def values(share: int) -> dict[str, Any]:
        parts = ceil_div(length, share)
        threads = outer * parts * inner
        return {"length": length, "inner": inner, "parts": parts, "share": share, "zero": 0, "PRODUCT": product} | {
            "count": threads, "threads": threads,
        }  # fmt: skip

    source, target, kernels = x, out, ELEMENTS
    carried: list[Dispatch] = []
    for totals, carries in zip(scratch[::2], scratch[1::2], strict=True):
        if length <= most:
            break
        yield kernels[1](totals, source, **values(share))
        carried.append(kernels[2](target, source, carries, **values(share)))
        source, target, length, kernels = totals, carries, ceil_div(length, share), PAIRS
    yield kernels[0](target, source, **values(length or 1))
    yield from reversed(carried)


def _lines(shape: Shape, axis: int) -> tuple[int, int, int]:
    """Lines outside of an axis, their length, and those inside of it."""
    return prod(shape[:axis]), shape[axis] if shape else 1, prod(shape[axis + 1 :])
