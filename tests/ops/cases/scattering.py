"""Scatter, with several elements for one place and an index smaller than what it writes and reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.ops.cases.indexing import ids
from tests.support.graphs import In, OpCase, Out

Shape = Callable[[int], tuple[int, ...]]
CLOSE = {"float16": 2e-2, "float32": 1e-5, "int32": 0.0, "bool": 0.0}


def scatter(
    op: str,
    kind: str,
    dim: int,
    shape: Shape,
    index: Shape,
    source: Shape,
    reduce: tuple[Any, ...] = (),
    sizes: tuple[int, ...] = (1, 2, 3, 7, 29, 43),
) -> OpCase:
    def golden(x: torch.Tensor, at: torch.Tensor, given: torch.Tensor, size: int) -> torch.Tensor:
        if op == "scatter.src_out":
            return x.scatter(dim, at, given)
        # Halves are added in a wide type.
        x, given = (x.double(), given.double()) if kind.startswith("float") else (x, given)
        if op == "scatter_add.out":
            return x.scatter_add(dim, at, given)
        return x.scatter_reduce(dim, at, given, reduce[0], include_self=reduce[1])

    return OpCase(
        f"{op} {kind} {dim} of {shape(7)} {' '.join(map(str, reduce))}",
        f"aten::{op}",
        lambda s: [
            In(kind, shape(s)), dim, In("int64", index(s), ids(0, shape(s)[dim])), In(kind, source(s)), *reduce,
            Out(kind, shape(s)),
        ],
        golden,
        atol=CLOSE[kind],
        rtol=CLOSE[kind],
        sizes=sizes,
    )  # fmt: skip


def value(kind: str, number: Any) -> OpCase:
    return OpCase(
        f"scatter.value_out {kind}",
        "aten::scatter.value_out",
        lambda s: [In(kind, (3, s)), 1, In("int64", (2, 4), ids(0, s)), number, Out(kind, (3, s))],
        lambda x, at, s: x.scatter(1, at, number),
        atol=0.0,
        rtol=0.0,
    )


CASES = [
    *(
        scatter("scatter.src_out", kind, 1, lambda s: (3, s), lambda s: (2, 5), lambda s: (3, 6))
        for kind in ("float32", "float16", "int32", "bool")
    ),
    scatter("scatter.src_out", "float32", 0, lambda s: (s, 3), lambda s: (2 * s, 3), lambda s: (2 * s, 3)),
    value("float32", 2.5),
    value("int32", -7),
    *(
        scatter("scatter_add.out", kind, 1, lambda s: (2, s, 3), lambda s: (2, 9, 2), lambda s: (2, 9, 3))
        for kind in ("float32", "float16", "int32")
    ),
    scatter(
        "scatter_add.out", "float32", 0, lambda s: (7, 2), lambda s: (s, 2), lambda s: (s, 2), sizes=(1, 512, 513, 1100)
    ),
    *(
        scatter(
            "scatter_reduce.two_out", "float32", 0, lambda s: (5, s), lambda s: (9, s), lambda s: (9, s), (how, own)
        )
        for how, own in (
            ("sum", False),
            ("prod", True),
            ("mean", True),
            ("mean", False),
            ("amax", True),
            ("amin", False),
        )
    ),
]
