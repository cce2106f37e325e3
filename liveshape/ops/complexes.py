"""Complex arithmetic: the elementwise functions that real tensors have, too, and complex from real and imaginary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.graph import Shape
from liveshape.graph.elements import is_complex
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.broadcasting import broadcast_layout
from liveshape.ops.registry import Number, op
from liveshape.ops.row_rules import elementwise
from liveshape.ops.scalars import float_of
from liveshape.ops.shapes import broadcast_shapes, ceil_div

COMPLEX_UNARY = Kernel.load("complex/unary")
COMPLEX_MAGNITUDE = Kernel.load("complex/magnitude")
COMPLEX_PAIR = Kernel.load("complex/pair")
COMPLEX_BINARY = Kernel.load("complex/binary")
COMPLEX_BY_REAL = Kernel.load("complex/binary", REAL="real_right")
REAL_BY_COMPLEX = Kernel.load("complex/binary", REAL="real_left")


def complex_unary(function: str, x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    """out = function(x) of complex numbers, under the names of elementwise/unary_functions.wgsl."""
    out.shape = x.shape
    count = x.numel
    if function in ("ABS", "ANGLE"):
        vectors = ceil_div(count, 4)
        yield COMPLEX_MAGNITUDE(out, x, count=vectors, elements=count, ANGLE=function == "ANGLE", threads=vectors)
    else:
        yield COMPLEX_UNARY(out, x, count=count, OP=function, threads=count)


def complex_binary(
    function: str, a: LiveTensor, b: LiveTensor, out: LiveTensor, alpha: Number = 1
) -> Iterator[Dispatch]:
    """out = function(a, b) where one of them is complex; b is scaled by alpha in a sum or a difference."""
    out.shape = shape = broadcast_shapes(a.shape, b.shape)
    kernel = COMPLEX_BINARY
    if not is_complex(b.dtype):
        kernel = COMPLEX_BY_REAL
    elif not is_complex(a.dtype):
        kernel = REAL_BY_COMPLEX
    yield kernel(out, a, b, alpha=float_of(alpha), OP=function, **_walk(shape, a.shape, b.shape))


@op("aten._conj_physical.default", "aten::_conj_physical.out", "aten.conj_physical.default", "aten::conj_physical.out",
    "aten._conj_copy.default", "aten::_conj_copy.out", rows=elementwise())  # fmt: skip
def conj_physical(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from complex_unary("CONJUGATE", x, out)


@op("aten.complex.default", "aten::complex.out", rows=elementwise())
def complex_of(real: LiveTensor, imaginary: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    out.shape = shape = broadcast_shapes(real.shape, imaginary.shape)
    yield COMPLEX_PAIR(out, real, imaginary, POLAR=False, **_walk(shape, real.shape, imaginary.shape))


@op("aten.polar.default", "aten::polar.out", rows=elementwise())
def polar(distance: LiveTensor, angle: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    out.shape = shape = broadcast_shapes(distance.shape, angle.shape)
    yield COMPLEX_PAIR(out, distance, angle, POLAR=True, **_walk(shape, distance.shape, angle.shape))


def _walk(shape: Shape, *operands: Shape) -> dict[str, Any]:
    """One element a thread."""
    found = broadcast_layout(shape, *operands)
    return {"count": found["count"], "rank": found["rank"], "dims": found["dims"], "threads": found["count"]}
