"""The time of commands on the device alone: they are encoded before the clock starts."""

from __future__ import annotations

import time
from collections.abc import Sequence

from liveshape.device.passes import encode_public
from liveshape.device.webgpu import Command, Device


def gpu_seconds(device: Device, commands: Sequence[Command], turns: int, tries: int = 4) -> float:
    """The least time of one turn of the commands, of several that follow each other in one submit."""
    best = float("inf")
    for _ in range(tries):
        encoder = device._device.create_command_encoder()
        for _ in range(turns):
            encode_public(encoder, commands)
        work = encoder.finish()
        device.flush()
        start = time.perf_counter()
        device._queue.submit([work])
        device.flush()
        best = min(best, time.perf_counter() - start)
    return best / turns


def warm_up(device: Device, commands: Sequence[Command], seconds: float = 0.3) -> float:
    """Keep the device at work that long, since GPUs lower their clocks in pauses; returns the time of one turn."""
    once = gpu_seconds(device, commands, 1, 2)
    turns = max(1, min(1000, round(seconds / 4 / once)))
    end = time.perf_counter() + seconds
    while True:
        best = gpu_seconds(device, commands, turns, 1)
        if time.perf_counter() >= end:
            return best
