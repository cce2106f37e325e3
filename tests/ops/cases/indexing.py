"""Operators that look elements up, with indices at both ends of their range and outside of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.ops.cases.movement import EXACT, KINDS
from tests.support.graphs import Const, In, OpCase, Out


def ids(low: int, high: int) -> Callable[[np.random.Generator, tuple[int, ...]], Any]:
    """Indices from low up to high; both ends occur where there is room."""

    def make(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        values = generator.integers(low, high, shape)
        flat = values.reshape(-1)
        flat[:1] = high - 1
        flat[1:2] = low
        return values

    return make


def table(kind: str, *shape: int) -> np.ndarray:
    return (np.random.default_rng(3).standard_normal(shape) * 20).astype(kind)


def embedding(kind: str, index: str, width: int) -> OpCase:
    weight = table(kind, 19, width)
    return OpCase(
        f"embedding {kind} {index} {width}",
        "aten.embedding.default",
        lambda s: [Const(weight), In(index, (2, s), ids(0, 19)), -1, False, False, Out(kind, (2, s, width))],
        lambda x, s: torch.from_numpy(weight)[x.long()],
        **EXACT,
    )


def outside(kind: str, width: int) -> OpCase:
    """Ids below and above a table that is not constant give NaN, or zero, and nothing of the memory around it."""

    def golden(weight: torch.Tensor, x: torch.Tensor, size: int) -> torch.Tensor:
        known = (x >= 0) & (x < 19)
        found = weight[x.clamp(0, 18).long()]
        return torch.where(known[:, None], found, float("nan") if kind == "float32" else 0)

    return OpCase(
        f"embedding with ids outside {kind} {width}",
        "aten.embedding.default",
        lambda s: [In(kind, (19, width)), In("int32", (s,), ids(-2, 22)), -1, False, False, Out(kind, (s, width))],
        golden,
        **EXACT,
    )


def index_select(kind: str, shape: Callable[[int], tuple[int, ...]], dim: int, picks: Callable[[int], int]) -> OpCase:
    def args_at(size: int) -> list[Any]:
        full = shape(size)
        chosen = (*full[:dim], picks(size), *full[dim + 1 :])
        return [In(kind, full), dim, In("int32", (picks(size),), ids(0, full[dim])), Out(kind, chosen)]

    return OpCase(
        f"index_select {kind} {dim} of {shape(7)}",
        "aten.index_select.default",
        args_at,
        lambda x, index, s: x.index_select(dim, index),
        **EXACT,
    )


def gather(
    kind: str, shape: Callable[[int], tuple[int, ...]], dim: int, index: Callable[[int], tuple[int, ...]]
) -> OpCase:
    return OpCase(
        f"gather {kind} {dim} of {shape(7)} {index(7)}",
        "aten.gather.default",
        lambda s: [
            In(kind, shape(s)), dim, In("int64", index(s), ids(0, shape(s)[dim])), False, Out(kind, index(s)),
        ],
        lambda x, at, s: x.gather(dim, at),
        **EXACT,
    )  # fmt: skip


def indexed(
    name: str,
    kind: str,
    shape: Callable[[int], tuple[int, ...]],
    indices: Callable[[int], dict[int, In]],
) -> OpCase:
    """`indices` gives an index to some dimensions; the others are taken whole."""

    def args_at(size: int) -> list[Any]:
        given = indices(size)
        places: tuple[Any, ...] = tuple(
            torch.zeros(given[axis].shape, dtype=torch.long) if axis in given else slice(None)
            for axis in range(max(given) + 1)
        )
        found = torch.empty(shape(size))[places]
        return [
            In(kind, shape(size)),
            [given.get(axis) for axis in range(max(given) + 1)],
            Out(kind, tuple(found.shape)),
        ]

    def golden(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        *chosen, size = rest
        given = iter(chosen)
        wanted = indices(size)
        return x[tuple(next(given).long() if axis in wanted else slice(None) for axis in range(max(wanted) + 1))]

    return OpCase(f"index {name} {kind}", "aten.index.Tensor", args_at, golden, **EXACT)


def written(
    name: str,
    op: str,
    kind: str,
    index: Callable[[int], list[Any]],
    values: Callable[[int], tuple[int, ...]],
    add: bool,
) -> OpCase:
    """index_put on rows of a (50, 2, 4) cache."""

    def golden(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        *chosen, given, _ = rest
        places = tuple(each.long() for each in chosen)
        return x.clone().index_put_(places, given, add)

    tolerance = {"atol": 1e-2, "rtol": 1e-2} if kind == "float16" else {"atol": 1e-5, "rtol": 1e-5}
    return OpCase(
        f"index_put {name} {kind}",
        op,
        lambda s: [In(kind, (50, 2, 4)), index(s), In(kind, values(s)), add, Out(kind, (50, 2, 4))],
        golden,
        **tolerance,
    )


def rows(size: int) -> In:
    """Different rows, some counted from the end."""
    return In("int64", (size,), lambda generator, shape: generator.permutation(50)[: shape[0]] - 25)


CASES = [
    *(
        embedding(kind, index, width)
        for kind in ("float32", "float16")
        for index, width in (("int64", 8), ("int32", 7))
    ),
    outside("float32", 8),
    outside("float32", 3),
    outside("int32", 4),
    *(index_select(kind, lambda s: (3, 11, s), 1, lambda s: 4) for kind in KINDS),
    index_select("float32", lambda s: (s, 8), 0, lambda s: s),
    index_select("float16", lambda s: (2, 3, s, 4), 2, lambda s: 5),
    *(gather(kind, lambda s: (2, s, 5), 1, lambda s: (2, 3, 5)) for kind in KINDS),
    gather("float32", lambda s: (2, s, 5), 2, lambda s: (1, s, 7)),
    gather("float32", lambda s: (s,), 0, lambda s: (s,)),
    gather("float16", lambda s: (s, 4), 0, lambda s: (2 * s, 3)),
    indexed("one", "float32", lambda s: (s, 8), lambda s: {0: In("int64", (s,), ids(-s, s))}),
    indexed("one", "float16", lambda s: (2, s, 3), lambda s: {1: In("int32", (4,), ids(-s, s))}),
    indexed("one of two dimensions", "int32", lambda s: (2, s), lambda s: {1: In("int64", (2, 3), ids(0, s))}),
    indexed(
        "neighbours",
        "float32",
        lambda s: (3, s, 5, 4),
        lambda s: {1: In("int64", (s, 1), ids(-s, s)), 2: In("int64", (3,), ids(-5, 5))},
    ),
    indexed(
        "apart",
        "float32",
        lambda s: (3, s, 5, 4),
        lambda s: {0: In("int64", (s,), ids(-3, 3)), 2: In("int64", (1,), ids(0, 5))},
    ),
    *(
        written("rows", "aten.index_put.default", kind, lambda s: [rows(s)], lambda s: (s, 2, 4), False)
        for kind in ("float32", "float16", "int32", "bool")
    ),
    written("one value", "aten.index_put.default", "float32", lambda s: [rows(s)], lambda s: (1,), False),
    written(
        "two indices",
        "aten.index_put.default",
        "float32",
        lambda s: [rows(s), In("int64", (1,), ids(0, 2))],
        lambda s: (s, 4),
        False,
    ),
    *(
        written(
            "added",
            "aten.index_put.default",
            kind,
            lambda s: [In("int64", (s,), ids(-50, 50))],
            lambda s: (s, 2, 4),
            True,
        )
        for kind in ("float32", "float16", "int32")
    ),
]
