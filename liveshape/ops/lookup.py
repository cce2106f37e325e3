"""Gather of rows by an index, which several families share."""

from __future__ import annotations

from liveshape.graph.elements import storage_type
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel

INDEX_SELECT = Kernel.load("indexing/index_select")


def gather_rows(
    out: LiveTensor,
    x: LiveTensor,
    index: LiveTensor,
    outer: int,
    size: int,
    inner: int,
    picks: int = -1,
    wrap: bool = False,
) -> Dispatch:
    """out[outer, pick, inner] = x[outer, index[pick], inner]; `wrap`: a negative index counts from the end."""
    picks = index.numel if picks < 0 else picks
    vector = 4 if inner % 4 == 0 else 1
    count = outer * picks * (inner // vector)
    return INDEX_SELECT(
        out, x, index, count=count, picks=picks, inner=inner // vector, size=size, invalid=invalid_of(x),
        WRAP=wrap, VEC=vector, threads=count,
    )  # fmt: skip


def invalid_of(x: LiveTensor) -> float:
    """What an index outside of x gives."""
    return float("nan") if storage_type(x.dtype) in ("f32", "f16") else 0.0
