"""Compares, logic, bits and where: every type against tensors and numbers, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.ops.cases.binary import BROADCASTS, FEW, FLOATS, INTEGERS, large, pair, special, with_number
from tests.support.graphs import In, OpCase, Out

COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")
FORMS = ("equal", "row of 7", "column", "outer", "rank zero")


def few(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return generator.integers(-3, 4, shape)


def near(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    # Neighbours that one f32 cannot tell apart.
    return generator.integers((1 << 24) - 1, (1 << 24) + 3, shape)


def _where(dtype: str, form: str, shapes_at: Callable[[int], tuple[tuple[int, ...], ...]]) -> OpCase:
    def args_at(s: int) -> list[Any]:
        condition, a, b, shape = shapes_at(s)
        return [In("bool", condition), In(dtype, a), In(dtype, b), Out(dtype, shape)]

    return OpCase(
        name=f"where {dtype} {form}",
        op="aten.where.self" if dtype in FLOATS else "aten::where.self_out",
        args_at=args_at,
        golden=lambda condition, a, b, size: torch.where(condition, a, b),
        atol=0.0,
        rtol=0.0,
        sizes=FEW,
    )


WHERE_FORMS: dict[str, Callable[[int], tuple[tuple[int, ...], ...]]] = {
    "equal": lambda s: ((2, s, 5), (2, s, 5), (2, s, 5), (2, s, 5)),
    "mask": lambda s: ((s, 1), (2, s, 5), (), (2, s, 5)),
    "rows of 8": lambda s: ((s, 8), (8,), (1, 1), (s, 8)),
    "condition is widest": lambda s: ((2, s, 5), (5,), (s, 1), (2, s, 5)),
    "causal": lambda s: ((s, s), (2, s, s), (), (2, s, s)),
}


def _mixed_types(name: str) -> OpCase:
    return OpCase(
        name=f"{name} int32 with float32",
        op=f"aten.{name}.Tensor",
        args_at=lambda s: [In("int32", (s, 5), few), In("float32", (5,)), Out("bool", (s, 5))],
        golden=lambda a, b, size: getattr(torch, name)(a, b),
        sizes=FEW,
    )


CASES = [
    *[
        pair(n, f"aten.{n}.Tensor", getattr(torch, n), dtype, FORMS[k % len(FORMS)], first=few, second=few, out="bool")
        for k, n in enumerate(COMPARES)
        for dtype in (*FLOATS, *INTEGERS)
    ],
    *[
        pair(f"{n} of NaN", f"aten::{n}.Tensor_out", getattr(torch, n), "float32", "equal", first=special,
             second=special, out="bool")
        for n in COMPARES
    ],
    *[pair(f"near {n}", f"aten.{n}.Tensor", getattr(torch, n), "int32", "column", first=near, second=near, out="bool")
      for n in ("eq", "lt")],
    *[
        with_number(n, f"aten.{n}.Scalar", lambda x, n=n: getattr(torch, n)(x, 1), dtype, (1,), make=few, out="bool")
        for n in COMPARES
        for dtype in (*FLOATS, *INTEGERS)
    ],
    *[
        with_number(n, f"aten::{n}.Scalar_out", lambda x, n=n: getattr(torch, n)(x, 0.5), dtype, (0.5,), make=make,
                    out="bool")
        for n in ("lt", "ge", "ne")
        for dtype, make in (("float32", special), ("int32", few))
    ],
    with_number("eq", "aten.eq.Scalar", lambda x: x == 16777217, "int32", (16777217,), make=near, out="bool"),
    with_number("lt", "aten.lt.Scalar", lambda x: x < (1 << 40), "int64", (1 << 40,), make=large, out="bool"),
    with_number("ge", "aten.ge.Scalar", lambda x: x >= -(1 << 40), "int64", (-(1 << 40),), make=large, out="bool"),
    *[_mixed_types(n) for n in ("lt", "eq")],
    *[
        pair(n, f"aten.{n}.default" if n != "logical_xor" else "aten::logical_xor.out", getattr(torch, n), dtype, form,
             first=first, second=first, out="bool")
        for n in ("logical_and", "logical_or", "logical_xor")
        for dtype, form, first in (("bool", "equal", None), ("bool", "column", None), ("float32", "equal", special))
    ],
    *[
        pair(n, f"aten.{n}.Tensor", getattr(torch, n), dtype, form)
        for n in ("bitwise_and", "bitwise_or", "bitwise_xor")
        for dtype, form in (("bool", "row of 7"), ("int32", "equal"))
    ],
    with_number("bitwise_and", "aten::bitwise_and.Scalar_out", lambda x: x & 6, "int32", (6,)),
    with_number("bitwise_not", "aten.bitwise_not.default", torch.bitwise_not, "bool", ()),
    with_number("logical_not", "aten.logical_not.default", torch.logical_not, "bool", ()),
    with_number("logical_not", "aten::logical_not.out", torch.logical_not, "float32", (), make=special, out="bool"),
    *[_where("float32", form, shapes) for form, shapes in WHERE_FORMS.items()],
    *[_where(dtype, form, WHERE_FORMS[form]) for dtype in ("float16", "int32", "int64", "bool")
      for form in ("mask", "condition is widest")],
]  # fmt: skip
assert set(FORMS) <= set(BROADCASTS)
