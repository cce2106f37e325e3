"""Order along a dimension, with equals, NaN, infinities and both zeros; a stable sort leaves no choice of indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.ops.cases.movement import EXACT
from tests.support.graphs import In, OpCase, Out

LONG = (1, 2, 511, 512, 513, 700, 1025, 2049)  # of one block, of two runs, of three


def few(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Numbers of which many are equal."""
    return generator.integers(-4, 4, shape) / 2


def odd(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return generator.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0], shape)


def sort(
    name: str,
    kind: str,
    shape: Callable[[int], tuple[int, ...]],
    dim: int,
    descending: bool,
    make: Any = few,
    **more: Any,
) -> OpCase:
    return OpCase(
        f"sort {name} {kind}",
        "aten::sort.values_stable",
        lambda s: [In(kind, shape(s), make), True, dim, descending, [Out(kind, shape(s)), Out("int64", shape(s))]],
        lambda x, s: tuple(torch.sort(x, dim=dim, descending=descending, stable=True)),
        **EXACT,
        **more,
    )


def topk(name: str, kind: str, k: int, dim: int, largest: bool, sizes: tuple[int, ...], make: Any = few) -> OpCase:
    def golden(x: torch.Tensor, size: int) -> Any:
        values, indices = torch.sort(x, dim=dim, descending=largest, stable=True)
        np.testing.assert_array_equal(values.narrow(dim, 0, k), torch.topk(x, k, dim, largest)[0])
        return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)

    def args_at(size: int) -> list[Any]:
        shape = (3, size) if dim else (size, 3)
        found = (3, k) if dim else (k, 3)
        return [In(kind, shape, make), k, dim, largest, True, [Out(kind, found), Out("int64", found)]]

    return OpCase(f"topk {name} {kind}", "aten::topk.values", args_at, golden, sizes=sizes, **EXACT)


def first_of(x: torch.Tensor, dim: int, place: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Element `place` of each row in order, the first NaN where there is one."""
    values, indices = (each.select(dim, place) for each in torch.sort(x, dim=dim, stable=True))
    missing = x.isnan()
    return (
        torch.where(missing.any(dim), torch.nan, values).to(x.dtype),
        torch.where(missing.any(dim), missing.int().argmax(dim), indices),
    )


def median_dim(make: Any, dim: int) -> OpCase:
    def golden(x: torch.Tensor, size: int) -> Any:
        found = first_of(x, dim, (x.shape[dim] - 1) // 2)
        np.testing.assert_array_equal(found[0], torch.median(x, dim)[0])
        return found

    def left(size: int) -> tuple[int, ...]:
        return (size,) if dim else (5,)

    return OpCase(
        f"median {make.__name__} {dim} float32",
        "aten::median.dim_values",
        lambda s: [In("float32", (s, 5), make), dim, False, [Out("float32", left(s)), Out("int64", left(s))]],
        golden,
        **EXACT,
    )


def median(kind: str, make: Any) -> OpCase:
    return OpCase(
        f"median of all {make.__name__} {kind}",
        "aten::median.out",
        lambda s: [In(kind, (s, 17), make), Out(kind, ())],
        lambda x, s: torch.median(x),
        **EXACT,
    )


def kthvalue(k: int) -> OpCase:
    return OpCase(
        f"kthvalue {k}",
        "aten::kthvalue.values",
        lambda s: [In("float32", (2, s), few), k, -1, True, [Out("float32", (2, 1)), Out("int64", (2, 1))]],
        lambda x, s: tuple(each.narrow(1, k - 1, 1) for each in torch.sort(x, stable=True)),
        sizes=(3, 5, 29, 43),
        **EXACT,
    )


def rising(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Rows in order, some elements twice, the last of a long one not a number."""
    rows = np.sort(generator.integers(-6, 7, shape) * 0.5, -1)
    return np.where((np.arange(shape[-1]) == shape[-1] - 1) & (shape[-1] > 20), np.nan, rows)


def asked(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    values = generator.integers(-16, 17, shape) * 0.25
    return np.where(generator.random(shape) < 0.1, generator.choice([np.nan, np.inf, -np.inf], shape), values)


def searched(kind: str, rows: Any, values: Any, right: bool, out: str = "int64") -> OpCase:
    """`rows` and `values` are shapes at a size; rows of integers are in order, too."""
    ordered = rising if kind == "float32" else lambda g, s: np.sort(g.integers(-9, 9, s), -1)
    given = asked if kind == "float32" else lambda g, s: g.integers(-10, 10, s)
    return OpCase(
        f"searchsorted {kind} {rows(2)} {right}",
        "aten::searchsorted.Tensor_out",
        lambda s: [
            In(kind, rows(s), ordered), In(kind, values(s), given), out == "int32", right, None, None,
            Out(out, values(s)),
        ],
        lambda rows, x, s: torch.searchsorted(rows, x, right=right, out_int32=out == "int32"),
    )  # fmt: skip


def bucketized(right: bool) -> OpCase:
    return OpCase(
        f"bucketize {right}",
        "aten::bucketize.Tensor_out",
        lambda s: [In("float32", (s, 3), asked), In("float32", (7,), rising), False, right, Out("int64", (s, 3))],
        lambda x, rows, s: torch.bucketize(x, rows, right=right),
    )


def number_searched(number: float, kind: str) -> OpCase:
    return OpCase(
        f"bucketize {number} among {kind}",
        "aten::bucketize.Scalar_out",
        lambda s: [number, In(kind, (s,), lambda g, shape: np.sort(g.integers(-9, 9, shape))), False, True,
                   Out("int64", ())],
        lambda rows, s: torch.bucketize(number, rows, right=True),
    )  # fmt: skip


CASES = [
    *[searched("float32", lambda s: (2, s), lambda s: (2, 5), right) for right in (False, True)],
    *[searched("float32", lambda s: (9,), lambda s: (s, 3), right, "int32") for right in (False, True)],
    searched("int64", lambda s: (3, 1, 4), lambda s: (3, 1, s), True),
    *[bucketized(right) for right in (False, True)],
    number_searched(2, "int32"),
    number_searched(2.5, "int64"),
    *(sort("rows", kind, lambda s: (3, s), 1, False) for kind in ("float32", "float16", "int32", "bool")),
    sort("columns, falling", "float32", lambda s: (2, s, 3), 1, True),
    sort("columns, falling", "int64", lambda s: (s, 5), 0, True),
    sort("odd", "float32", lambda s: (2, s), -1, False, odd),
    sort("odd, falling", "float32", lambda s: (2, s), -1, True, odd),
    sort("long", "float32", lambda s: (2, s), 1, False, None, sizes=LONG),
    sort("long equals, falling", "int32", lambda s: (s, 2), 0, True, sizes=LONG),
    topk("rows", "float32", 3, 1, True, (3, 5, 7, 29, 43)),
    topk("rows", "float16", 3, 1, False, (3, 5, 7, 29, 43)),
    topk("columns", "int32", 2, 0, True, (2, 3, 11, 37, 43)),
    topk("long rows", "float32", 5, 1, True, (5, 512, 513, 1500, 2049)),
    topk("odd", "float32", 7, 1, True, (7, 8, 43, 500), odd),
    topk("odd", "float32", 7, 0, False, (7, 8, 43, 500), odd),
    topk("spread", "float32", 128, 1, False, (128, 131, 1500, 2048), None),
    topk("more than are selected", "float32", 130, 1, True, (130, 512, 513, 1500)),
    median_dim(few, 0),
    median_dim(odd, 1),
    median("float32", few),
    median("float32", odd),
    median("int32", few),
    kthvalue(3),
]
