"""Running totals along a dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.registry import op
from liveshape.ops.shapes import axis_of

CUMSUM = Kernel.load("cumsum")


@op("aten.cumsum.default", "aten::cumsum.out")
def cumsum(x: LiveTensor, dim: int, dtype: Any, out: LiveTensor) -> Iterator[Dispatch]:
    out.shape = x.shape
    axis = axis_of(dim, x.rank)
    length = x.shape[axis] if x.rank else 1
    inner = prod(x.shape[axis + 1 :])
    lines = prod(x.shape[:axis]) * inner
    yield CUMSUM(out, x, count=lines, length=length, inner=inner, threads=lines if length else 0)
