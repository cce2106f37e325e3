"""Real timer signals over reading, as a program of its own: a hang or an abort is then a failure of the test alone.

python -m tests.device.interrupts raw 60       raw, public, or threads: that copy, as they do what is large
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from typing import Any

import numpy as np

from liveshape.device import host_memory, readback
from liveshape.device.adapters import usable_adapters
from liveshape.device.waiting import Naps
from liveshape.device.webgpu import WebGpuDevice
from liveshape.errors import DeviceError
from liveshape.run.results import Staging, Transfer
from tests.device.library import LIBRARY
from tests.support.chains import Chain, executor_of


class Doubling:
    """x -> 2 x by commands that are made once, so that only the device and the staging ring are under test."""

    def __init__(self, device: WebGpuDevice, rows: int = 64) -> None:
        chain = Chain()
        self.device = device
        self.x = chain.input((rows, 64))
        self.out = chain.node("aten.add.Tensor", self.x, self.x, 1, chain.tensor((rows, 64)))
        self.executor = executor_of(chain.graph(self.out), device)
        self.executor.execute([np.zeros((rows, 64), np.float32)])
        self.commands = self.executor.encoder.commands(self.executor.live, 0, 1)
        self.staging = Staging(device, device.limits.half, rows * 256)

    def start(self, x: Any, turns: int = 1) -> Transfer:
        self.device.write(self.executor.buffer_of(self.x), 0, x)
        rows = [(self.out, self.out.max_shape, self.executor.buffer_of(self.out))]
        return self.staging.start(self.commands * turns, rows, "doubling")


def at_work(device: WebGpuDevice) -> bool:
    """Whether something that was submitted is not done yet."""
    reader: Any = device._reader
    if not device.raw:
        return bool(reader._worker.busy)
    ticket = reader._events.work_done()
    outcome = reader._events.look(ticket, Naps())
    reader._events.forget(ticket)
    return outcome is None


def main(way: str, count: int) -> None:
    if way == "threads":
        host_memory.LARGE = host_memory.BY_THREADS = readback.BY_THREADS = 1
    device = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, raw=way != "public")
    doubling, draw, seen = Doubling(device), random.Random(1), Counter[str]()
    fired = False

    def interrupt(*_: object) -> None:
        nonlocal fired
        fired = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    begin = time.perf_counter()
    doubling.start(np.zeros((64, 64), np.float32)).wait()
    usual = time.perf_counter() - begin
    for turn in range(count):
        x = np.full((64, 64), turn + 1, np.float32)
        transfer, fired = None, False
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 1.2 * usual))
            while not fired:  # an interrupt that a destructor swallows is not raised
                transfer = None
                transfer = doubling.start(x)
                transfer.wait()
            seen["swallowed"] += 1
        except KeyboardInterrupt:
            seen["interrupted"] += 1
        if transfer is not None:
            try:
                np.testing.assert_array_equal(transfer.wait()[0], 2 * x)
                seen["waited again"] += 1
            except DeviceError:
                seen["refused"] += 1
        for value in (-turn, turn / 2):
            y = np.full((64, 64), value, np.float32)
            np.testing.assert_array_equal(doubling.start(y).wait()[0], 2 * y)
    assert device.counters.live_bytes < 1 << 20, f"{device.counters.live_bytes:,} bytes are left"
    print(dict(seen))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
