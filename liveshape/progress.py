"""The progress callback of uploads, exports and conversions."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)
