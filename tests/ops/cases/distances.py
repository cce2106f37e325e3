"""Distances in every norm that has its own arithmetic, over batches that broadcast."""

from __future__ import annotations

import math

import torch

from tests.support.graphs import In, OpCase, Out


def cdist(kind: str, p: float) -> OpCase:
    tolerance = 1e-2 if kind == "float16" else 1e-4
    return OpCase(
        f"cdist {kind} {p}",
        "aten::_cdist_forward.out",
        lambda s: [In(kind, (2, 1, s, 5)), In(kind, (3, 7, 5)), p, 2, Out(kind, (2, 3, s, 7))],
        lambda a, b, s: torch.cdist(a.double(), b.double(), p),
        atol=tolerance,
        rtol=tolerance,
    )


def pdist(p: float) -> OpCase:
    return OpCase(
        f"pdist {p}",
        "aten::_pdist_forward.out",
        lambda s: [In("float32", (s, 5)), p, Out("float32", (s * (s - 1) // 2,))],
        lambda x, s: torch.nn.functional.pdist(x.double(), p),
        atol=1e-4,
        rtol=1e-4,
    )


CASES = [*(cdist("float32", p) for p in (0.0, 2.0, 3.5, math.inf)), cdist("float16", 2.0), pdist(1.0)]
