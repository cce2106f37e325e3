"""Binary arithmetic with broadcasting."""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.dtypes import prod
from liveshape.graph import Tensor
from liveshape.kernel import Dispatch, Kernel
from liveshape.ops.registry import Number, op
from liveshape.ops.shapes import broadcast_shapes, broadcast_strides, ceil_div, merge_dims

BINARY = Kernel.load("binary")
BINARY_STRIDED = Kernel.load("binary_strided")
ADD, SUB, MUL, DIV = range(4)


def binary(code: int, a: Tensor, b: Tensor, out: Tensor, alpha: Number = 1) -> Iterator[Dispatch]:
    """out = code(a, alpha * b) over the broadcast shape."""
    out.shape = shape = broadcast_shapes(a.shape, b.shape)
    if a.shape == b.shape:
        vectors = ceil_div(out.numel, 4)
        yield BINARY(out, a, b, vectors=vectors, alpha=alpha, OP=code, threads=vectors)
        return
    strides = broadcast_strides(a.shape, shape), broadcast_strides(b.shape, shape)
    sizes, (a_strides, b_strides) = merge_dims(shape, *strides)
    count = prod(shape)
    yield BINARY_STRIDED(
        out, a, b, count=count, rank=len(sizes), alpha=alpha, sizes=sizes, a_strides=a_strides, b_strides=b_strides,
        OP=code, threads=count,
    )  # fmt: skip


@op("aten.add.Tensor", "aten::add.out")
def add(a: Tensor, b: Tensor, alpha: Number, out: Tensor) -> Iterator[Dispatch]:
    yield from binary(ADD, a, b, out, alpha)
