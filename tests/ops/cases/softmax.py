"""softmax and log_softmax along every dimension, with the rows that need care: huge, -inf, +inf and NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.support.graphs import In, OpCase, Out


def _wild(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Large numbers, many -inf (whole rows of them where rows are short), a few +inf and NaN."""
    choice = generator.integers(0, 40, shape)
    values = generator.standard_normal(shape) * 100
    values = np.where(choice < 20, -np.inf, values)
    return np.where(choice == 39, np.nan, np.where(choice == 38, np.inf, values))


def _case(op: str, dtype: str, shape: Callable[[int], tuple[int, ...]], dim: int, make: Any, widen: bool) -> OpCase:
    function = torch.log_softmax if "log" in op else torch.softmax
    half = dtype == "float16"
    return OpCase(
        name=f"{op} {shape(0)} along {dim} {dtype}{' widened' if widen else ''}{' wild' if make else ''}",
        op=op,
        args_at=lambda s: [In(dtype, shape(s), make), dim, widen, Out("float32" if widen else dtype, shape(s))],
        golden=lambda x, size: function(x.double(), dim),
        atol=4e-3 if half else 1e-5,
        rtol=2e-3 if half else 1e-5,
    )


FORMS: list[tuple[Callable[[int], tuple[int, ...]], int]] = [
    (lambda s: (2, s, 7), -1),
    (lambda s: (2, s, 7), 1),
    (lambda s: (2, s, 7), 0),
    (lambda s: (3, s), 1),
    (lambda s: (1, 3, s, 5), -3),
    (lambda s: (s,), 0),
    (lambda s: (3, s * 20), -1),
    (lambda s: (s, 300), 0),
]

CASES = [
    *(
        _case(op, dtype, shape, dim, make, False)
        for op in ("aten._softmax.default", "aten._log_softmax.default")
        for dtype in ("float32", "float16")
        for make in (None, _wild)
        for shape, dim in FORMS
    ),
    _case("aten._softmax.default", "float16", lambda s: (3, s), 1, None, True),
    _case("aten::_log_softmax.out", "float16", lambda s: (s, 3), 0, None, True),
    _case("aten::_softmax.out", "float32", lambda s: (), 0, None, False),
]
