"""Staging buffers in memory of the host: the device writes large results there itself, and they are handed out without
another copy. Who holds an array keeps its memory; what is submitted meanwhile goes to other memory.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

KEPT = 3  # blocks of a staging buffer at most: who holds more results than that has them copied


class HostStaging:
    """A buffer that a library made in `memory`, a part of pages of its own."""

    __slots__ = ("_alone", "_pages", "_start", "handle")

    def __init__(self, handle: Any, memory: memoryview) -> None:
        self.handle, self._pages = handle, memory.obj
        self._start = _address(memory) - _address(self._pages)
        self._alone = sys.getrefcount(self._pages)

    def lent(self, nbytes: int) -> memoryview:
        """The first bytes, which are the caller's for as long as he holds them."""
        return memoryview(self._pages)[self._start : self._start + nbytes]

    @property
    def held(self) -> bool:
        """Whether somebody holds what was lent."""
        return sys.getrefcount(self._pages) > self._alone


def _address(memory: Any) -> int:
    return int(np.frombuffer(memory, np.uint8).ctypes.data)
