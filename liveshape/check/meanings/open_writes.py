"""Operators that write one place twice, of which any may win: torch leaves it open, and so does a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

TWICE = "it writes several values to one place, and any may win"


def _puts_twice(x: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> bool:
    given = [each for each in indices if each is not None]
    if accumulate or any(each.dtype == bool for each in given):
        return False
    rows = np.stack([each.reshape(-1) for each in np.broadcast_arrays(*given)])
    return bool(np.unique(rows, axis=1).shape[1] < rows.shape[1])


def _scatters_twice(x: Any, dim: int, index: Any, values: Any) -> bool:
    in_order = np.sort(index, axis=dim) if index.ndim else index
    return bool(index.ndim and (np.diff(in_order, axis=dim) == 0).any())


ANY_WINS: dict[str, Callable[..., bool]] = {
    **dict.fromkeys(
        ("aten.index_put.default", "aten::index_put.out", "aten.index_put_.default", "aten::index_put_"), _puts_twice
    ),
    **dict.fromkeys(("aten.scatter.src", "aten::scatter.src_out"), _scatters_twice),
}
