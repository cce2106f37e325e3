"""Elements one by one: arithmetic, comparisons, functions, and tensors that are filled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from liveshape.check.numpy_references.reference_table import NUMPY, reference, wide

_erf = np.vectorize(math.erf, otypes=[np.float64])

# Of one tensor, by what numpy calls the same.
_UNARY = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "bitwise_not": np.invert,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": _erf,
    "exp": np.exp,
    "expm1": np.expm1,
    "floor": np.floor,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "logical_not": np.logical_not,
    "neg": np.negative,
    "reciprocal": lambda x: 1.0 / x,
    "relu": lambda x: np.maximum(x, 0),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "sign": lambda x: np.nan_to_num(np.sign(x)),  # of NaN it is zero
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
_BINARY = {
    "atan2": np.arctan2,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "eq": np.equal,
    "floor_divide": np.floor_divide,
    "fmod": np.fmod,
    "ge": np.greater_equal,
    "gt": np.greater,
    "hypot": np.hypot,
    "le": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "lt": np.less,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "remainder": np.mod,
}


def _of_one(function: Any) -> Any:
    return lambda x: function(wide(x))


def _of_two(function: Any) -> Any:
    return lambda a, b: function(wide(a), wide(b))


NUMPY.update({name: _of_one(function) for name, function in _UNARY.items()})
NUMPY.update({name: _of_two(function) for name, function in _BINARY.items()})


@reference("add")
def _add(a: Any, b: Any, alpha: float = 1) -> Any:
    return wide(a) + alpha * wide(b)


@reference("sub")
def _sub(a: Any, b: Any, alpha: float = 1) -> Any:
    return wide(a) - alpha * wide(b)


@reference("rsub")
def _rsub(a: Any, b: Any, alpha: float = 1) -> Any:
    return wide(b) - alpha * wide(a)


@reference("div")
def _div(a: Any, b: Any, mode: str | None = None) -> Any:
    if mode == "floor":
        return np.floor_divide(wide(a), wide(b))
    quotient = wide(a) / wide(b)
    return np.trunc(quotient) if mode == "trunc" else quotient


@reference("pow")
def _pow(a: Any, b: Any) -> Any:
    return np.power(np.asarray(a, np.float64), np.asarray(b, np.float64))


@reference("round")
def _round(x: Any, decimals: int = 0) -> Any:
    return np.round(wide(x), decimals)


@reference("clamp", "hardtanh")
def _clamp(x: Any, least: Any = None, most: Any = None) -> Any:
    found = wide(x)
    found = found if least is None else np.maximum(found, wide(least))
    return found if most is None else np.minimum(found, wide(most))


@reference("gelu")
def _gelu(x: Any, approximate: str = "none") -> Any:
    x = wide(x)
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


@reference("leaky_relu")
def _leaky_relu(x: Any, slope: float = 0.01) -> Any:
    return np.where(wide(x) > 0, wide(x), slope * wide(x))


@reference("elu")
def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    x = wide(x)
    return scale * np.where(x > 0, x, alpha * np.expm1(input_scale * np.minimum(x, 0)))


@reference("hardswish")
def _hardswish(x: Any) -> Any:
    return wide(x) * np.clip(wide(x) + 3, 0, 6) / 6


@reference("hardsigmoid")
def _hardsigmoid(x: Any) -> Any:
    return np.clip(wide(x) + 3, 0, 6) / 6


@reference("hardshrink")
def _hardshrink(x: Any, least: float = 0.5) -> Any:
    return np.where(np.abs(wide(x)) > least, wide(x), 0) + np.where(np.isnan(x), np.nan, 0)


@reference("where")
def _where(condition: Any, a: Any, b: Any) -> Any:
    return np.where(np.asarray(condition).astype(bool), wide(a), wide(b))


@reference("masked_fill")
def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return np.where(np.asarray(mask).astype(bool), wide(value), wide(x))


@reference("full")
def _full(size: Any, value: Any, *_: Any) -> Any:
    return np.full([int(each) for each in size], value)


@reference("full_like", "fill")
def _full_like(x: Any, value: Any, *_: Any) -> Any:
    return np.full(np.shape(x), value)


@reference("zeros")
def _zeros(size: Any, *_: Any) -> Any:
    return np.zeros([int(each) for each in size])


@reference("ones")
def _ones(size: Any, *_: Any) -> Any:
    return np.ones([int(each) for each in size])


@reference("zeros_like")
def _zeros_like(x: Any, *_: Any) -> Any:
    return np.zeros(np.shape(x))


@reference("ones_like")
def _ones_like(x: Any, *_: Any) -> Any:
    return np.ones(np.shape(x))


@reference("scalar_tensor")
def _scalar_tensor(value: Any, *_: Any) -> Any:
    return np.asarray(value)


@reference("clone", "alias_copy", "_to_copy", "lift_fresh_copy")
def _same(x: Any, *_: Any) -> Any:
    return x
