"""Embedding bags: empty ones, weights, a padding row, offsets with and without the last end."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.ops.cases.indexing import ids
from tests.support.graphs import In, OpCase, Out, Unused


def starts(generator: np.random.Generator, shape: tuple[int, ...], end: int) -> Any:
    """Where bags begin: the first at zero, the others anywhere up to the end, some of them empty."""
    found = np.sort(generator.integers(0, end + 1, shape))
    found[:1] = 0
    return found


def bag(kind: str, mode: int, weights: bool, last: bool, padding: int) -> OpCase:
    def args_at(size: int) -> list[Any]:
        bags, indices = 6, In("int64", (size,), ids(0, 11))
        offsets = In("int64", (bags + last,), lambda generator, shape: starts(generator, shape, size))
        # What a gradient would need: torch computes it for a mean and a maximum.
        kept = Out if mode else Unused
        return [
            In(kind, (11, 5)), indices, offsets, False, mode, False, In(kind, (size,)) if weights else None, last,
            padding,
            [
                Out(kind, (bags, 5)),
                kept("int64", (size,) if mode else (0,)),
                kept("int64", (bags if mode else bags + last,)),
                kept("int64", (bags, 5) if mode == 2 else (bags,)),
            ],
        ]  # fmt: skip

    def golden(table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, *rest: Any) -> Any:
        chosen = rest[0].float() if weights else None
        found = torch.ops.aten._embedding_bag_forward_only(
            table.float(), indices, offsets, False, mode, False, chosen, last, padding
        )
        return found if mode else found[0]

    tolerance = 1e-2 if kind == "float16" else 1e-5
    return OpCase(
        f"embedding_bag {kind} {mode} {'weighted' if weights else ''} {'last' if last else ''} {padding}",
        "aten::_embedding_bag_forward_only.out",
        args_at,
        golden,
        atol=tolerance,
        rtol=tolerance,
        sizes=(1, 2, 3, 7, 29, 43),
    )


CASES = [
    bag("float32", 0, False, False, -1),
    bag("float32", 0, True, True, 3),
    bag("float16", 0, False, False, -1),
    bag("float32", 1, False, False, 3),
    bag("float32", 1, False, True, -1),
    bag("float32", 2, False, True, -1),
]
