"""Pointwise functions of one tensor, and the triangles of matrices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph.expression import is_whole
from liveshape.graph.live import LiveTensor
from liveshape.ops.pointwise import Build, Ramp, Term, Viewed, direct, evaluate, pointwise
from liveshape.ops.registry import Number, exported, op
from liveshape.ops.row_rules import but_dims, leading
from liveshape.ops.scalars import INT32_MAX, INT32_MIN, saturated
from liveshape.ops.shapes import axis_of, strides_of

_INFINITY = float("inf")
_MAX_DECIMALS = 38
# Each is a row of kernels/pointwise_table.py under the same name.
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


for _name in _PLAIN:
    direct(_name, *exported(_name), any_size=True)
for _name in _OTHERS:
    direct(_name, *exported(_name))
for _name in ("_conj_physical", "conj_physical", "_conj_copy"):
    direct("conjugate", *exported(_name))
direct("leaky_relu", *exported("leaky_relu"), given={"x": LiveTensor, "slope": float})
direct("hardshrink", *exported("hardshrink"), given={"x": LiveTensor, "width": float})
direct("elu", *exported("elu"), given={"x": LiveTensor, "alpha": float, "scale": float, "input_scale": float})


def _register_log(base: int) -> None:
    @pointwise(*exported(f"log{base}"), any_size=True)
    def log(e: Build, x: LiveTensor) -> Term:
        return e.call("log_of_base", x, 1 / math.log(base))


for _base in (2, 10):
    _register_log(_base)


@pointwise(*exported("hardswish"), any_size=True)
def hardswish(e: Build, x: LiveTensor) -> Term:
    return e.call("hardswish", x, 6.0)


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
        right = Ramp(x.shape, (*[0] * (x.rank - 2), -1, 1))  # how far an element is right of the main diagonal
        e = Build(out.dtype)
        e.call("where", e.call(side, right, saturated(diagonal), dtype="bool"), x, 0)
        yield from evaluate(e.made(), out)


_register_triangle("tril", "le")
_register_triangle("triu", "ge")
