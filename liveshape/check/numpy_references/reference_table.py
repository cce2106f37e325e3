"""The table of numpy's references: functions by the names of operators, without their namespace and overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

NUMPY: dict[str, Callable[..., Any]] = {}


def reference(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as what operators give; a tuple has several results.

    Example: `@reference("relu")`.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        NUMPY.update(dict.fromkeys(names, function))
        return function

    return register


def base_name(name: str) -> str:
    """The name of an operator without its namespace and overload.

    >>> base_name("aten.add.Tensor"), base_name("aten::sum.IntList_out"), base_name("et_vk.sdpa.default")
    ('add', 'sum', '')
    """
    for prefix in ("aten.", "aten::"):
        if name.startswith(prefix):
            return name.removeprefix(prefix).partition(".")[0]
    return ""


def wide(x: Any) -> Any:
    """Floats in float64, integers in int64; bools stay."""
    array = np.asarray(x)
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


def axes_of(dims: Any, rank: int) -> tuple[int, ...]:
    """Dimensions as numpy wants them, all where none are named.

    >>> axes_of([-1], 3), axes_of(None, 2), axes_of(1, 2)
    ((2,), (0, 1), (1,))
    """
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    return tuple(int(dim) % max(rank, 1) for dim in ([dims] if isinstance(dims, int) else dims)) if rank else ()
