"""mm, bmm, linear, addmm, baddbmm, matmul: the live size as rows, as depth, as columns and as the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.support.graphs import SIZES, Const, In, OpCase, Out

Shapes = Callable[[int], tuple[tuple[int, ...], ...]]


def _tolerance(dtype: str, depth: int = 64) -> dict[str, float]:
    if dtype == "float16":
        return {"atol": 2e-2, "rtol": 5e-3}
    return {"atol": 1e-4 if depth > 1000 else 2e-5, "rtol": 2e-5}


def _wide(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda *inputs: function(*(tensor.double() for tensor in inputs[:-1]))


def _linear(dtype: str, lead: Callable[[int], tuple[int, ...]], depth: int, columns: int, bias: bool) -> OpCase:
    generator = np.random.default_rng(depth)
    weight = generator.standard_normal((columns, depth)).astype(dtype)
    offset = generator.standard_normal(columns).astype(dtype)

    def golden(x: torch.Tensor, size: int) -> torch.Tensor:
        wide = torch.from_numpy(offset).double() if bias else None
        return torch.nn.functional.linear(x.double(), torch.from_numpy(weight).double(), wide)

    return OpCase(
        name=f"linear {dtype} {lead(0)} {depth} to {columns}{' with bias' if bias else ''}",
        op="aten.linear.default",
        args_at=lambda s: [
            In(dtype, (*lead(s), depth)),
            Const(weight),
            Const(offset) if bias else None,
            Out(dtype, (*lead(s), columns)),
        ],
        golden=golden,
        **_tolerance(dtype, depth),
    )


def _product(
    name: str, op: str, dtype: str, shapes: Shapes, function: Callable[..., Any], sizes: tuple[int, ...] = SIZES
) -> OpCase:
    """`shapes` gives the inputs' shapes and the output's."""
    return OpCase(
        name=f"{name} {dtype}",
        op=op,
        args_at=lambda s: [*(In(dtype, shape) for shape in shapes(s)[:-1]), Out(dtype, shapes(s)[-1])],
        golden=_wide(function),
        sizes=sizes,
        **_tolerance(dtype),
    )


def _addmm(name: str, dtype: str, addend: Callable[[int], tuple[int, ...]], beta: float, alpha: float) -> OpCase:
    def golden(offset: torch.Tensor, x: torch.Tensor, other: torch.Tensor, size: int) -> torch.Tensor:
        return torch.addmm(offset.double(), x.double(), other.double(), beta=beta, alpha=alpha)

    # With beta = 0 even a NaN of the addend must not show.
    make = (lambda generator, shape: np.full(shape, np.nan)) if beta == 0 else None
    return OpCase(
        name=f"addmm {name} {dtype} beta {beta} alpha {alpha}",
        op="aten.addmm.default",
        args_at=lambda s: [
            In(dtype, addend(s), make),
            In(dtype, (s, 12)),
            In(dtype, (12, 6)),
            beta,
            alpha,
            Out(dtype, (s, 6)),
        ],
        golden=golden,
        **_tolerance(dtype),
    )


def _baddbmm(addend: tuple[int, ...]) -> OpCase:
    def golden(offset: torch.Tensor, x: torch.Tensor, other: torch.Tensor, size: int) -> torch.Tensor:
        return torch.baddbmm(offset.double(), x.double(), other.double(), beta=0.5, alpha=2)

    return OpCase(
        name=f"baddbmm {addend}",
        op="aten.baddbmm.default",
        args_at=lambda s: [
            In("float32", addend),
            In("float32", (3, s, 5)),
            In("float32", (3, 5, 7)),
            0.5,
            2,
            Out("float32", (3, s, 7)),
        ],
        golden=golden,
        **_tolerance("float32"),
    )


ROUTES = (0, 1, 4, 5, 16, 17, 32, 33, 43)  # every boundary between kernels and tiles, and nothing at all

CASES = [
    *(
        _linear(dtype, *form)
        for dtype in ("float32", "float16")
        for form in (
            (lambda s: (2, s), 16, 12, True),
            (lambda s: (s,), 7, 5, True),
            (lambda s: (1, 3, s), 64, 130, False),
            (lambda s: (s,), 16, 1, False),
            (lambda s: (1, s), 1, 3, True),
        )
    ),
    _linear("float32", lambda s: (s,), 1100, 9, True),
    _linear("float32", lambda s: (s,), 1101, 10, False),
    _linear("float32", lambda s: (), 20, 6, True),
    *(
        case
        for dtype in ("float32", "float16")
        for case in (
            _product("mm rows", "aten.mm.default", dtype, lambda s: ((s, 8), (8, 70), (s, 70)), torch.mm),
            _product("mm odd rows", "aten.mm.default", dtype, lambda s: ((s, 19), (19, 7), (s, 7)), torch.mm),
            _product("mm depth", "aten.mm.default", dtype, lambda s: ((9, s), (s, 12), (9, 12)), torch.mm),
            _product("mm depth, one row", "aten.mm.default", dtype, lambda s: ((1, s), (s, 13), (1, 13)), torch.mm),
            _product("mm columns", "aten.mm.default", dtype, lambda s: ((6, 8), (8, s), (6, s)), torch.mm),
            _product("mm all", "aten.mm.default", dtype, lambda s: ((s, s), (s, s), (s, s)), torch.mm),
            _product("bmm rows", "aten.bmm.default", dtype, lambda s: ((3, s, 7), (3, 7, 5), (3, s, 5)), torch.bmm),
            _product("bmm depth", "aten.bmm.default", dtype, lambda s: ((2, 3, s), (2, s, 8), (2, 3, 8)), torch.bmm),
            _product("bmm columns", "aten.bmm.default", dtype, lambda s: ((2, 1, 8), (2, 8, s), (2, 1, s)), torch.bmm),
            _product("bmm batch", "aten.bmm.default", dtype, lambda s: ((s, 5, 6), (s, 6, 9), (s, 5, 9)), torch.bmm),
            _product("bmm heads", "aten.bmm.default", dtype, lambda s: ((4, s, 16), (4, 16, s), (4, s, s)), torch.bmm),
        )
    ),
    _product("mm no depth", "aten.mm.default", "float32", lambda s: ((9, s), (s, 5), (9, 5)), torch.mm, ROUTES),
    _product(
        "mm no depth, few rows", "aten.mm.default", "float32", lambda s: ((2, s), (s, 5), (2, 5)), torch.mm, ROUTES
    ),
    _product(
        "bmm tiles", "aten.bmm.default", "float32", lambda s: ((256, s, 4), (256, 4, 8), (256, s, 8)), torch.bmm, ROUTES
    ),
    _product(
        "linear live depth",
        "aten.linear.default",
        "float32",
        lambda s: ((3, s), (5, s), (5,), (3, 5)),
        torch.nn.functional.linear,
        ROUTES,
    ),
    _product(
        "linear live weight",
        "aten.linear.default",
        "float32",
        lambda s: ((7, 10), (s, 10), (s,), (7, s)),
        torch.nn.functional.linear,
        ROUTES,
    ),
    *(
        _addmm(name, dtype, addend, beta, alpha)
        for dtype in ("float32", "float16")
        for name, addend, beta, alpha in (
            ("row", lambda s: (6,), 1, 1),
            ("[1, N]", lambda s: (1, 6), 2, 3),
            ("full", lambda s: (s, 6), 0.5, 2.0),
            ("column", lambda s: (s, 1), -1, 1),
            ("scalar", lambda s: (), 1, 0.25),
            ("ignored", lambda s: (s, 6), 0, 1),
        )
    ),
    _baddbmm((3, 1, 7)),
    _baddbmm((7,)),
    _product(
        "matmul", "aten.matmul.default", "float32", lambda s: ((2, 3, s, 8), (2, 3, 8, 5), (2, 3, s, 5)), torch.matmul
    ),
    _product("matmul shared", "aten.matmul.default", "float32", lambda s: ((2, s, 8), (8, 5), (2, s, 5)), torch.matmul),
    _product("matmul vectors", "aten.matmul.default", "float32", lambda s: ((s,), (s,), ()), torch.matmul),
    _product("matmul by vector", "aten.matmul.default", "float32", lambda s: ((3, s, 4), (4,), (3, s)), torch.matmul),
]
