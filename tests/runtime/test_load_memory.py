"""Loading streams weights from the map: the host holds pieces of a file, never a file."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import liveshape
from liveshape.device.backends import open_device
from liveshape.device.protocol import Buffer
from liveshape.run.upload import stream
from tests.support.exporting import cached, lower


def wide() -> bytes:
    """48 MB of weights."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(2048, 2048, bias=False), nn.ReLU(), nn.Linear(2048, 4096, bias=False))
    return lower(layers.eval().requires_grad_(False), (torch.randn(4, 2048),))


def test_the_host_never_holds_a_quarter_of_the_file() -> None:
    path: Path = cached("wide", "wide 1", wide)
    size = path.stat().st_size
    liveshape.load(path)  # kernels and operators are imported and compiled before anything is counted
    tracemalloc.start()
    try:
        model = liveshape.load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 45 << 20
    assert peak < size / 4, f"{peak:,} bytes of a file of {size:,}"
    assert model(np.zeros((1, 4, 2048), np.float32)[0]).shape == (4, 4096)


def test_few_bytes_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device keeps a copy of all that was written until it is waited for: of many small tensors, too."""
    device = open_device()
    waiting, most = 0, 0
    write, flush = device.write, device.flush

    def written(buffer: Buffer, offset: int, data: Any) -> None:
        nonlocal waiting, most
        waiting += memoryview(data).nbytes
        most = max(most, waiting)
        write(buffer, offset, data)

    def flushed() -> None:
        nonlocal waiting
        waiting = 0
        flush()

    monkeypatch.setitem(vars(device), "write", written)
    monkeypatch.setitem(vars(device), "flush", flushed)
    for _ in range(50):
        stream(device, device.buffer(2 << 20, "small"), [np.ones(1 << 20, np.uint8)] * 2)
    assert most <= 32 << 20


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux says which pages of a file are here")
def test_the_file_does_not_stay_in_memory() -> None:
    path: Path = cached("wide", "wide 1", wide)
    model = liveshape.load(path)
    _, _, rest = Path("/proc/self/smaps").read_text().partition(str(path.resolve()))
    resident = int(rest.split("Rss:")[1].split()[0]) << 10
    assert resident < path.stat().st_size / 4
    assert model(np.zeros((1, 4, 2048), np.float32)[0]).shape == (4, 4096)
