"""Programs that are loaded and closed again and again: memory, kernels, threads and files of the device come back."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import liveshape
from liveshape.device.backends import open_device
from liveshape.shipped import shipped_model
from tests.support.recorded import RECORDED

LOOP = next(RECORDED.glob("exports/control.2-*.pte"))  # a loop over rows, in a dozen kernels
ROWS = np.ones((5, 8), np.float32)


def loaded_and_closed(times: int, programs: Sequence[tuple[str | Path, tuple[Any, ...]]]) -> None:
    device = open_device()

    def once(turn: int) -> None:
        path, inputs = programs[turn % len(programs)]
        model = liveshape.load(path)
        if inputs:
            model(*inputs)
        if turn % 3:
            model.close()  # else the collector does

    def now() -> tuple[int, ...]:
        gc.collect()
        files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        return device.counters.live_bytes, device.counters.pipelines, threading.active_count(), files

    for turn in range(len(programs)):
        once(turn)
    before = now()
    for turn in range(times):
        once(turn)
    assert now() == before


def test_a_few_loads_leave_nothing() -> None:
    loaded_and_closed(4, [(LOOP, (ROWS, True))])


@pytest.mark.slow
def test_two_hundred_loads_leave_nothing() -> None:
    block = ("demo", (np.ones((1, 5, 64), np.float32),))
    loaded_and_closed(200, [(LOOP, (ROWS, True)), block, (shipped_model(), ()), block])
