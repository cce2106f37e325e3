"""GPU time of commands, by timestamps where the device has them."""

from __future__ import annotations

import time
from collections.abc import Sequence

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
