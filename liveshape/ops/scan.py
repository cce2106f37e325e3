"""Scans along a dimension: cumsum and cumprod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.registry import op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import axis_of

CUMSUM = Kernel.load("reduction/cumsum")


@op("aten.cumsum.default", "aten::cumsum.out", rows=but_dims("x", "dim"))
def cumsum(x: LiveTensor, dim: int, dtype: Any, out: LiveTensor) -> Iterator[Dispatch]:
    yield from _running(x, dim, out, product=False)


@op("aten.cumprod.default", "aten::cumprod.out", rows=but_dims("x", "dim"))
def cumprod(x: LiveTensor, dim: int, dtype: Any, out: LiveTensor) -> Iterator[Dispatch]:
    yield from _running(x, dim, out, product=True)


def _running(x: LiveTensor, dim: int, out: LiveTensor, *, product: bool) -> Iterator[Dispatch]:
    out.shape = x.shape
    axis = axis_of(dim, x.rank)
    length = x.shape[axis] if x.rank else 1
    inner = prod(x.shape[axis + 1 :])
    lines = prod(x.shape[:axis]) * inner
    threads = lines if length else 0
    yield CUMSUM(out, x, count=lines, length=length, inner=inner, PRODUCT=product, threads=threads)
