"""Forms of operators that share their kernels with cases of other families: other overloads, other ways to ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.ops.cases.images import _resampled
from tests.ops.cases.indexing import ids
from tests.ops.cases.movement import EXACT, moved
from tests.ops.cases.pooling import LONG, _pool
from tests.ops.cases.sorting import few, rising
from tests.ops.cases.unary import one
from tests.support.graphs import In, OpCase, Out

aten = torch.ops.aten

CREATED = [
    OpCase(
        f"{op} {kind}",
        f"aten::{op}",
        lambda s, kind=kind, more=more: [In(kind, (s, 3)), 2, *more, Out(kind, (s, 3))],
        lambda x, s: torch.full_like(x, 2),
        **EXACT,
    )
    for kind in ("float32", "float16", "int32")
    for op, more in (("full_like.out", (None,)), ("fill.Scalar_out", ()))
]


def arange(kind: str, step: int | float) -> OpCase:
    """Its numbers are those of the file, whatever is live."""
    numbers = torch.arange(3, 10, step, dtype=getattr(torch, kind))
    return OpCase(
        f"arange start {kind} by {step}",
        "aten::arange.start_out",
        lambda s: [3, 10, step, Out(kind, (len(numbers),))],
        lambda s: numbers,
        sizes=(7,),
    )


ORDERED = [
    OpCase(
        f"{op} {kind} {descending}",
        f"aten.{op}.default",
        lambda s, kind=kind, descending=descending, op=op: [
            In(kind, (3, s), None if op == "argsort" else few), 1, descending,
            Out("int64", (3, s)) if op == "argsort" else (Out(kind, (3, s)), Out("int64", (3, s))),
        ],
        lambda x, s, descending=descending, op=op: (
            torch.argsort(x, dim=1, descending=descending, stable=True) if op == "argsort" else
            tuple(torch.sort(x, dim=1, descending=descending, stable=True))
        ),
        **EXACT,
    )
    for op in ("sort", "argsort")
    for kind, descending in (("float32", False), ("int32", True))
]  # fmt: skip


def bits(name: str, function: Callable[..., torch.Tensor], kind: str, value: Any) -> OpCase:
    return OpCase(
        f"bitwise_{name} {kind} with a number",
        f"aten.bitwise_{name}.Scalar",
        lambda s: [In(kind, (s, 5)), value, Out(kind, (s, 5))],
        lambda x, s: function(x, value),
        **EXACT,
    )


def masked(kind: str) -> OpCase:
    return OpCase(
        f"masked_fill by a tensor {kind}",
        "aten.masked_fill.Tensor",
        lambda s: [In(kind, (s, 5)), In("bool", (5,)), In(kind, ()), Out(kind, (s, 5))],
        lambda x, mask, value, s: x.masked_fill(mask, value.reshape(())),
        **EXACT,
    )


def scattered(op: str, how: str) -> OpCase:
    def golden(x: torch.Tensor, at: torch.Tensor, *rest: Any) -> torch.Tensor:
        given = rest[0] if op == "scatter.reduce" else torch.full(at.shape, 2.0)
        return x.scatter_reduce(1, at, given, {"add": "sum", "multiply": "prod"}[how])

    return OpCase(
        f"{op} {how}",
        f"aten.{op}",
        lambda s: [
            In("float32", (3, s)), 1, In("int64", (2, 4), ids(0, s)),
            In("float32", (2, 4)) if op == "scatter.reduce" else 2.0, how, Out("float32", (3, s)),
        ],
        golden,
    )  # fmt: skip


def searched(number: float, right: bool) -> OpCase:
    return OpCase(
        f"searchsorted {number} {right}",
        "aten.searchsorted.Scalar",
        lambda s: [In("float32", (s,), rising), number, False, right, None, None, Out("int64", ())],
        lambda rows, s: torch.searchsorted(rows, number, right=right),
    )


RESAMPLED = [
    _resampled("upsample_nearest1d", "default", lambda s: (2, 2, s), [(9,), None]),
    _resampled("_upsample_nearest_exact1d", "vec", lambda s: (2, 2, s), [None, (1.4,)]),
    _resampled("_upsample_nearest_exact1d", "default", lambda s: (2, 2, s), [(9,), None]),
    _resampled("upsample_linear1d", "default", lambda s: (2, 2, s), [(9,), False, None]),
    _resampled("_upsample_nearest_exact2d", "vec", lambda s: (1, 2, s, 5), [(8, 3), None]),
    _resampled("upsample_nearest3d", "vec", lambda s: (1, 2, s, 3, 2), [(5, 7, 2), None]),
    _resampled("_upsample_nearest_exact3d", "vec", lambda s: (1, 2, s, 3, 2), [(5, 7, 2), None]),
    _resampled("_upsample_nearest_exact3d", "default", lambda s: (1, 2, s, 3, 2), [(5, 7, 2), None, None, None]),
    _resampled("upsample_trilinear3d", "vec", lambda s: (1, 2, s, 3, 2), [(5, 3, 7), False, None]),
    _resampled("_upsample_bilinear2d_aa", "vec", lambda s: (1, 2, s, 9), [(7, 4), False, None]),
    _resampled("_upsample_bicubic2d_aa", "vec", lambda s: (1, 2, s, 9), [(7, 5), False, None]),
]

MOVED = [
    *moved("narrow_copy", "aten.narrow_copy.default", ("float32", "bool"), lambda s: [(s, 9)],
           lambda x, s: [x, 1, 2, 5], lambda x, s: x.narrow(1, 2, 5)),
    *moved("chunk", "aten.chunk.default", ("float32", "int32"), lambda s: [(s, 9)],
           lambda x, s: [x, 3, 1], lambda x, s: x.chunk(3, 1)),
    *moved("prepack", "et_vk.prepack.default", ("float32", "float16", "int8"), lambda s: [(s, 9)],
           lambda x, s: [x], lambda x, s: x),
    *moved("move", "liveshape.move", ("float32", "bool"), lambda s: [(s, 9)],
           lambda x, s: [x], lambda x, s: x),
]  # fmt: skip

CASES = [
    *CREATED,
    arange("int64", 1),
    arange("float32", 0.5),
    *ORDERED,
    bits("or", torch.bitwise_or, "int32", 6),
    bits("or", torch.bitwise_or, "bool", True),
    bits("xor", torch.bitwise_xor, "int32", 6),
    masked("float32"),
    masked("float16"),
    *(
        one(name, f"aten.{name}.default", function, kind)
        for name, function in (("silu", F.silu), ("hardsigmoid", F.hardsigmoid))
        for kind in ("float32", "float16")
    ),
    *(scattered(op, how) for op in ("scatter.reduce", "scatter.value_reduce") for how in ("add", "multiply")),
    searched(1.25, True),
    searched(0.5, False),
    _pool(
        "max with indices", "aten.max_pool1d_with_indices.default", "float32", lambda s: (2, 3, s),
        [(2,), (1,), (1,), (1,), False], aten.max_pool1d_with_indices,
    ),
    _pool(
        "max", "aten.max_pool3d.default", "float32", lambda s: (1, 2, s, 4, 3),
        [(2, 3, 2), (2, 1, 1), (1, 1, 0), (1,), True], aten.max_pool3d, sizes=LONG,
    ),
    *RESAMPLED,
    *MOVED,
]  # fmt: skip
