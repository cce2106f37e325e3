"""Host memory that results are copied to: of large ones it is used again once nobody holds the arrays that lie in it.

The first touch of new memory costs three times the copy.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

LARGE = 1 << 20  # bytes from which memory is kept
LARGEST = 256 << 20  # beyond which nothing is kept: that would be a good part of the host's memory
KEPT = 4  # blocks at most, and none that is more than twice as large as what it would hold
_FREE = 2  # references to a block that nobody else holds: the list, and the question itself


class HostMemory:
    """Blocks of host memory, for one device.

    >>> memory = HostMemory()
    >>> bytes(memory.copied(b"abcd", 3))
    b'abc'
    """

    def __init__(self) -> None:
        self._blocks: list[bytearray] = []
        self._lock = threading.Lock()

    def copied(self, source: Any, nbytes: int) -> bytearray | memoryview:
        """The first bytes of a buffer, in memory that is its caller's for as long as he holds it."""
        if not LARGE <= nbytes <= LARGEST:
            return bytearray(memoryview(source)[:nbytes])
        with self._lock:
            taken = memoryview(self._block(nbytes))[:nbytes]
        taken[:] = memoryview(source)[:nbytes]
        return taken

    def _block(self, nbytes: int) -> bytearray:
        free = [place for place in range(len(self._blocks)) if sys.getrefcount(self._blocks[place]) == _FREE]
        for place in free:
            if nbytes <= len(self._blocks[place]) <= 2 * nbytes:
                return self._blocks[place]
        # A call of another size gives back what the ones before it had.
        held = [place for place in range(len(self._blocks)) if place not in free]
        self._blocks = [self._blocks[place] for place in held[1 - KEPT :]] + [bytearray(nbytes)]
        return self._blocks[-1]
