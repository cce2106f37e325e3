"""Maxima and averages of windows: live batch, height and width, with and without a batch, one to three dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.ops.cases.reduction import _few, _special
from tests.support.graphs import SIZES, In, OpCase, Sym
from tests.support.pictures import FLOATS, pictured

aten = torch.ops.aten
LONG = tuple(size for size in SIZES if size > 2)


def _pool(
    name: str,
    op: str,
    kind: str,
    shape: Callable[[int], tuple[int, ...]],
    args: list[Any],
    function: Callable[..., Any],
    make: Any = None,
    sizes: tuple[int, ...] = SIZES,
) -> OpCase:
    return pictured(
        f"{name} {shape(7)} {args}", op, lambda s: [In(kind, shape(s), make)], args, lambda x: function(x, *args),
        indexed="indices" in op or "adaptive_max" in op, sizes=sizes,
    )  # fmt: skip


def _backward(dims: int, shape: Callable[[int], tuple[int, ...]], args: list[Any]) -> OpCase:
    name = f"max_pool{dims}d_with_indices"

    def inputs(s: int) -> list[In]:
        def indices(generator: np.random.Generator, _: Any) -> np.ndarray:
            x = torch.from_numpy(generator.standard_normal(shape(s)))
            return getattr(aten, name)(x, *args)[1].numpy()

        pooled = tuple(getattr(aten, name)(torch.zeros(shape(s)), *args)[0].shape)
        return [In("float32", pooled), In("float32", shape(s)), In("int64", pooled, indices)]

    backward = getattr(aten, f"{name}_backward")
    case = pictured(
        f"{name} backward", f"aten::{name}_backward.grad_input", inputs, [],
        lambda gradient, x, indices: backward(gradient, x, *args, indices), sizes=LONG,
    )  # fmt: skip

    def args_at(size: int) -> list[Any]:
        gradient, x, indices, out = case.args_at(size)
        return [gradient, x, *args, indices, out]

    return OpCase(case.name, case.op, args_at, case.golden, sizes=case.sizes)


CASES = [
    *(
        _pool(
            "max",
            "aten.max_pool2d_with_indices.default",
            kind,
            lambda s: (2, 3, s, 9),
            [(3, 3), (2, 2), (1, 1), (1, 1), False],
            aten.max_pool2d_with_indices,
            _special,
        )
        for kind in FLOATS
    ),
    _pool(
        "max",
        "aten::max_pool2d_with_indices.out",
        "int64",
        lambda s: (s, 2, 7, 11),
        [(2, 3), (), (1, 0), (1, 2), True],
        aten.max_pool2d_with_indices,
        _few,
    ),
    _pool(
        "max", "aten.max_pool2d.default", "float32", lambda s: (3, 5, s), [(2,), (), (0,), (1,), True], aten.max_pool2d
    ),
    _pool(
        "max", "aten.max_pool1d.default", "float32", lambda s: (2, 3, s), [(2,), (1,), (1,), (1,), False], F.max_pool1d
    ),
    _pool(
        "max",
        "aten::max_pool3d_with_indices.out",
        "float32",
        lambda s: (1, 2, s, 6, 5),
        [(2, 3, 2), (2, 1, 3), (1, 1, 0), (1, 1, 2), True],
        aten.max_pool3d_with_indices,
        sizes=LONG,
    ),
    _backward(2, lambda s: (2, 2, s, 7), [(3, 2), (2, 1), (1, 1), (1, 2), True]),
    _backward(3, lambda s: (2, 4, s, 5), [(2,), (1,), (0,), (1,), False]),
    *(
        _pool(
            "average",
            "aten.avg_pool2d.default",
            kind,
            lambda s: (2, 3, s, s + 2),
            [(3, 3), (2, 2), (1, 1), False, True, None],
            aten.avg_pool2d,
            _special,
        )
        for kind in FLOATS
    ),
    *(
        _pool("average", "aten::avg_pool2d.out", "float32", lambda s: (2, s, 7), args, aten.avg_pool2d, sizes=LONG)
        for args in ([(3, 2), (2, 3), (1, 1), True, False, None], [(3,), (), (1,), True, True, 5])
    ),
    _pool(
        "average",
        "aten::avg_pool2d.out",
        "float32",
        lambda s: (s, 1, 4, 4),
        [(2,), (), (0,), False, True, None],
        aten.avg_pool2d,
    ),
    _pool(
        "average", "aten.avg_pool1d.default", "float32", lambda s: (3, s), [(3,), (2,), (1,), True, True], F.avg_pool1d
    ),
    _pool(
        "average",
        "aten::avg_pool3d.out",
        "float32",
        lambda s: (2, 4, s, 5),
        [(2, 3, 2), (1, 2, 2), (0, 1, 1), True, False, None],
        aten.avg_pool3d,
        sizes=LONG,
    ),
    *(
        _pool(
            "shared",
            "aten::_adaptive_avg_pool2d.out",
            kind,
            lambda s: (2, 3, s, 7),
            [(5, 3)],
            aten._adaptive_avg_pool2d,
        )
        for kind in FLOATS
    ),
    _pool("shared", "aten.adaptive_avg_pool1d.default", "float32", lambda s: (s, 9), [(4,)], F.adaptive_avg_pool1d),
    _pool(
        "shared",
        "aten._adaptive_avg_pool3d.default",
        "float32",
        lambda s: (2, s, 5, 3),
        [(3, 2, 4)],
        F.adaptive_avg_pool3d,
    ),
    _pool("shared", "aten.adaptive_max_pool1d.default", "float32", lambda s: (2, s), [(3,)], aten.adaptive_max_pool1d),
    _pool(
        "shared",
        "aten::adaptive_max_pool2d.out",
        "float32",
        lambda s: (1, 2, 5, s),
        [(4, 3)],
        aten.adaptive_max_pool2d,
        _special,
    ),
    _pool(
        "shared",
        "aten::adaptive_max_pool3d.out",
        "float32",
        lambda s: (s, 2, 3, 5, 4),
        [(2, 5, 3)],
        aten.adaptive_max_pool3d,
    ),
    pictured(
        "shared into a live size",
        "aten._adaptive_avg_pool2d.default",
        lambda s: [In("float32", (2, 6, 5))],
        lambda s: [(Sym(s), 3)],
        lambda x, s: aten._adaptive_avg_pool2d(x, (s, 3)),
    ),
]
