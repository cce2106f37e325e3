"""Gather of rows by an index, which several families share."""

from __future__ import annotations

from liveshape.graph.elements import storage_type
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel

INDEX_SELECT = Kernel.load("indexing/index_select")
PACKED_INDEX_SELECT = Kernel.load("indexing/index_select", ELEMENTS="packed")


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


def gather_packed_rows(out: LiveTensor, x: LiveTensor, index: LiveTensor, size: int, width: int) -> Dispatch:
    """The same of rows of elements that lie four to a word, whole words to a row."""
    words = width // 4
    count = index.numel * words
    return PACKED_INDEX_SELECT(
        out, x, index, count=count, picks=index.numel, inner=words, size=size, invalid=0, threads=count
    )


def invalid_of(x: LiveTensor) -> float:
    """What an index outside of x gives."""
    return float("nan") if storage_type(x.dtype) in ("f32", "f16") else 0.0
