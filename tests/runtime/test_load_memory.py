"""Loading streams weights from the map: the host holds pieces of a file, never a file."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import torch
from torch import nn

import liveshape
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
