"""Functions of two operands: arithmetic, extremes and powers, with broadcasting."""

from __future__ import annotations

from typing import Any

from liveshape.errors import UnsupportedError
from liveshape.graph.live import LiveTensor
from liveshape.ops.pointwise import TWO, WITH_NUMBER, Build, Term, direct, is_number, pointwise
from liveshape.ops.registry import Number, exported

# Sums and products of booleans are booleans again.
_OF_BOOLEANS = {"add": "logical_or", "mul": "logical_and"}
_NUMBER = {"b": Number}


def _arithmetic(e: Build, function: str, a: LiveTensor, b: Any, alpha: Number = 1) -> Term:
    """A function of two; b is scaled by alpha in a sum or a difference: a number before, a tensor in the kernel."""
    if alpha != 1 and is_number(b):
        b, alpha = b * alpha, 1
    if e.out == "bool":
        return e.call(_OF_BOOLEANS.get(function, function), a, b)
    return e.call(function, a, b) if alpha == 1 else e.call(f"{function}_scaled", a, b, alpha)


def _register_sum(name: str) -> None:
    @pointwise(f"aten.{name}.Tensor", f"aten::{name}.out", any_size=True)
    @pointwise(*exported(name, "Scalar"), given=_NUMBER)
    def sum_of(e: Build, a: LiveTensor, b: LiveTensor, alpha: Number) -> Term:
        return _arithmetic(e, name, a, b, alpha)


_register_sum("add")
_register_sum("sub")


@pointwise(*exported("rsub", "Scalar"))
def rsub_scalar(e: Build, x: LiveTensor, value: Number, alpha: Number) -> Term:
    if alpha != 1:
        raise UnsupportedError(f"rsub with alpha {alpha}; only 1 is supported")
    return e.call("sub", value, x)


@pointwise("aten.mul.Tensor", "aten::mul.out", any_size=True)
@pointwise(*exported("mul", "Scalar"), given=_NUMBER)
def mul(e: Build, a: LiveTensor, b: LiveTensor) -> Term:
    return _arithmetic(e, "mul", a, b)


@pointwise("aten.div.Tensor_mode", "aten::div.out_mode")
@pointwise(*exported("div", "Scalar_mode"), given=_NUMBER)
def div_mode(e: Build, a: LiveTensor, b: LiveTensor, rounding_mode: str | None) -> Term:
    names = {None: "div", "floor": "floor_divide", "trunc": "trunc_divide"}
    if rounding_mode not in names:
        raise UnsupportedError(f"rounding_mode {rounding_mode!r} is not one of None, 'floor', 'trunc'")
    return e.call(names[rounding_mode], a, b)


for _name in ("floor_divide", "minimum", "maximum", "atan2", "hypot", "complex", "polar"):
    direct(_name, *exported(_name), given=TWO)
for _name in ("remainder", "fmod"):
    direct(_name, *exported(_name, "Tensor"), given=TWO)
for _name in ("div", "copysign"):
    direct(_name, f"aten.{_name}.Tensor", f"aten::{_name}.out", given=TWO)
for _name in ("remainder", "fmod", "div", "copysign"):
    direct(_name, *exported(_name, "Scalar"), given=WITH_NUMBER)
direct("pow", *exported("pow", "Tensor_Tensor"), given=TWO)
direct("pow", *exported("pow", "Tensor_Scalar"), given=WITH_NUMBER)
direct("pow", *exported("pow", "Scalar"), given={"base": Number, "exponent": LiveTensor})
