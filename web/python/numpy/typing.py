"""Names of types, for annotations that are evaluated."""

from __future__ import annotations

from typing import Any


class NDArray:
    """Any array."""

    def __class_getitem__(cls, kind: Any) -> type:
        return cls


ArrayLike = DTypeLike = Any
