"""Distances between rows, of two tensors or of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Shape
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.registry import op
from liveshape.ops.shapes import broadcast_shapes, merge_dims, strides_of

DISTANCES = Kernel.load("reduction/distances")
_NORMS = {0.0: "COUNT", 1.0: "SUM", 2.0: "EUCLID", float("inf"): "MAXIMUM"}


@op("aten._cdist_forward.default", "aten::_cdist_forward.out")
def cdist(a: LiveTensor, b: LiveTensor, p: float, compute_mode: Any, out: LiveTensor) -> Iterator[Dispatch]:
    """Always by differences, which loses less than the product that torch may take for many rows."""
    if a.rank < 2 or b.rank < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"rows of {a.shape} and of {b.shape} have no distance")
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out.shape = (*batch, a.shape[-2], b.shape[-2])
    yield _distances(out, a, b, p, batch, out.numel)


@op("aten._pdist_forward.default", "aten::_pdist_forward.out")
def pdist(x: LiveTensor, p: float, out: LiveTensor) -> Iterator[Dispatch]:
    if x.rank != 2:
        raise ShapeError(f"pdist takes rows, {x.shape} was given")
    rows = x.shape[0]
    out.shape = (rows * (rows - 1) // 2,)
    yield _distances(out, x, x, p, (), rows * rows, pairs=True)


def _distances(
    out: LiveTensor, a: LiveTensor, b: LiveTensor, p: float, batch: Shape, count: int, pairs: bool = False
) -> Dispatch:
    sizes, (of_a, of_b) = merge_dims(batch, _batch_strides(a, batch), _batch_strides(b, batch))
    return DISTANCES(
        out,
        a,
        b,
        count=count,
        rows=a.shape[-2],
        columns=b.shape[-2],
        width=a.shape[-1],
        p=p,
        rank=len(sizes),
        source_start=0,
        target_start=0,
        sizes=sizes,
        source_strides=of_a,
        target_strides=of_b,
        NORM=_NORMS.get(p, "OTHER"),
        PAIRS=pairs,
        threads=count,
        turns=a.shape[-1],
    )


def _batch_strides(x: LiveTensor, batch: Shape) -> Shape:
    """Strides over the batch, zero where x repeats."""
    own = zip(x.shape[:-2], strides_of(x.shape)[:-2], strict=True)
    return (0,) * (len(batch) - x.rank + 2) + tuple(0 if size == 1 else stride for size, stride in own)
