"""Latency of a call that waits for the device: the median of consecutive calls, after a warm-up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from liveshape.tools.commands.bench import WARM

FEWEST = 3  # calls at least


def milliseconds(call: Callable[[], Any], enough: float = 1.0) -> float:
    """The median latency over `enough` seconds of calls.

    >>> 0 < milliseconds(lambda: sum(range(1000)), 0.01) < 100
    True
    """
    begin = time.perf_counter()
    call()
    while time.perf_counter() - begin < WARM:
        call()
    times: list[float] = []
    while len(times) < FEWEST or sum(times) < enough:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3
