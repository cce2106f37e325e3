"""Pointwise operators: functions of one tensor and of two, compares and masks, the triangles of matrices.

Most are one function of kernels/pointwise_table.py: a row here has their names, in files, and what they are given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import SymInt
from liveshape.graph.expression import is_whole
from liveshape.graph.live import LiveTensor
from liveshape.ops.pointwise import Build, Term, Viewed, direct, evaluate, is_number, pointwise
from liveshape.ops.registry import Number, exported, op
from liveshape.ops.row_rules import but_dims, leading
from liveshape.ops.scalars import INT32_MAX, INT32_MIN, saturated
from liveshape.ops.shapes import axis_of, strides_of

_INFINITY = float("inf")
_MAX_DECIMALS = 38
# Sums and products of booleans are booleans again.
_OF_BOOLEANS = {"add": "logical_or", "mul": "logical_and"}
_TWO, _NUMBER = {"a": LiveTensor, "b": LiveTensor}, {"b": Number}
_WITH_NUMBER = {"x": LiveTensor, "value": Number}
_CONDITION = {"condition": LiveTensor, "a": LiveTensor, "b": LiveTensor}
_PLAIN = (
    *("sign", "sqrt", "rsqrt", "round", "floor", "ceil", "trunc"),
    *("expm1", "log", "log1p", "erf", "isnan", "isinf", "signbit"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("sigmoid", "silu", "hardsigmoid"),
)
_OTHERS = (
    *("erfc", "erfinv", "lgamma", "digamma", "i0"),
    *("abs", "angle", "neg", "square", "reciprocal", "exp"),
)
_OF_TWO = ("floor_divide", "minimum", "maximum", "atan2", "hypot", "complex", "polar")
_OF_TWO_OR_NUMBER = ("remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor")


for _name in _PLAIN:
    direct(_name, *exported(_name), any_size=True)
for _name in _OTHERS:
    direct(_name, *exported(_name))
direct("conjugate", *exported("_conj_physical"), *exported("conj_physical"), *exported("_conj_copy"))
direct("leaky_relu", *exported("leaky_relu"), given={"x": LiveTensor, "slope": float})
direct("hardshrink", *exported("hardshrink"), given={"x": LiveTensor, "width": float})
direct("elu", *exported("elu"), given={"x": LiveTensor, "alpha": float, "scale": float, "input_scale": float})
for _name in _OF_TWO:
    direct(_name, *exported(_name), given=_TWO)
for _name in ("logical_and", "logical_or", "logical_xor"):
    direct(_name, *exported(_name), given=_TWO, any_size=True)
for _name in _OF_TWO_OR_NUMBER:
    direct(_name, *exported(_name, "Tensor"), given=_TWO)
    direct(_name, *exported(_name, "Scalar"), given=_WITH_NUMBER)
for _name in ("div", "copysign"):
    direct(_name, f"aten.{_name}.Tensor", f"aten::{_name}.out", given=_TWO)
    direct(_name, *exported(_name, "Scalar"), given=_WITH_NUMBER)
for _side in ("left", "right"):
    _long, _short = f"bitwise_{_side}_shift", f"__{_side[0]}shift__"
    direct(f"{_side}_shift", *exported(_long, "Tensor"), *exported(_short, "Tensor"), given=_TWO)
    direct(f"{_side}_shift", *exported(_long, "Tensor_Scalar"), *exported(_short, "Scalar"), given=_WITH_NUMBER)
direct("pow", *exported("pow", "Tensor_Tensor"), given=_TWO)
direct("pow", *exported("pow", "Tensor_Scalar"), given=_WITH_NUMBER)
direct("pow", *exported("pow", "Scalar"), given={"base": Number, "exponent": LiveTensor})
direct("where", *exported("where", "self"), given=_CONDITION, any_size=True)


for _base in (2, 10):
    direct("log_of_base", *exported(f"log{_base}"), numbers=(1 / math.log(_base),), any_size=True)
direct("hardswish", *exported("hardswish"), numbers=(6.0,), any_size=True)
direct("eq", *exported("logical_not"), numbers=(0,))


@pointwise(*exported("round", "decimals"))
def round_decimals(e: Build, x: LiveTensor, decimals: int) -> Term:
    if abs(decimals) > _MAX_DECIMALS:
        raise UnsupportedError(f"rounding to {decimals} decimals; up to {_MAX_DECIMALS} fit a float32")
    return e.call("round_digits" if decimals >= 0 else "round_tens", x, 10 ** abs(decimals))


@pointwise(*exported("clamp"), *exported("hardtanh"))
def clamp(e: Build, x: LiveTensor, low: Number | None, high: Number | None) -> Term:
    """x between two bounds, each of which may be missing."""
    if is_whole(e.out):
        least = INT32_MIN if low is None else saturated(low)
        return e.call("clamp", x, least, INT32_MAX if high is None else saturated(high))
    return e.call("clamp", x, -_INFINITY if low is None else low, _INFINITY if high is None else high)


@pointwise(*exported("clamp", "Tensor"))
def clamp_tensor(e: Build, x: LiveTensor, low: LiveTensor | None, high: LiveTensor | None) -> Term:
    if low is None:
        return e.call("copy", x) if high is None else e.call("minimum", x, high)
    return e.call("maximum", x, low) if high is None else e.call("minimum", e.exact("maximum", x, low), high)


@pointwise(*exported("relu"))
def relu(e: Build, x: LiveTensor) -> Term:
    return clamp(e, x, 0, None)


@pointwise(*exported("logit"))
def logit(e: Build, x: LiveTensor, eps: float | None) -> Term:
    return e.call("logit", x, -1.0 if eps is None else eps)


@pointwise(*exported("gelu"))
def gelu(e: Build, x: LiveTensor, approximate: str) -> Term:
    names = {"none": "gelu", "tanh": "gelu_tanh"}
    if approximate not in names:
        raise UnsupportedError(f"gelu approximate={approximate!r} is not one of 'none', 'tanh'")
    return e.call(names[approximate], x)


def _arithmetic(e: Build, function: str, a: Any, b: Any, alpha: Number = 1) -> Term:
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
    return _arithmetic(e, "sub", value, x, alpha)


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


def compared(e: Build, function: str, x: Any, value: Number) -> Term:
    """function(x, value); an integer that no element can equal compares as an infinite float."""
    if not is_whole(x.dtype):
        return e.call(function, x, value)
    if isinstance(value, SymInt):
        raise UnsupportedError("whether a live number is one of the elements' integers is known at a call")
    inside = INT32_MIN <= value <= INT32_MAX
    if inside and value % 1 == 0:
        return e.call(function, x, value)
    return e.call(function, e.call("copy", x, dtype="float32"), value if inside else value * float("inf"))


def _register_compare(name: str) -> None:
    # The exporter's sliding-window masks compare so; elsewhere the number may be the context itself.
    @pointwise(*exported(name, "Scalar"), any_size=name in ("lt", "ge"))
    def compare_with(e: Build, x: LiveTensor, value: Number) -> Term:
        return compared(e, name, x, value)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    direct(_name, *exported(_name, "Tensor"), given=_TWO)
    _register_compare(_name)


@pointwise(*exported("bitwise_not"))
def bitwise_not(e: Build, x: LiveTensor) -> Term:
    # All bits of a boolean are its one bit.
    return e.call("bitwise_xor", x, 1) if x.dtype == "bool" else e.call("bitwise_not", x)


@pointwise(*exported("masked_fill", "Tensor"))
@pointwise(*exported("masked_fill", "Scalar"), given={"value": Number})
def masked_fill(e: Build, x: LiveTensor, mask: LiveTensor, value: LiveTensor) -> Term:
    return e.call("where", mask, value, x)


@op(*exported("glu"), rows=but_dims("x", "dim"))
def glu(x: LiveTensor, dim: int, out: LiveTensor) -> Iterator[Any]:
    axis = axis_of(dim, x.rank)
    if not x.rank or x.shape[axis] % 2:
        raise ShapeError(f"dimension {dim} of {x.shape} has no two halves")
    half = x.shape[axis] // 2
    shape, strides = (*x.shape[:axis], half, *x.shape[axis + 1 :]), strides_of(x.shape)
    first, second = (Viewed(x, shape, strides, start) for start in (0, half * strides[axis]))
    e = Build(out.dtype)
    e.call("mul", first, e.exact("sigmoid", second))
    yield from evaluate(e.made(), out)


def _register_triangle(name: str, side: str) -> None:
    @op(*exported(name), rows=leading("x", own=2))
    def triangle(x: LiveTensor, diagonal: int, out: LiveTensor) -> Iterator[Any]:
        """x on one side of a diagonal of its last two dimensions, and zero elsewhere."""
        if x.rank < 2:
            raise ShapeError(f"a triangle needs two dimensions, {x.shape} was given")
        right = Viewed(None, x.shape, (*[0] * (x.rank - 2), -1, 1))  # how far an element is right of the main diagonal
        e = Build(out.dtype)
        e.call("where", e.call(side, right, saturated(diagonal), dtype="bool"), x, 0)
        yield from evaluate(e.made(), out)


_register_triangle("tril", "le")
_register_triangle("triu", "ge")
