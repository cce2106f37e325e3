"""Few rows of weights that are halves on the device, which no matrix unit multiplies."""

from __future__ import annotations

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from tests.plan.test_float_products import layers
from tests.support.emulated_matrices import emulate


def test_rows_that_matrices_do_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """By threads, of the same halves that matrix units take, each column divided by a power of two of its own."""
    device = open_device()
    limits = emulate(monkeypatch, device.limits)
    data = np.random.default_rng(0).standard_normal((512, 256)).astype(np.float32)
    data *= np.exp2(np.arange(512) % 60 - 30)[:, None].astype(np.float32)
    executor = Executor(compile(layers(1, data), limits, Choices(warm=False)), device)
    for rows in (3, 1, 4):
        given = np.random.default_rng(rows).standard_normal((rows, 256)).astype(np.float32)
        executor.poison()
        (found,) = executor.execute([given])
        wanted = given.astype(np.float64) @ data.T.astype(np.float64)
        scale = np.abs(data).max(axis=1)
        assert np.abs((found - wanted) / scale).max() < 7 * 2.8e-4 * 256**0.5
