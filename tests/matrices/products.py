"""Products of floats that are large enough for matrix units: prime and ragged sizes, and each size live in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.support.graphs import Const, In, OpCase, Out

Shapes = Callable[[int], tuple[tuple[int, ...], ...]]
ROWS = (130, 1, 16, 17, 63, 65)


def halves_error(depth: int, dtype: str, *scales: float) -> dict[str, float]:
    """Seven standard deviations of a sum of `depth` products of normal numbers times these, both rounded to halves.

    Of numbers that are halves only the result is rounded.
    """
    if dtype == "float16":
        return {"atol": 1e-3, "rtol": 1e-3}
    return {"atol": 7 * 2.8e-4 * depth**0.5 * float(np.prod(scales)), "rtol": 1e-5}


def drawn(scale: float) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    return lambda generator, shape: scale * generator.standard_normal(shape)


def linear(
    depth: int, columns: int, *, dtype: str = "float32", rows: str = "", bias: bool = True, x: float = 1.0,
    weight: float = 1.0, sizes: tuple[int, ...] = ROWS,
) -> OpCase:  # fmt: skip
    """`rows` may have another dtype than weights and results."""
    generator = np.random.default_rng(depth)
    factor = (weight * generator.standard_normal((columns, depth))).astype(dtype)
    offset = (x * weight * generator.standard_normal(columns)).astype(dtype) if bias else None

    def golden(given: torch.Tensor, size: int) -> torch.Tensor:
        wide = None if offset is None else torch.from_numpy(offset).double()
        return torch.nn.functional.linear(given.double(), torch.from_numpy(factor).double(), wide)

    def args_at(size: int) -> list[Any]:
        addend = None if offset is None else Const(offset)
        return [In(rows or dtype, (size, depth), drawn(x)), Const(factor), addend, Out(dtype, (size, columns))]

    name = f"linear {depth} to {columns} {dtype} of {x:g} times {weight:g}{f', rows {rows}' if rows else ''}"
    return OpCase(name, "aten.linear.default", args_at, golden, sizes=sizes, **halves_error(depth, dtype, x, weight))


def product(
    name: str, op: str, shapes: Shapes, depth: int, function: Callable[..., torch.Tensor], *numbers: float,
    dtype: str = "float32", sizes: tuple[int, ...] = ROWS,
) -> OpCase:  # fmt: skip
    """`shapes` gives the inputs' shapes and the output's; the operator takes the `numbers`, too."""
    return OpCase(
        f"{name} {dtype}",
        op,
        lambda size: [*(In(dtype, each) for each in shapes(size)[:-1]), *numbers, Out(dtype, shapes(size)[-1])],
        lambda *inputs: function(*(tensor.double() for tensor in inputs[:-1])),
        sizes=sizes,
        **halves_error(depth, dtype),
    )


def mm(name: str, shapes: Shapes, depth: int, **others: Any) -> OpCase:
    return product(f"mm {name}", "aten.mm.default", shapes, depth, torch.mm, **others)


def bmm(name: str, shapes: Shapes, depth: int, **others: Any) -> OpCase:
    return product(f"bmm {name}", "aten.bmm.default", shapes, depth, torch.bmm, **others)


ADDMM = "aten.addmm.default", "aten.baddbmm.default"
PRODUCTS = [
    linear(263, 521),
    linear(2053, 70, bias=False),  # a deep one: split-K
    linear(264, 520, dtype="float16", sizes=(65, 16)),
    linear(264, 520, rows="float16", sizes=(65, 1, 16, 3)),  # as their producer may store them
    mm("rows", lambda s: ((s, 257), (257, 523), (s, 523)), 257),
    mm("columns", lambda s: ((131, 260), (260, s), (131, s)), 260),
    mm("depth", lambda s: ((131, s), (s, 133), (131, 133)), 600, sizes=(600, 1, 31, 64, 67, 257, 130)),
    mm("deep", lambda s: ((s, 2052), (2052, 132), (s, 132)), 2052, sizes=(65, 16, 33)),
    mm("halves", lambda s: ((s, 96), (96, 260), (s, 260)), 96, dtype="float16", sizes=(257, 129)),
    bmm("rows", lambda s: ((3, s, 131), (3, 131, 67), (3, s, 67)), 131),
    bmm("batch", lambda s: ((s, 67, 65), (s, 65, 130), (s, 67, 130)), 65, sizes=(7, 1, 3, 5)),
    bmm("columns and depth", lambda s: ((2, 129, s), (2, s, s), (2, 129, s)), 131, sizes=(131, 3, 65, 64, 129)),
    product(
        "matmul of one weight", "aten.matmul.default", lambda s: ((3, s, 70), (70, 133), (3, s, 133)), 70, torch.matmul,
    ),
    product(
        "addmm", ADDMM[0], lambda s: ((133,), (s, 260), (260, 133), (s, 133)), 260,
        lambda a, x, y: torch.addmm(a, x, y, beta=2.0, alpha=0.5), 2.0, 0.5,
    ),
    product(
        "baddbmm", ADDMM[1], lambda s: ((3, s, 1), (3, s, 131), (3, 131, 67), (3, s, 67)), 131,
        lambda a, x, y: torch.baddbmm(a, x, y, beta=-1.0, alpha=0.25), -1.0, 0.25,
    ),
]  # fmt: skip
# Numbers of every size, in one factor or in both: no float16 holds them.
SCALES = [(1e5, 1.0), (1e30, 1.0), (1e-6, 1.0), (1e30, 1e-30), (1e-15, 1e-15), (1e18, 1e16)]
SCALED = [linear(257, 131, x=x, weight=weight, sizes=(140, 129)) for x, weight in SCALES]
