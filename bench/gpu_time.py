"""GPU time of commands, by timestamps where the device has them; and CPU time of those of a software adapter."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from liveshape.device.protocol import Command, Device
from liveshape.tools.measuring.rates import seconds_of


def gpu_seconds(device: Device, commands: Sequence[Command], turns: int, tries: int = 4) -> float:
    """The minimum time of the commands, repeated `turns` times in one submit."""
    row = [*commands] * turns
    return min(seconds_of(device, row) for _ in range(tries)) / turns


def warm_up(device: Device, commands: Sequence[Command], seconds: float = 0.3) -> float:
    """Keep the device busy that long, since GPUs lower their clocks when idle; returns the time of one repeat."""
    once = gpu_seconds(device, commands, 1, 2)
    turns = max(1, min(1000, round(seconds / 4 / once)))
    end = time.perf_counter() + seconds
    while True:
        best = gpu_seconds(device, commands, turns, 1)
        if time.perf_counter() >= end:
            return best


def cpu_seconds(device: Device, commands: Sequence[Command], tries: int = 4) -> float:
    """The minimum time that the other threads of this process compute for the commands (Linux): those of the driver."""
    device.flush()
    found = []
    for _ in range(tries):
        start = _others()
        device.submit(commands)
        device.flush()
        found.append(_others() - start)
    return min(found) / 1e9


def _others() -> int:
    """Nanoseconds that all threads but this one have been running."""
    me = threading.get_native_id()
    stats = [task / "schedstat" for task in Path("/proc/self/task").iterdir() if int(task.name) != me]
    return sum(int(stat.read_text().split()[0]) for stat in stats)
