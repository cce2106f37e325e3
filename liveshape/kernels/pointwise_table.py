"""The table of pointwise functions: what each is in WGSL, of floats and of whole numbers, and what it means.

`floats`, `wholes` and `complexes` are expressions of vec4<f32>, vec4<i32> and mat2x4<f32> in the arguments a, b, c and
d; booleans are whole, 1 or 0, and a[0] and a[1] the real and imaginary parts of complex numbers. A function that has
no `wholes` computes whole numbers in floats; one of `pairs` makes complex numbers of real ones. Where it gives `flags`
its expression is a vec4<bool>. `conditions` are arguments that are read as flags. What they call is in
`function_library.py`.

`meaning` takes a library of arrays and arrays of it: numpy, or torch, with what either lacks. `bound` takes how large
the arguments may be, by magnitude, and gives how large the result may be; without one it may be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.graph.expression import is_whole

Meaning = Callable[..., Any]


@dataclass(frozen=True)
class Function:
    """A row of the table."""

    floats: str | None
    wholes: str | None
    meaning: Meaning
    flags: bool = False
    conditions: tuple[int, ...] = ()
    bound: Callable[..., float] | None = None
    complexes: str | None = None
    pairs: bool = False

    def of_wholes(self, kinds: Sequence[bool | None], dtype: str) -> bool:
        """Whether it computes in whole numbers: its arguments, by whether each is whole, for a result of this dtype.

        Arguments of None are of either kind.

        >>> FUNCTIONS["add"].of_wholes([True, None], "int32"), FUNCTIONS["sqrt"].of_wholes([True], "int32")
        (True, False)
        """
        own = [kind for place, kind in enumerate(kinds) if kind is not None and place not in self.conditions]
        return all(own) and (self.flags or is_whole(dtype)) and self.wholes is not None


FUNCTIONS: dict[str, Function] = {}


def _row(name: str, floats: str | None, wholes: str | None, meaning: Meaning, **more: Any) -> None:
    FUNCTIONS[name] = Function(floats, wholes, meaning, **more)


def _same(a: float) -> float:
    return a


def _one(a: float) -> float:
    return 1.0


_NAN = "is_nan(a) | is_nan(b)"
_ACROSS = "(whole_rest(a, b) != vec4<i32>(0)) & ((a < vec4<i32>(0)) != (b < vec4<i32>(0)))"

# Of one.
_row("copy", "a", "a", lambda f, a: a, bound=_same, complexes="a")
# Only what halves can hold stays a number: see `lower/image_layout.py`.
_row("narrow", "narrowed(a)", None, lambda f, a: f.where(abs(a) > 65504, f.nan, a), bound=_same)
_row("abs", "abs(a)", "abs(a)", lambda f, a: f.abs(a), bound=_same, complexes="hypotenuse(a[0], a[1])")
_row("neg", "-a", "-a", lambda f, a: -a, bound=_same, complexes="-1.0 * a")
_row("conjugate", "a", "a", lambda f, a: f.conj(a), bound=_same, complexes="mat2x4<f32>(a[0], -a[1])")
_row(
    "sign",
    "flags(a > vec4<f32>(0.0)) - flags(a < vec4<f32>(0.0))",
    "select(vec4<i32>(0), vec4<i32>(1), a > vec4<i32>(0)) - select(vec4<i32>(0), vec4<i32>(1), a < vec4<i32>(0))",
    lambda f, a: f.where(a > 0, 1, 0) - f.where(a < 0, 1, 0),  # of NaN it is zero
)
_row(
    "square",
    "a * a",
    "a * a",
    lambda f, a: a * a,
    complexes="mat2x4<f32>((a[0] - a[1]) * (a[0] + a[1]), 2.0 * a[0] * a[1])",
)
_row("reciprocal", "1.0 / a", None, lambda f, a: 1.0 / a, complexes="complex_reciprocal(a)")
_row("sqrt", "sqrt(a)", None, lambda f, a: f.sqrt(a))
_row("rsqrt", "1.0 / sqrt(a)", None, lambda f, a: 1.0 / f.sqrt(a))
_row("exp", "exponential(a)", None, lambda f, a: f.exp(a), complexes="complex_of_angle(exponential(a[0]), a[1])")
_row("expm1", "exponential_minus_one(a)", None, lambda f, a: f.expm1(a))
_row("log", "logarithm(a)", None, lambda f, a: f.log(a))
# Of a base whose logarithm is 1 / b. Where a result is multiplied last it is by a number of Params: drivers join the
# literal factors of two functions in a row, and round once where memory between them would have rounded twice.
_row("log_of_base", "logarithm(a) * b", None, lambda f, a, b: f.log(a) * b)
_row("log1p", "log_one_plus(a)", None, lambda f, a: f.log1p(a))
_row("sin", "sine(a)", None, lambda f, a: f.sin(a))
_row("cos", "cosine(a)", None, lambda f, a: f.cos(a))
_row("tan", "tangent(a)", None, lambda f, a: f.tan(a))
_row("asin", "arc_sine(a)", None, lambda f, a: f.arcsin(a))
_row("acos", "arc_cosine(a)", None, lambda f, a: f.arccos(a))
_row("atan", "arc_tangent(a)", None, lambda f, a: f.arctan(a))
_row("sinh", "hyperbolic_sine(a)", None, lambda f, a: f.sinh(a))
_row("cosh", "hyperbolic_cosine(a)", None, lambda f, a: f.cosh(a))
_row("tanh", "hyperbolic_tangent(a)", None, lambda f, a: f.tanh(a), bound=_one)
_row("asinh", "inverse_hyperbolic_sine(a)", None, lambda f, a: f.arcsinh(a))
_row("acosh", "inverse_hyperbolic_cosine(a)", None, lambda f, a: f.arccosh(a))
_row("atanh", "with_sign(0.5 * log_one_plus(2.0 * abs(a) / (1.0 - abs(a))), a)", None, lambda f, a: f.arctanh(a))
_row("erf", "error_function(a)", None, lambda f, a: f.erf(a), bound=_one)
_row("erfc", "complementary_error(a)", None, lambda f, a: f.erfc(a))
_row("erfinv", "inverse_error(a)", None, lambda f, a: f.erfinv(a))
_row("lgamma", "log_gamma(a)", None, lambda f, a: f.lgamma(a))
_row("digamma", "digamma(a)", None, lambda f, a: f.digamma(a))
_row("i0", "bessel(a)", None, lambda f, a: f.i0(a))
_row(
    "angle",
    "select(select(vec4<f32>(0.0), vec4<f32>(3.14159265), a < vec4<f32>(0.0)), a, is_nan(a))",
    None,
    lambda f, a: f.angle(a),
    complexes="arc_tangent_of_two(a[1], a[0])",
)
_row("sigmoid", "1.0 / (1.0 + exponential(-a))", None, lambda f, a: 1.0 / (1.0 + f.exp(-a)), bound=_one)
_row("silu", "a / (1.0 + exponential(-a))", None, lambda f, a: a / (1.0 + f.exp(-a)), bound=_same)
_row("round", "round(a)", "a", lambda f, a: f.round(a))
_row("floor", "floor(a)", "a", lambda f, a: f.floor(a))
_row("ceil", "ceil(a)", "a", lambda f, a: f.ceil(a))
_row("trunc", "trunc(a)", "a", lambda f, a: f.trunc(a))
_row("isnan", "is_nan(a)", "vec4<bool>(false)", lambda f, a: f.isnan(a), flags=True)
_row("isinf", "is_infinite(a)", "vec4<bool>(false)", lambda f, a: f.isinf(a), flags=True)
_row(
    "signbit",
    "(bitcast<vec4<u32>>(a) & vec4<u32>(0x80000000u)) != vec4<u32>(0u)",
    "a < vec4<i32>(0)",
    lambda f, a: f.signbit(a),
    flags=True,
)
# A NaN equals nothing, so it is true; never a != b on floats, which naga makes false where either is NaN.
_row("to_bool", "!(a == vec4<f32>(0.0))", "a != vec4<i32>(0)", lambda f, a: a != 0, flags=True)
_row("bitwise_not", None, "~a", lambda f, a: ~a)
_row(
    "hardswish",  # b is six
    "a * clamp(a + 3.0, vec4<f32>(0.0), vec4<f32>(6.0)) / b",
    None,
    lambda f, a, b: a * f.clip(a + 3, 0, 6) / b,
)
_row(
    "hardsigmoid",
    "select(clamp(a + 3.0, vec4<f32>(0.0), vec4<f32>(6.0)) / 6.0, a, is_nan(a))",
    None,
    lambda f, a: f.clip(a + 3, 0, 6) / 6,
)
_row("gelu", "a * normal_below(a)", None, lambda f, a: 0.5 * a * (1 + f.erf(a / 2**0.5)), bound=_same)
_row(
    "gelu_tanh",
    "0.5 * a * (1.0 + hyperbolic_tangent(0.797884561 * (a + 0.044715 * a * a * a)))",
    None,
    lambda f, a: 0.5 * a * (1 + f.tanh((2 / f.pi) ** 0.5 * (a + 0.044715 * a**3))),
    bound=_same,
)

# Of one and numbers.
_row(
    "clamp",
    "select(min(max(a, b), c), a, is_nan(a))",
    "min(max(a, b), c)",
    lambda f, a, b, c: f.minimum(f.maximum(a, b), c),
    bound=lambda a, b, c: min(a, max(b, c)),
)
# What is no number is zero as an integer.
_row(
    "code",
    "select(clamp(a, b, c), vec4<f32>(0.0), is_nan(a))",
    None,
    lambda f, a, b, c: f.where(f.isnan(a), 0, f.clip(a, b, c)),
)
_row("hardshrink", "select(a, vec4<f32>(0.0), (a >= -b) & (a <= b))", None, lambda f, a, b: f.where(abs(a) <= b, 0, a))
_row(
    "leaky_relu",
    "select(a * b, a, a > vec4<f32>(0.0))",
    None,
    lambda f, a, b: f.where(a > 0, a, a * b),
    bound=lambda a, b: a * max(1.0, b),
)
_row(
    "elu",  # of x, alpha, the scale of all, the scale inside
    "c * select(exponential_minus_one(a * d) * b, a, a > vec4<f32>(0.0))",
    None,
    lambda f, a, b, c, d: c * f.where(a > 0, a, b * f.expm1(a * d)),
)
_row(
    "logit",
    "logit_of(select(clamp(a, b, 1.0 - b), a, is_nan(a) | (b < vec4<f32>(0.0))))",
    None,
    lambda f, a, b: f.logit(f.where(b < 0, a, f.clip(a, b, 1 - b))),
)
_row("round_digits", "round(a * b) / b", None, lambda f, a, b: f.round(a * b) / b)
# A power of ten below one has no exact float, so it divides.
_row("round_tens", "round(a / b) * b", None, lambda f, a, b: f.round(a / b) * b)

# Of two.
_row("add", "a + b", "a + b", lambda f, a, b: a + b, bound=lambda a, b: a + b, complexes="a + b")
_row("add_scaled", "a + c * b", "a + c * b", lambda f, a, b, c: a + c * b, complexes="a + c[0].x * b")
_row("sub", "a - b", "a - b", lambda f, a, b: a - b, bound=lambda a, b: a + b, complexes="a - b")
_row("sub_scaled", "a - c * b", "a - c * b", lambda f, a, b, c: a - c * b, complexes="a - c[0].x * b")
_row("mul", "a * b", "a * b", lambda f, a, b: a * b, bound=lambda a, b: a * b, complexes="complex_product(a, b)")
# By a number, which is real: no product with its imaginary part, which is none.
_row("scale", "a * b", None, lambda f, a, b: a * b, complexes="b[0].x * a")
_row("real", None, None, lambda f, a: f.real(a), complexes="a[0]")
_row("div", "a / b", "a / b", lambda f, a, b: f.true_divide(a, b), complexes="complex_quotient(a, b)")
_row("complex", "mat2x4<f32>(a, b)", None, lambda f, a, b: f.complex(a, b), pairs=True)
_row("polar", "complex_of_angle(a, b)", None, lambda f, a, b: f.polar(a, b), pairs=True)
_row(
    "floor_divide",
    "floor_divide(a, b)",
    f"a / b - select(vec4<i32>(0), vec4<i32>(1), {_ACROSS})",
    lambda f, a, b: f.floor_divide(a, b),
)
_row("trunc_divide", "trunc(a / b)", "a / b", lambda f, a, b: f.trunc(f.true_divide(a, b)))
_row(
    "remainder",
    "remainder_of(float_fmod(a, b), b)",
    f"whole_rest(a, b) + select(vec4<i32>(0), b, {_ACROSS})",
    lambda f, a, b: f.remainder(a, b),
)
_row("fmod", "float_fmod(a, b)", "whole_rest(a, b)", lambda f, a, b: f.fmod(a, b))
_row("minimum", f"select(min(a, b), a + b, {_NAN})", "min(a, b)", lambda f, a, b: f.minimum(a, b), bound=max)
_row("maximum", f"select(max(a, b), a + b, {_NAN})", "max(a, b)", lambda f, a, b: f.maximum(a, b), bound=max)
_row("pow", "float_power(a, b)", "whole_power(a, b)", lambda f, a, b: f.float_power(a, b))
_row("atan2", "arc_tangent_of_two(a, b)", None, lambda f, a, b: f.arctan2(a, b))
_row("hypot", "hypotenuse(a, b)", None, lambda f, a, b: f.hypot(a, b))
_row("copysign", "with_sign(a, b)", None, lambda f, a, b: f.copysign(a, b))
_SAME = "(a[0] == b[0]) & (a[1] == b[1])"
_row("eq", "a == b", "a == b", lambda f, a, b: f.eq(a, b), flags=True, complexes=_SAME)
for _name, _sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    _row(_name, f"a {_sign} b", f"a {_sign} b", lambda f, a, b, name=_name: getattr(f, name)(a, b), flags=True)
_row("ne", "!(a == b)", "a != b", lambda f, a, b: f.ne(a, b), flags=True, complexes=f"!({_SAME})")
_both, _other = "(a == vec4<{0}>(0))", "(b == vec4<{0}>(0))"
for _name, _text in (
    ("and", f"!({_both} | {_other})"),
    ("or", f"!({_both} & {_other})"),
    ("xor", f"{_both} != {_other}"),
):
    _row(
        f"logical_{_name}",
        _text.format("f32"),
        _text.format("i32"),
        lambda f, a, b, name=_name: getattr(f, f"logical_{name}")(a, b),
        flags=True,
    )
_row("bitwise_and", None, "a & b", lambda f, a, b: a & b)
_row("bitwise_or", None, "a | b", lambda f, a, b: a | b)
_row("bitwise_xor", None, "a ^ b", lambda f, a, b: a ^ b)
# Beyond the bits that there are, and by a negative number, all are shifted out.
_row(
    "left_shift",
    None,
    "select(a << (vec4<u32>(b) & vec4<u32>(31u)), vec4<i32>(0), vec4<u32>(b) > vec4<u32>(31u))",
    lambda f, a, b: f.where((b < 0) | (b > 31), 0, a << f.clip(b, 0, 31)),
)
_row(
    "right_shift",
    None,
    "a >> min(vec4<u32>(b), vec4<u32>(31u))",
    lambda f, a, b: a >> f.where((b < 0) | (b > 31), 31, b),
)

# Of three.
_row(
    "where",
    "select(c, b, a != vec4<i32>(0))",
    "select(c, b, a != vec4<i32>(0))",
    lambda f, a, b, c: f.where(a, b, c),
    conditions=(0,),
    bound=lambda a, b, c: max(b, c),
    complexes="mat2x4<f32>(select(c[0], b[0], a != vec4<i32>(0)), select(c[1], b[1], a != vec4<i32>(0)))",
)
