"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from liveshape.check.numpy_references.reference_table import reference, wide


@reference("mm", "bmm", "matmul")
def _product(a: Any, b: Any) -> Any:
    return np.matmul(wide(a), wide(b))


@reference("linear")
def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    found = np.matmul(wide(x), wide(weight).T)
    return found if bias is None else found + bias


@reference("addmm", "baddbmm")
def _with_addend(addend: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    # A beta of zero drops the addend, whatever it holds.
    return (beta * wide(addend) if beta else 0.0) + alpha * np.matmul(wide(a), wide(b))
