"""Results as large as the data says: nothing, all, and in between, over several spans of running totals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.ops.cases.movement import EXACT
from tests.ops.cases.sorting import few, odd
from tests.support.graphs import In, OpCase, Out, Unused

MANY = (1, 63, 64, 65, 300)  # rows of 64: up to five spans


def sparse(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Few, half or most of them set."""
    return generator.random(shape) < generator.choice([0.1, 0.5, 0.9])


def nonzero(kind: str, shape: Callable[[int], tuple[int, ...]], make: Any = sparse, **more: Any) -> OpCase:
    def args_at(size: int) -> list[Any]:
        full = shape(size)
        return [In(kind, full, make), Out("int64", (int(np.prod(full)), len(full)))]

    return OpCase(
        f"nonzero {kind} {len(shape(3))}", "aten::nonzero.out", args_at, lambda x, s: torch.nonzero(x), **EXACT, **more
    )


def masked_select(
    name: str, kind: str, shape: Callable[[int], tuple[int, ...]], mask: Callable[[int], tuple[int, ...]]
) -> OpCase:
    return OpCase(
        f"masked_select {name} {kind}",
        "aten::masked_select.out",
        lambda s: [
            In(kind, shape(s)), In("bool", mask(s), sparse),
            Out(kind, (int(np.prod(np.broadcast_shapes(shape(s), mask(s)))),)),
        ],
        lambda x, m, s: torch.masked_select(x, m),
        **EXACT,
    )  # fmt: skip


def masked_scatter(kind: str, mask: Callable[[int], tuple[int, ...]]) -> OpCase:
    return OpCase(
        f"masked_scatter {mask(7)} {kind}",
        "aten::masked_scatter.out",
        lambda s: [
            In(kind, (s, 5)), In("bool", mask(s), sparse), In(kind, (5, s)), Out(kind, (s, 5)),
        ],
        lambda x, m, source, s: x.masked_scatter(m, source),
        **EXACT,
    )  # fmt: skip


def by_mask(name: str, kind: str, shape: Callable[[int], tuple[int, ...]], axis: int, rank: int) -> OpCase:
    """x[:, mask]: the mask lies over `rank` dimensions from `axis` on."""

    def args_at(size: int) -> list[Any]:
        full = shape(size)
        masked = full[axis : axis + rank]
        found = (*full[:axis], int(np.prod(masked)), *full[axis + rank :])
        return [In(kind, full), [*[None] * axis, In("bool", masked, sparse)], Out(kind, found)]

    return OpCase(
        f"index by a mask {name} {kind}",
        "aten::index.Tensor_out",
        args_at,
        lambda x, m, s: x[(*[slice(None)] * axis, m)],
        **EXACT,
    )


def put_by_mask(name: str, kind: str, values: Callable[[int], tuple[int, ...]]) -> OpCase:
    """x[mask] = values, where every third row is masked."""

    def thirds(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
        return np.arange(shape[0]) % 3 == 0

    return OpCase(
        f"index_put by a mask {name} {kind}",
        "aten::index_put.out",
        lambda s: [In(kind, (s, 4)), [In("bool", (s,), thirds)], In(kind, values(s)), False, Out(kind, (s, 4))],
        lambda x, m, v, s: x.index_put((m,), v),
        **EXACT,
    )


def repeats(sizes: tuple[int, ...]) -> OpCase:
    return OpCase(
        f"repeat_interleave {max(sizes)}",
        "aten::repeat_interleave.Tensor_out",
        lambda s: [In("int64", (s,), lambda g, shape: g.integers(0, 4, shape)), None, Out("int64", (3 * s,))],
        lambda n, s: torch.repeat_interleave(n),
        sizes=sizes,
        **EXACT,
    )


def unique(kind: str, make: Any, shape: Callable[[int], tuple[int, ...]], op: str, **more: Any) -> OpCase:
    consecutive = "consecutive" in op
    # Each NaN is unique, and which of them is which torch leaves open.
    inverse = consecutive or make is not odd

    def args_at(size: int) -> list[Any]:
        full = shape(size)
        most = (int(np.prod(full)),)
        asked = [inverse, True, None] if consecutive else [True, inverse, True]
        places = Out("int64", full) if inverse else Unused("int64", (0,))
        return [In(kind, full, make), *asked, [Out(kind, most), places, Out("int64", most)]]

    def golden(x: torch.Tensor, size: int) -> Any:
        found = torch.unique_consecutive if consecutive else torch.unique
        return found(x, return_inverse=inverse, return_counts=True)

    return OpCase(f"{op} {make.__name__} {kind} {len(shape(3))}", f"aten::{op}.out", args_at, golden, **EXACT, **more)


def unique_rows(kind: str, make: Any, shape: Callable[[int], tuple[int, ...]], dim: int, op: str) -> OpCase:
    """Rows of which many are equal."""
    consecutive = "consecutive" in op

    def args_at(size: int) -> list[Any]:
        full = shape(size)
        asked = [True, True, dim] if consecutive else [dim, True, True, True]
        return [In(kind, full, make), *asked, [Out(kind, full), Out("int64", (full[dim],)), Out("int64", (full[dim],))]]

    def golden(x: torch.Tensor, size: int) -> Any:
        found = torch.unique_consecutive if consecutive else torch.unique
        return found(x, return_inverse=True, return_counts=True, dim=dim)

    return OpCase(f"{op} {dim} of {shape(7)} {kind}", f"aten::{op}.out", args_at, golden, **EXACT)


CASES = [
    nonzero("bool", lambda s: (s, 5)),
    nonzero("float32", lambda s: (s,), odd),
    nonzero("float16", lambda s: (2, s, 3), few),
    nonzero("int32", lambda s: (s, 64), few, sizes=MANY),
    masked_select("alike", "float32", lambda s: (s, 5), lambda s: (s, 5)),
    masked_select("alike", "float16", lambda s: (s, 5), lambda s: (s, 5)),
    masked_select("broadcast", "int32", lambda s: (s, 1), lambda s: (3, 1, 5)),
    masked_scatter("float32", lambda s: (s, 5)),
    masked_scatter("int32", lambda s: (s, 1)),
    by_mask("rows", "float32", lambda s: (s, 4), 0, 1),
    by_mask("columns", "float16", lambda s: (3, s, 2), 1, 1),
    by_mask("two dimensions", "int32", lambda s: (s, 3, 2), 0, 2),
    put_by_mask("rows", "float32", lambda s: ((s + 2) // 3, 4)),
    put_by_mask("one row", "float16", lambda s: (4,)),
    put_by_mask("one number", "int32", lambda s: ()),
    repeats((1, 2, 3, 11, 37, 43)),
    repeats((1, 4096, 4097, 9000)),
    unique("float32", few, lambda s: (s, 5), "_unique2"),
    unique("float32", odd, lambda s: (s,), "_unique2"),
    unique("bool", sparse, lambda s: (s, 2), "_unique2"),
    unique("int64", few, lambda s: (s, 64), "_unique2", sizes=MANY),
    unique("float32", odd, lambda s: (s,), "unique_consecutive"),
    unique_rows("float32", sparse, lambda s: (s, 3), 0, "unique_dim"),
    unique_rows("int32", sparse, lambda s: (2, s, 2), 1, "unique_dim"),
    unique_rows("float32", sparse, lambda s: (s, 1), 0, "unique_consecutive"),
]
