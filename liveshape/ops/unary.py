"""Elementwise functions of one tensor."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph.elements import is_complex, prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.binary import binary
from liveshape.ops.complexes import complex_unary
from liveshape.ops.registry import Number, op
from liveshape.ops.row_rules import but_dims, elementwise, leading
from liveshape.ops.scalars import INT32_MAX, INT32_MIN, are_integers, float_of, saturated
from liveshape.ops.shapes import axis_of, broadcast_shapes, ceil_div

UNARY = Kernel.load("elementwise/unary")
UNARY_RARE = Kernel.load("elementwise/unary", FUNCTIONS="rare")
GLU = Kernel.load("elementwise/glu")
TRIANGLE = Kernel.load("elementwise/triangle")
_INFINITY = float("inf")
_MAX_DECIMALS = 38
# Each is a case of elementwise/unary_functions.wgsl under the same name in capitals.
_PLAIN = (
    *("sign", "sqrt", "rsqrt", "round", "floor", "ceil", "trunc"),
    *("expm1", "log", "log2", "log10", "log1p", "erf", "isnan", "isinf", "signbit"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("sigmoid", "silu", "hardswish", "hardsigmoid"),
)

# And each of these is one of complex/unary.wgsl or complex/magnitude.wgsl as well.
# Each is a case of elementwise/rare_functions.wgsl.
_RARE = ("erfc", "erfinv", "lgamma", "digamma", "i0")
_OF_COMPLEX = ("abs", "angle", "neg", "square", "reciprocal", "exp")


def unary(
    function: str, x: LiveTensor, out: LiveTensor, *numbers: Number, bounds: tuple[int, int] = (INT32_MIN, INT32_MAX)
) -> Iterator[Dispatch]:
    """out = function(x); `numbers` are the function's constants, `bounds` those of a clamp of whole numbers."""
    out.shape = x.shape
    vectors = ceil_div(x.numel, 4)
    yield UNARY(
        out,
        x,
        numbers=tuple([float_of(number) for number in numbers]),
        bounds=bounds,
        count=vectors,
        OP=function,
        INTEGER=are_integers(x, out),
        threads=vectors,
    )


def _register(name: str) -> None:
    @op(f"aten.{name}.default", f"aten::{name}.out", rows=elementwise(), any_size=True)
    def plain(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
        yield from unary(name.upper(), x, out)


def _register_either(name: str) -> None:
    @op(f"aten.{name}.default", f"aten::{name}.out", rows=elementwise())
    def either(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
        yield from (complex_unary if is_complex(x.dtype) else unary)(name.upper(), x, out)


def _register_rare(name: str) -> None:
    @op(f"aten.{name}.default", f"aten::{name}.out", rows=elementwise())
    def rare(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
        out.shape = x.shape
        vectors = ceil_div(x.numel, 4)
        integral = are_integers(x, out)
        yield UNARY_RARE(
            out, x, numbers=(), bounds=(0, 0), count=vectors, OP=name.upper(), INTEGER=integral, threads=vectors
        )


for _name in _PLAIN:
    _register(_name)
for _name in _OF_COMPLEX:
    _register_either(_name)
for _name in _RARE:
    _register_rare(_name)


@op("aten.round.decimals", "aten::round.decimals_out", rows=elementwise())
def round_decimals(x: LiveTensor, decimals: int, out: LiveTensor) -> Iterator[Dispatch]:
    if abs(decimals) > _MAX_DECIMALS:
        raise UnsupportedError(f"rounding to {decimals} decimals; up to {_MAX_DECIMALS} fit a float32")
    # A power of ten below one has no exact float, so it divides.
    yield from unary("ROUND_DIGITS" if decimals >= 0 else "ROUND_TENS", x, out, 10 ** abs(decimals))


@op("aten.clamp.default", "aten::clamp.out", rows=elementwise())
def clamp(x: LiveTensor, low: Number | None, high: Number | None, out: LiveTensor) -> Iterator[Dispatch]:
    if are_integers(out):
        least = INT32_MIN if low is None else saturated(low)
        most = INT32_MAX if high is None else saturated(high)
        yield from unary("CLAMP", x, out, bounds=(least, most))
    else:
        yield from unary("CLAMP", x, out, -_INFINITY if low is None else low, _INFINITY if high is None else high)


@op("aten.clamp.Tensor", "aten::clamp.Tensor_out", rows=elementwise())
def clamp_tensor(
    x: LiveTensor, low: LiveTensor | None, high: LiveTensor | None, out: LiveTensor
) -> Generator[Dispatch | Scratch, Any, None]:
    if low is not None and high is not None:
        raised: LiveTensor = yield Scratch(out.dtype, broadcast_shapes(x.max_shape, low.max_shape))
        yield from binary("MAXIMUM", x, low, raised)
        yield from binary("MINIMUM", raised, high, out)
    elif low is not None:
        yield from binary("MAXIMUM", x, low, out)
    elif high is not None:
        yield from binary("MINIMUM", x, high, out)
    else:
        yield from unary("IDENTITY", x, out)


@op("aten.hardtanh.default", "aten::hardtanh.out", rows=elementwise())
def hardtanh(x: LiveTensor, low: Number, high: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from clamp(x, low, high, out)


@op("aten.relu.default", "aten::relu.out", rows=elementwise())
def relu(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from clamp(x, 0, None, out)


@op("aten.leaky_relu.default", "aten::leaky_relu.out", rows=elementwise())
def leaky_relu(x: LiveTensor, slope: float, out: LiveTensor) -> Iterator[Dispatch]:
    yield from unary("LEAKY_RELU", x, out, slope)


@op("aten.hardshrink.default", "aten::hardshrink.out", rows=elementwise())
def hardshrink(x: LiveTensor, width: float, out: LiveTensor) -> Iterator[Dispatch]:
    yield from unary("HARDSHRINK", x, out, width)


@op("aten.elu.default", "aten::elu.out", rows=elementwise())
def elu(x: LiveTensor, alpha: float, scale: float, input_scale: float, out: LiveTensor) -> Iterator[Dispatch]:
    yield from unary("ELU", x, out, alpha, scale, input_scale)


@op("aten.logit.default", "aten::logit.out", rows=elementwise())
def logit(x: LiveTensor, eps: float | None, out: LiveTensor) -> Iterator[Dispatch]:
    yield from unary("LOGIT", x, out, -1.0 if eps is None else eps)


@op("aten.gelu.default", "aten::gelu.out", rows=elementwise())
def gelu(x: LiveTensor, approximate: str, out: LiveTensor) -> Iterator[Dispatch]:
    names = {"none": "GELU", "tanh": "GELU_TANH"}
    if approximate not in names:
        raise UnsupportedError(f"gelu approximate={approximate!r} is not one of 'none', 'tanh'")
    yield from unary(names[approximate], x, out)


@op("aten.glu.default", "aten::glu.out", rows=but_dims("x", "dim"))
def glu(x: LiveTensor, dim: int, out: LiveTensor) -> Iterator[Dispatch]:
    axis = axis_of(dim, x.rank)
    if not x.rank or x.shape[axis] % 2:
        raise ShapeError(f"dimension {dim} of {x.shape} has no two halves")
    half = x.shape[axis] // 2
    out.shape = (*x.shape[:axis], half, *x.shape[axis + 1 :])
    yield GLU(out, x, count=out.numel, span=half * prod(x.shape[axis + 1 :]), threads=out.numel)


@op("aten.tril.default", "aten::tril.out", rows=leading("x", own=2))
def tril(x: LiveTensor, diagonal: int, out: LiveTensor) -> Iterator[Dispatch]:
    yield from _triangle(x, diagonal, out, upper=False)


@op("aten.triu.default", "aten::triu.out", rows=leading("x", own=2))
def triu(x: LiveTensor, diagonal: int, out: LiveTensor) -> Iterator[Dispatch]:
    yield from _triangle(x, diagonal, out, upper=True)


def _triangle(x: LiveTensor, diagonal: int, out: LiveTensor, *, upper: bool) -> Iterator[Dispatch]:
    if x.rank < 2:
        raise ShapeError(f"a triangle needs two dimensions, {x.shape} was given")
    out.shape = x.shape
    rows, columns = x.shape[-2:]
    count = x.numel
    yield TRIANGLE(
        out, x, count=count, rows=rows, columns=columns, diagonal=saturated(diagonal), UPPER=upper, threads=count
    )
