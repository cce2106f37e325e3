"""Functions of two operands: arithmetic, extremes and powers, with broadcasting."""

from __future__ import annotations

from typing import Any

from liveshape.errors import UnsupportedError
from liveshape.graph.live import LiveTensor
from liveshape.ops.pointwise import Build, Term, pointwise
from liveshape.ops.registry import Number

# Sums and products of booleans are booleans again.
_OF_BOOLEANS = {"add": "logical_or", "mul": "logical_and"}


def arithmetic(e: Build, function: str, a: Any, b: Any, alpha: Number = 1) -> Term:
    """A function of two; b is scaled by alpha in a sum or a difference."""
    if e.out == "bool":
        return e.call(_OF_BOOLEANS.get(function, function), a, b)
    return e.call(function, a, b) if alpha == 1 else e.call(f"{function}_scaled", a, b, alpha)


def _rounded_division(rounding_mode: str | None) -> str:
    names = {None: "div", "floor": "floor_divide", "trunc": "trunc_divide"}
    if rounding_mode not in names:
        raise UnsupportedError(f"rounding_mode {rounding_mode!r} is not one of None, 'floor', 'trunc'")
    return names[rounding_mode]


@pointwise("aten.add.Tensor", "aten::add.out", any_size=True)
def add(e: Build, a: LiveTensor, b: LiveTensor, alpha: Number) -> Term:
    return arithmetic(e, "add", a, b, alpha)


@pointwise("aten.add.Scalar", "aten::add.Scalar_out")
def add_scalar(e: Build, x: LiveTensor, value: Number, alpha: Number) -> Term:
    return arithmetic(e, "add", x, value if alpha == 1 else value * alpha)


@pointwise("aten.sub.Tensor", "aten::sub.out", any_size=True)
def sub(e: Build, a: LiveTensor, b: LiveTensor, alpha: Number) -> Term:
    return arithmetic(e, "sub", a, b, alpha)


@pointwise("aten.sub.Scalar", "aten::sub.Scalar_out")
def sub_scalar(e: Build, x: LiveTensor, value: Number, alpha: Number) -> Term:
    return arithmetic(e, "sub", x, value if alpha == 1 else value * alpha)


@pointwise("aten.rsub.Scalar", "aten::rsub.Scalar_out")
def rsub_scalar(e: Build, x: LiveTensor, value: Number, alpha: Number) -> Term:
    if alpha != 1:
        raise UnsupportedError(f"rsub with alpha {alpha}; only 1 is supported")
    return e.call("sub", value, x)


@pointwise("aten.mul.Tensor", "aten::mul.out", any_size=True)
def mul(e: Build, a: LiveTensor, b: LiveTensor) -> Term:
    return arithmetic(e, "mul", a, b)


@pointwise("aten.mul.Scalar", "aten::mul.Scalar_out")
def mul_scalar(e: Build, x: LiveTensor, value: Number) -> Term:
    return arithmetic(e, "mul", x, value)


@pointwise("aten.div.Tensor", "aten::div.out", any_size=True)
def div(e: Build, a: LiveTensor, b: LiveTensor) -> Term:
    return e.call("div", a, b)


@pointwise("aten.div.Scalar", "aten::div.Scalar_out")
def div_scalar(e: Build, x: LiveTensor, value: Number) -> Term:
    return e.call("div", x, value)


@pointwise("aten.div.Tensor_mode", "aten::div.out_mode")
def div_mode(e: Build, a: LiveTensor, b: LiveTensor, rounding_mode: str | None) -> Term:
    return e.call(_rounded_division(rounding_mode), a, b)


@pointwise("aten.div.Scalar_mode", "aten::div.Scalar_mode_out")
def div_scalar_mode(e: Build, x: LiveTensor, value: Number, rounding_mode: str | None) -> Term:
    return e.call(_rounded_division(rounding_mode), x, value)


def _register(function: str, *names: str) -> None:
    @pointwise(*names)
    def of_two(e: Build, a: LiveTensor, b: LiveTensor) -> Term:
        return e.call(function, a, b)


def _register_scalar(function: str, *names: str) -> None:
    @pointwise(*names)
    def with_number(e: Build, x: LiveTensor, value: Number) -> Term:
        return e.call(function, x, value)


for _name in ("floor_divide", "minimum", "maximum", "atan2", "hypot", "complex", "polar"):
    _register(_name, f"aten.{_name}.default", f"aten::{_name}.out")
for _name in ("remainder", "fmod"):
    _register(_name, f"aten.{_name}.Tensor", f"aten::{_name}.Tensor_out")
    _register_scalar(_name, f"aten.{_name}.Scalar", f"aten::{_name}.Scalar_out")
_register("copysign", "aten.copysign.Tensor", "aten::copysign.out")
_register_scalar("copysign", "aten.copysign.Scalar", "aten::copysign.Scalar_out")
_register("pow", "aten.pow.Tensor_Tensor", "aten::pow.Tensor_Tensor_out")
_register_scalar("pow", "aten.pow.Tensor_Scalar", "aten::pow.Tensor_Scalar_out")


@pointwise("aten.pow.Scalar", "aten::pow.Scalar_out")
def pow_scalar(e: Build, base: Number, exponent: LiveTensor) -> Term:
    return e.call("pow", base, exponent)
