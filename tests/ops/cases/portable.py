"""Operators that only outer programs call: shifts, triangles, gates, masks, strides, batch norm by own statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.ops.cases.unary import mixed
from tests.support.graphs import Const, In, OpCase, Out, Sym

EXACT = {"atol": 0.0, "rtol": 0.0}
FEW = (1, 2, 3, 7, 29, 43)
SMALL = {"float16": {"atol": 4e-3, "rtol": 4e-3}, "float32": {"atol": 1e-5, "rtol": 1e-5}}


def bits(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return generator.integers(-(1 << 31), 1 << 31, shape)


def by(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return generator.integers(-2, 40, shape)


def shift(side: str) -> list[OpCase]:
    function = getattr(torch, f"bitwise_{side}_shift")
    return [
        OpCase(
            f"shift {side}",
            f"aten::bitwise_{side}_shift.Tensor_out",
            lambda s: [In("int32", (s, 5), bits), In("int32", (5,), by), Out("int32", (s, 5))],
            lambda a, b, s: function(a, b),
            sizes=FEW,
        ),
        OpCase(
            f"shift {side} by a number",
            f"aten::bitwise_{side}_shift.Tensor_Scalar_out",
            lambda s: [In("int32", (s, 5), bits), 3, Out("int32", (s, 5))],
            lambda a, s: function(a, 3),
            sizes=FEW,
        ),
    ]


def masked_fill(kind: str, number: Any) -> OpCase:
    return OpCase(
        f"masked_fill {kind}",
        "aten::masked_fill.Scalar_out",
        lambda s: [In(kind, (3, s, 5)), In("bool", (s, 1)), number, Out(kind, (3, s, 5))],
        lambda x, mask, s: x.masked_fill(mask, number),
        sizes=FEW,
        **EXACT,
    )


def plain(
    name: str,
    op: str,
    kind: str,
    shape: Callable[[int], tuple[int, ...]],
    golden: Callable[[torch.Tensor], torch.Tensor],
    *rest: Any,
    make: Any = None,
    **close: Any,
) -> OpCase:
    """One tensor and what torch makes of it, which also tells the shape."""

    def args_at(size: int) -> list[Any]:
        found = golden(torch.zeros(shape(size), dtype=getattr(torch, kind)))
        return [In(kind, shape(size), make), *rest, Out(kind, tuple(found.shape))]

    return OpCase(f"{name} {kind}", op, args_at, lambda x, s: golden(x), sizes=FEW, **close)


def rounded(decimals: int) -> OpCase:
    # A tie of what float32 makes of a product is not one in float64, so torch computes as we do.
    return plain(
        f"round to {decimals}", "aten::round.decimals_out", "float32", lambda s: (s, 5),
        lambda x: torch.round(x, decimals=decimals), decimals, make=mixed, atol=1e-6, rtol=1e-6,
    )  # fmt: skip


def as_strided(kind: str) -> OpCase:
    return OpCase(
        f"as_strided {kind}",
        "aten::as_strided_copy.out",
        lambda s: [In(kind, (s, 8)), (Sym(s), 3, 2), (8, 2, 1), 1, Out(kind, (s, 3, 2))],
        lambda x, s: torch.as_strided(x, (s, 3, 2), (8, 2, 1), 1),
        sizes=FEW,
        **EXACT,
    )


def batch_norm(kind: str, affine: bool) -> OpCase:
    """By the statistics of the batch."""
    factors = [np.linspace(0.5, 2, 3).astype(kind), np.linspace(-1, 1, 3).astype(kind)] if affine else [None, None]
    given = [None if each is None else Const(each) for each in factors]
    wide = [None if each is None else torch.from_numpy(each).double() for each in factors]
    close = 2e-2 if kind == "float16" else 3e-5
    return OpCase(
        f"batch_norm without statistics {kind}",
        "aten::_native_batch_norm_legit.no_stats_out",
        lambda s: [
            In(kind, (2, 3, s)), *given, True, 0.1, 1e-3,
            [Out(kind, (2, 3, s)), Out(kind, (3,)), Out(kind, (3,))],
        ],
        lambda x, s: torch.ops.aten._native_batch_norm_legit.no_stats(x.double(), *wide, True, 0.1, 1e-3),
        atol=close,
        rtol=close,
        sizes=FEW,
    )  # fmt: skip


def batch_norm_measured() -> OpCase:
    mean, variance = np.linspace(-1, 1, 3).astype(np.float32), np.linspace(0.5, 2, 3).astype(np.float32)

    def golden(x: torch.Tensor, size: int) -> Any:
        running = (torch.from_numpy(array).double() for array in (mean, variance))
        return torch._native_batch_norm_legit(x.double(), None, None, *running, False, 0.1, 1e-3)

    return OpCase(
        "batch_norm by what was measured",
        "aten::_native_batch_norm_legit.out",
        lambda s: [
            In("float32", (2, 3, s)), None, None, Const(mean), Const(variance), False, 0.1, 1e-3,
            [Out("float32", (2, 3, s)), Out("float32", (0,)), Out("float32", (0,))],
        ],
        golden,
        sizes=FEW,
    )  # fmt: skip


def fill_tensor(kind: str) -> OpCase:
    return OpCase(
        f"fill with a tensor {kind}",
        "aten::fill.Tensor_out",
        lambda s: [In(kind, (s, 5)), In(kind, ()), Out(kind, (s, 5))],
        lambda x, value, s: torch.full_like(x, value.item()),
        sizes=FEW,
        **EXACT,
    )


def dropout() -> OpCase:
    return OpCase(
        "native_dropout outside of training",
        "aten::native_dropout.out",
        lambda s: [In("float32", (s, 5)), 0.5, False, [Out("float32", (s, 5)), Out("bool", (s, 5))]],
        lambda x, s: torch.native_dropout(x, 0.5, False),
        sizes=FEW,
        **EXACT,
    )


CASES = [
    *shift("left"),
    *shift("right"),
    masked_fill("float32", -torch.inf),
    masked_fill("float16", 2.5),
    masked_fill("int32", 7),
    rounded(2),
    rounded(0),
    rounded(-1),
    as_strided("float32"),
    as_strided("int32"),
    *(
        plain("glu", "aten::glu.out", kind, lambda s: (2, 6, s), lambda x: F.glu(x, 1), 1, **SMALL[kind])
        for kind in ("float32", "float16")
    ),
    plain("glu of rows", "aten::glu.out", "float32", lambda s: (3, 2 * s), F.glu, -1),
    *(
        plain("tril", "aten::tril.out", kind, lambda s: (2, s, 5), lambda x: torch.tril(x, -1), -1, **EXACT)
        for kind in ("float32", "float16", "int32", "bool")
    ),
    plain("triu", "aten::triu.out", "float32", lambda s: (5, s), lambda x: torch.triu(x, 2), 2, **EXACT),
    plain("cumprod", "aten::cumprod.out", "float32", lambda s: (2, s), lambda x: x.cumprod(1), 1, None, make=mixed),
    plain("to the device", "et_copy::_h2d_copy.out", "float32", lambda s: (s, 5), lambda x: x, **EXACT),
    batch_norm("float32", True),
    batch_norm("float16", False),
    batch_norm_measured(),
    fill_tensor("float32"),
    fill_tensor("int32"),
    dropout(),
]
