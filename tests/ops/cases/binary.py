"""Arithmetic of two operands: every direction of broadcast, scalars, alpha, and the integer types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.support.graphs import In, OpCase, Out

Shapes = Callable[[int], tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]
FLOATS = ("float32", "float16")
INTEGERS = ("int32", "int64")
FEW = (1, 2, 5, 8, 29, 43)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 7.5, 1e-3])

# Operand shapes and their broadcast; the live dimension at the front, in the middle, last, and on both sides.
BROADCASTS: dict[str, Shapes] = {
    "equal": lambda s: ((2, s, 7), (2, s, 7), (2, s, 7)),
    "equal vectors": lambda s: ((s, 8), (s, 8), (s, 8)),
    "rank zero": lambda s: ((s, 3), (), (s, 3)),
    "one first": lambda s: ((1,), (s, 3), (s, 3)),
    "row of 8": lambda s: ((1, s, 8), (8,), (1, s, 8)),
    "row of 7": lambda s: ((7,), (s, 7), (s, 7)),
    "live row": lambda s: ((3, s), (s,), (3, s)),
    "column": lambda s: ((s, 1), (2, s, 8), (2, s, 8)),
    "column of 5": lambda s: ((s, 5), (s, 1), (s, 5)),
    "middle": lambda s: ((2, 3, s, 4), (2, 1, s, 4), (2, 3, s, 4)),
    "heads": lambda s: ((3, 1, 1), (1, 3, s, 6), (1, 3, s, 6)),
    "both ways": lambda s: ((2, 1, 1, 8), (1, 3, s, 1), (2, 3, s, 8)),
    "outer": lambda s: ((s, 1), (1, s), (s, s)),
    "perhaps empty": lambda s: ((s - 1, 4), (1, 4), (s - 1, 4)),
    "rank six": lambda s: ((2, 1, 2, 1, s, 1), (3, 1, 2, 1, 3), (2, 3, 2, 2, s, 3)),
}


def tolerance(dtype: str) -> float:
    return 2e-3 if dtype == "float16" else 1e-5


def away_from_zero(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    values = generator.standard_normal(shape)
    return values + np.where(values < 0, -0.5, 0.5)


def positive(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return generator.uniform(0.25, 3.0, shape)


def divisors(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return generator.integers(1, 9, shape) * generator.choice([-1, 1], shape)


def any_size(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    # Quotients of up to 250 bits.
    return generator.choice([-1, 1], shape) * 10.0 ** generator.uniform(-37, 38.5, shape)


def exponents(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return generator.integers(0, 6, shape)


def special(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return generator.choice(SPECIAL, shape)


def large(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    # Beyond the 24 bits that an f32 keeps.
    return generator.integers(-(1 << 29), 1 << 29, shape)


def pair(
    name: str,
    op: str,
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    dtype: str,
    form: str,
    *,
    first: Any = None,
    second: Any = None,
    extra: tuple[Any, ...] = (),
    out: str | None = None,
    exact: bool = False,
    sizes: tuple[int, ...] = FEW,
) -> OpCase:
    """A case of two tensors; float64 is the judge of floats unless `exact` asks for torch in the same type."""

    def golden(a: torch.Tensor, b: torch.Tensor, size: int) -> torch.Tensor:
        return function(a.double(), b.double()) if dtype in FLOATS and not exact else function(a, b)

    def args_at(s: int) -> list[Any]:
        a, b, shape = BROADCASTS[form](s)
        return [In(dtype, a, first), In(dtype, b, second), *extra, Out(out or dtype, shape)]

    limit = tolerance(dtype)
    return OpCase(f"{name} {dtype} {form}", op, args_at, golden, atol=limit, rtol=limit, sizes=sizes)


def with_number(
    name: str,
    op: str,
    function: Callable[[torch.Tensor], torch.Tensor],
    dtype: str,
    numbers: tuple[Any, ...],
    *,
    make: Any = None,
    out: str | None = None,
) -> OpCase:
    """A case of one tensor and numbers."""

    def golden(x: torch.Tensor, size: int) -> torch.Tensor:
        return function(x.double()) if dtype in FLOATS else function(x)

    limit = tolerance(dtype)
    return OpCase(
        name=f"{name} {dtype} {' '.join(map(str, numbers))}",
        op=op,
        args_at=lambda s: [In(dtype, (s, 3), make), *numbers, Out(out or dtype, (s, 3))],
        golden=golden,
        atol=limit,
        rtol=limit,
        sizes=FEW,
    )


def _rounded(mode: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda a, b: torch.div(a, b, rounding_mode=mode)


MODE = "aten.div.Tensor_mode"

POWER_OF_NUMBER = OpCase(
    name="pow of a number",
    op="aten::pow.Scalar_out",
    args_at=lambda s: [2.5, In("float32", (s, 3)), Out("float32", (s, 3))],
    golden=lambda x, size: torch.pow(2.5, x.double()),
)

CASES = [
    POWER_OF_NUMBER,
    *[pair("add", "aten.add.Tensor", torch.add, "float32", form, extra=(1,)) for form in BROADCASTS],
    *[
        pair("sub", "aten.sub.Tensor", lambda a, b: a - 2 * b, dtype, form, extra=(2,))
        for dtype in ("float16", "int32", "int64")
        for form in ("equal", "rank zero", "row of 7", "column", "both ways")
    ],
    *[
        pair("mul", "aten::mul.out", torch.mul, dtype, form)
        for dtype in (*FLOATS, *INTEGERS)
        for form in ("live row", "heads", "middle")
    ],
    *[
        pair("div", "aten.div.Tensor", torch.div, dtype, form, second=away_from_zero)
        for dtype in FLOATS
        for form in ("row of 8", "one first", "column of 5")
    ],
    pair("div", "aten::div.out", torch.div, "int32", "column", second=divisors, out="float32"),
    pair("div by zero", "aten.div.Tensor", torch.div, "float32", "equal", first=special, second=special),
    *[
        pair("minimum", "aten.minimum.default", torch.minimum, dtype, form)
        for dtype in (*FLOATS, *INTEGERS)
        for form in ("equal", "row of 7")
    ],
    pair("minimum of NaN", "aten.minimum.default", torch.minimum, "float32", "equal", first=special, second=special),
    pair("maximum of NaN", "aten::maximum.out", torch.maximum, "float16", "column", first=special, second=special),
    pair("maximum", "aten.maximum.default", torch.maximum, "int32", "outer"),
    *[pair("floor", MODE, _rounded("floor"), t, "row of 7", second=away_from_zero, extra=("floor",)) for t in FLOATS],
    *[pair("trunc", MODE, _rounded("trunc"), t, "column", second=away_from_zero, extra=("trunc",)) for t in FLOATS],
    *[pair(m, MODE, _rounded(m), "int32", "equal", second=divisors, extra=(m,)) for m in ("floor", "trunc")],
    pair(
        "floor of NaN", MODE, _rounded("floor"), "float32", "equal", first=special, second=special, extra=("floor",),
        exact=True,
    ),
    pair("true", MODE, torch.div, "float32", "equal", second=away_from_zero, extra=(None,)),
    pair("floor_divide", "aten::floor_divide.out", torch.floor_divide, "int64", "column", second=divisors),
    pair(
        "far floor_divide", "aten::floor_divide.out", torch.floor_divide, "float32", "equal", first=any_size,
        second=any_size, exact=True,
    ),
    *[
        pair(f"far {name}", f"aten::{name}.Tensor_out", getattr(torch, name), "float32", "equal", first=any_size,
             second=any_size)
        for name in ("remainder", "fmod")
    ],
    *[
        pair(name, f"aten::{name}.Tensor_out", function, dtype, "column of 5", second=divisors)
        for name, function in (("remainder", torch.remainder), ("fmod", torch.fmod))
        for dtype in (*FLOATS, "int32")
    ],
    pair(
        "remainder of NaN", "aten.remainder.Tensor", torch.remainder, "float32", "equal", first=special, second=special,
    ),
    *[
        pair("pow", "aten.pow.Tensor_Tensor", torch.pow, dtype, form, first=positive)
        for dtype in FLOATS
        for form in ("equal", "row of 8", "column of 5")
    ],
    pair("pow of NaN", "aten.pow.Tensor_Tensor", torch.pow, "float32", "equal", first=special, second=special),
    pair("pow", "aten.pow.Tensor_Tensor", torch.pow, "int32", "live row", second=exponents),
    pair("hypot", "aten::hypot.out", torch.hypot, "float32", "column"),
    pair("hypot of NaN", "aten::hypot.out", torch.hypot, "float32", "equal", first=special, second=special),
    pair("hypot", "aten::hypot.out", torch.hypot, "float16", "row of 7"),
    pair("copysign", "aten::copysign.out", torch.copysign, "float32", "row of 7", first=special, second=special),
    with_number("copysign", "aten::copysign.Scalar_out", lambda x: torch.copysign(x, -0.0), "float32", (-0.0,)),
    pair("atan2", "aten::atan2.out", torch.atan2, "float32", "column"),
    pair("atan2 of NaN", "aten::atan2.out", torch.atan2, "float32", "equal", first=special, second=special),
    pair(
        "exact add", "aten.add.Tensor", lambda a, b: a + 3 * b, "int32", "equal", first=large, second=large, extra=(3,)
    ),
    pair("add half of", "aten.add.Tensor", lambda a, b: a + 0.5 * b, "float32", "column", extra=(0.5,)),
    pair("add", "aten::add.out", torch.add, "bool", "row of 7", extra=(1,)),
    *[
        pair(name, f"aten::{name}.out", function, kind, form, extra=extra)
        for kind in ("uint8", "int8")
        for name, function, form, extra in (
            ("add", lambda a, b: a + 3 * b, "both ways", (3,)),
            ("mul", torch.mul, "row of 8", ()),
            ("maximum", torch.maximum, "column", ()),
        )
    ],
    pair("mul", "aten::mul.out", torch.mul, "bool", "equal"),
    with_number("add", "aten::add.Scalar_out", lambda x: x + 1e-5, "float32", (1e-5, 1)),
    with_number("add", "aten.add.Scalar", lambda x: x + 16777217 * 3, "int32", (16777217, 3), make=large),
    with_number("add", "aten.add.Scalar", lambda x: x + 1.5, "int32", (1.5, 1), out="float32"),
    with_number("sub", "aten::sub.Scalar_out", lambda x: x - 4, "float16", (2, 2)),
    with_number("rsub", "aten::rsub.Scalar_out", lambda x: 3 - x, "int64", (3.0, 1)),
    with_number("rsub", "aten.rsub.Scalar", lambda x: 3 - 2 * x, "float32", (3.0, 2)),
    with_number("mul", "aten::mul.Scalar_out", lambda x: x * -3, "int32", (-3,)),
    with_number("div", "aten::div.Scalar_out", lambda x: x / 7, "int32", (7,), out="float32"),
    with_number("div", "aten::div.Scalar_mode_out", lambda x: x // 7, "int32", (7, "floor")),
    with_number("div", "aten.div.Scalar_mode", lambda x: torch.trunc(x / 0.25), "float32", (0.25, "trunc")),
    with_number("remainder", "aten::remainder.Scalar_out", lambda x: x % -3, "int64", (-3,)),
    with_number("fmod", "aten::fmod.Scalar_out", lambda x: torch.fmod(x, 0.75), "float32", (0.75,)),
    *[
        with_number("pow", "aten.pow.Tensor_Scalar", lambda x, n=n: torch.pow(x, n), dtype, (n,), make=make)
        for dtype, make, exponents in (
            ("float32", away_from_zero, (0, 1, 2, 3.0, 5.0, -1, -2, -3.0)),
            ("float32", positive, (0.5, -0.5, 2.7)),
            ("float16", positive, (2, -1.5)),
        )
        for n in exponents
    ],
]  # fmt: skip
