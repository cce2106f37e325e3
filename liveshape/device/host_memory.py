"""Host memory that results are copied to: of large ones it is used again once nobody holds the arrays that lie in it,
and several threads copy.

The first touch of new memory costs three times the copy, and one thread copies 6 GB/s where PCIe brings 48 (H200).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from liveshape.device.worker import Worker

LARGE = 1 << 20  # bytes from which memory is kept
LARGEST = 256 << 20  # beyond which nothing is kept: that would be a good part of the host's memory
KEPT = 4  # blocks at most, and none that is more than twice as large as what it would hold
BY_THREADS = 4 << 20  # bytes from which several threads copy
_THREADS = 4  # 48 MB take 7.0, 3.8, 2.7 and 2.7 ms with 1, 2, 4 and 8, of which 1.0 is PCIe (H200, 16 cores)
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
        self._helpers: list[Worker] = []

    def copied(self, source: Any, nbytes: int) -> bytearray | memoryview:
        """The first bytes of a buffer, in memory that is its caller's for as long as he holds it.

        Where threads copy, an interrupt would leave the source to them: such a call is for a device's own thread.
        """
        if not LARGE <= nbytes <= LARGEST:
            return bytearray(memoryview(source)[:nbytes])
        with self._lock:
            taken = memoryview(self._block(nbytes))[:nbytes]
        self._copy(np.frombuffer(taken, np.uint8), np.frombuffer(source, np.uint8, nbytes))
        return taken

    def _copy(self, target: Any, source: Any) -> None:
        count = min(_THREADS, os.cpu_count() or 1) if target.size >= BY_THREADS else 1
        with self._lock:
            self._helpers += [Worker("liveshape copies") for _ in range(len(self._helpers), count - 1)]
        begins = [target.size * part // count for part in range(count + 1)]
        pieces = [slice(*each) for each in pairwise(begins)]
        jobs = [
            helper.start(_copying(target[piece], source[piece]))
            for helper, piece in zip(self._helpers, pieces[1:], strict=False)
        ]
        try:
            np.copyto(target[pieces[0]], source[pieces[0]])
        finally:
            for job in jobs:
                job.end()
        for job in jobs:
            job.wait()

    def _block(self, nbytes: int) -> bytearray:
        free = [place for place in range(len(self._blocks)) if sys.getrefcount(self._blocks[place]) == _FREE]
        for place in free:
            if nbytes <= len(self._blocks[place]) <= 2 * nbytes:
                return self._blocks[place]
        # A call of another size gives back what the ones before it had.
        held = [place for place in range(len(self._blocks)) if place not in free]
        self._blocks = [self._blocks[place] for place in held[1 - KEPT :]] + [bytearray(nbytes)]
        return self._blocks[-1]


def _copying(target: Any, source: Any) -> Callable[[], None]:
    return lambda: np.copyto(target, source)
