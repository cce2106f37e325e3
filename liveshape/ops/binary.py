"""Functions of two operands: arithmetic, extremes, powers and bits, with broadcasting."""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.errors import UnsupportedError
from liveshape.graph.elements import is_complex
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.broadcasting import broadcast_layout
from liveshape.ops.complexes import complex_binary
from liveshape.ops.registry import Number, op
from liveshape.ops.row_rules import elementwise
from liveshape.ops.scalars import are_integers, float_of, int_of
from liveshape.ops.shapes import broadcast_shapes, ceil_div

BINARY = Kernel.load("elementwise/binary")
BINARY_SCALAR = Kernel.load("elementwise/binary_scalar")
# Sums and products of booleans are booleans again.
_OF_BOOLEANS = {"ADD": "LOGICAL_OR", "MUL": "LOGICAL_AND"}


def binary(function: str, a: LiveTensor, b: LiveTensor, out: LiveTensor, alpha: Number = 1) -> Iterator[Dispatch]:
    """out = function(a, b) over the broadcast shape; b is scaled by alpha in a sum or a difference."""
    out.shape = shape = broadcast_shapes(a.shape, b.shape)
    integral = are_integers(a, b, out)
    yield BINARY(
        out,
        a,
        b,
        alpha=1.0 if integral else float_of(alpha),
        whole_alpha=int_of(alpha) if integral else 1,
        OP=_OF_BOOLEANS.get(function, function) if out.dtype == "bool" else function,
        INTEGER=integral,
        **broadcast_layout(shape, a.shape, b.shape),
    )


def arithmetic(function: str, a: LiveTensor, b: LiveTensor, out: LiveTensor, alpha: Number = 1) -> Iterator[Dispatch]:
    """A sum, a difference, a product or a quotient, which complex tensors have, too."""
    pairs = is_complex(a.dtype) or is_complex(b.dtype)
    yield from (complex_binary if pairs else binary)(function, a, b, out, alpha)


def binary_scalar(
    function: str, x: LiveTensor, value: Number, out: LiveTensor, swap: bool = False
) -> Iterator[Dispatch]:
    """out = function(x, value), or function(value, x)."""
    out.shape = x.shape
    integral = are_integers(x, out)
    vectors = ceil_div(x.numel, 4)
    yield BINARY_SCALAR(
        out,
        x,
        count=vectors,
        number=0.0 if integral else float_of(value),
        whole=int_of(value) if integral else 0,
        OP=_OF_BOOLEANS.get(function, function) if out.dtype == "bool" else function,
        INTEGER=integral,
        SCALAR_FIRST=swap,
        threads=vectors,
    )


def _division(rounding_mode: str | None) -> str:
    names = {None: "DIV", "floor": "FLOOR_DIVIDE", "trunc": "TRUNC_DIVIDE"}
    if rounding_mode not in names:
        raise UnsupportedError(f"rounding_mode {rounding_mode!r} is not one of None, 'floor', 'trunc'")
    return names[rounding_mode]


@op("aten.add.Tensor", "aten::add.out", rows=elementwise(), any_size=True)
def add(a: LiveTensor, b: LiveTensor, alpha: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from arithmetic("ADD", a, b, out, alpha)


@op("aten.add.Scalar", "aten::add.Scalar_out", rows=elementwise())
def add_scalar(x: LiveTensor, value: Number, alpha: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary_scalar("ADD", x, value * alpha, out)


@op("aten.sub.Tensor", "aten::sub.out", rows=elementwise(), any_size=True)
def sub(a: LiveTensor, b: LiveTensor, alpha: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from arithmetic("SUB", a, b, out, alpha)


@op("aten.sub.Scalar", "aten::sub.Scalar_out", rows=elementwise())
def sub_scalar(x: LiveTensor, value: Number, alpha: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary_scalar("SUB", x, value * alpha, out)


@op("aten.rsub.Scalar", "aten::rsub.Scalar_out", rows=elementwise())
def rsub_scalar(x: LiveTensor, value: Number, alpha: Number, out: LiveTensor) -> Iterator[Dispatch]:
    if alpha != 1:
        raise UnsupportedError(f"rsub with alpha {alpha}; only 1 is supported")
    yield from binary_scalar("SUB", x, value, out, swap=True)


@op("aten.mul.Tensor", "aten::mul.out", rows=elementwise(), any_size=True)
def mul(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from arithmetic("MUL", a, b, out)


@op("aten.mul.Scalar", "aten::mul.Scalar_out", rows=elementwise())
def mul_scalar(x: LiveTensor, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary_scalar("MUL", x, value, out)


@op("aten.div.Tensor", "aten::div.out", rows=elementwise(), any_size=True)
def div(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from arithmetic("DIV", a, b, out)


@op("aten.div.Scalar", "aten::div.Scalar_out", rows=elementwise())
def div_scalar(x: LiveTensor, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary_scalar("DIV", x, value, out)


@op("aten.div.Tensor_mode", "aten::div.out_mode", rows=elementwise())
def div_mode(a: LiveTensor, b: LiveTensor, rounding_mode: str | None, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary(_division(rounding_mode), a, b, out)


@op("aten.div.Scalar_mode", "aten::div.Scalar_mode_out", rows=elementwise())
def div_scalar_mode(x: LiveTensor, value: Number, rounding_mode: str | None, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary_scalar(_division(rounding_mode), x, value, out)


@op("aten.floor_divide.default", "aten::floor_divide.out", rows=elementwise())
def floor_divide(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary("FLOOR_DIVIDE", a, b, out)


@op("aten.remainder.Tensor", "aten::remainder.Tensor_out", rows=elementwise())
def remainder(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary("REMAINDER", a, b, out)


@op("aten.remainder.Scalar", "aten::remainder.Scalar_out", rows=elementwise())
def remainder_scalar(x: LiveTensor, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary_scalar("REMAINDER", x, value, out)


@op("aten.fmod.Tensor", "aten::fmod.Tensor_out", rows=elementwise())
def fmod(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary("FMOD", a, b, out)


@op("aten.fmod.Scalar", "aten::fmod.Scalar_out", rows=elementwise())
def fmod_scalar(x: LiveTensor, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary_scalar("FMOD", x, value, out)


@op("aten.minimum.default", "aten::minimum.out", rows=elementwise())
def minimum(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary("MINIMUM", a, b, out)


@op("aten.maximum.default", "aten::maximum.out", rows=elementwise())
def maximum(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary("MAXIMUM", a, b, out)


@op("aten.atan2.default", "aten::atan2.out", rows=elementwise())
def atan2(y: LiveTensor, x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary("ATAN2", y, x, out)


@op("aten.hypot.default", "aten::hypot.out", rows=elementwise())
def hypot(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary("HYPOT", a, b, out)


@op("aten.copysign.Tensor", "aten::copysign.out", rows=elementwise())
def copysign(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary("COPYSIGN", a, b, out)


@op("aten.copysign.Scalar", "aten::copysign.Scalar_out", rows=elementwise())
def copysign_scalar(x: LiveTensor, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary_scalar("COPYSIGN", x, value, out)


@op("aten.pow.Tensor_Tensor", "aten::pow.Tensor_Tensor_out", rows=elementwise())
def pow_tensor_tensor(base: LiveTensor, exponent: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary("POWER", base, exponent, out)


@op("aten.pow.Tensor_Scalar", "aten::pow.Tensor_Scalar_out", rows=elementwise())
def pow_tensor_scalar(base: LiveTensor, exponent: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary_scalar("POWER", base, exponent, out)


@op("aten.pow.Scalar", "aten::pow.Scalar_out", rows=elementwise())
def pow_scalar(base: Number, exponent: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    yield from binary_scalar("POWER", exponent, base, out, swap=True)
