"""Copies between tensors: whole, converted, or along strides. Movement operators plan through these."""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.dtypes import prod
from liveshape.graph import Shape, Tensor
from liveshape.kernel import Dispatch, Kernel
from liveshape.ops.shapes import ceil_div, merge_dims

CONVERT = Kernel.load("convert")
STRIDED_COPY = Kernel.load("strided_copy")


def copy_values(x: Tensor, out: Tensor) -> Iterator[Dispatch]:
    """Every live element of x to out, converted to out's type; nothing at all where they share memory."""
    if out.storage is not x.storage:
        yield CONVERT(out, x, vectors=ceil_div(x.numel, 4), TO_BOOL=out.dtype == "bool", threads=ceil_div(x.numel, 4))


def copy_strided(
    x: Tensor, out: Tensor, shape: Shape, source: tuple[int, Shape], target: tuple[int, Shape]
) -> Iterator[Dispatch]:
    """Element i of `shape` from x at source (offset, strides) to out at target (offset, strides)."""
    sizes, (from_strides, to_strides) = merge_dims(shape, source[1], target[1])
    count = prod(shape)
    yield STRIDED_COPY(
        out,
        x,
        count=count,
        rank=len(sizes),
        source=source[0],
        target=target[0],
        sizes=sizes,
        source_strides=from_strides,
        target_strides=to_strides,
        threads=count,
    )
