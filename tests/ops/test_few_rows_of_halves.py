"""Few rows of weights that are halves on the device, which no matrix unit multiplies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.ops import split_factors
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from liveshape.run.weights import Weights
from tests.plan.test_float_products import layers
from tests.support.emulated_matrices import emulate
from tests.survival.subjects import live_bytes


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


MANY_THREADS = {"max_invocations": 256, "max_cooperating_threads": 256, "lanes": 0, "subgroup": 8}


@pytest.mark.parametrize("threads", [{}, MANY_THREADS], ids=["few threads", "many threads"])
def test_rows_of_split_weights(threads: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """By threads, of the same lines that matrix units take: as exact as float32, and no number between is infinite."""
    monkeypatch.setattr(split_factors, "MIN_SPLIT_PRODUCTS", 1 << 22)
    monkeypatch.setattr(split_factors, "MIN_SPLIT_SIZE", 16)
    device = open_device()
    limits = replace(emulate(monkeypatch, device.limits), half_inputs=False, fast_matrices=True, **threads)  # type: ignore[arg-type]
    data = np.random.default_rng(0).standard_normal((512, 256)).astype(np.float32)
    data *= np.exp2(-(np.arange(512) % 60))[:, None].astype(np.float32)
    data[3, 5], data[4, 5] = np.inf, 0.0
    graph = layers(1, data)
    plan = compile(graph, limits, Choices(warm=False))
    assert graph.nodes[0].args[1] not in plan.memory.storages
    split, floats = Executor(plan, device), Executor(compile(graph, replace(limits, fast_matrices=False)), device)
    scale = 1e36 * np.exp2(-(np.arange(512) % 60))
    for rows in (3, 1, 4, 20, 2):
        given = (1e36 * np.random.default_rng(rows).standard_normal((rows, 256))).astype(np.float32)
        wanted = given.astype(np.float64) @ data.T.astype(np.float64)
        finite, off = np.isfinite(wanted), []
        for executor in (split, floats):
            executor.poison()
            (found,) = executor.execute([given])
            assert (np.isinf(found) == ~finite).all()
            off.append((np.abs(np.where(finite, found, 0.0) - np.where(finite, wanted, 0.0)) / scale).max())
        assert off[0] <= 1.5 * off[1] + 1e-6


def test_floats_are_on_the_device_while_they_become_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two layers of one weight, each with halves of its own."""
    device = open_device()
    data = np.random.default_rng(0).standard_normal((512, 256)).astype(np.float32)
    plan = compile(layers(2, data), emulate(monkeypatch, device.limits), Choices(warm=False))
    seen: list[tuple[int, int]] = []
    before = live_bytes(device)
    weights = Weights(plan, device, lambda done, total: seen.append((done, total)))
    assert seen == [(data.nbytes, data.nbytes)]
    assert live_bytes(device) - before == weights.nbytes == 2 * (data.nbytes // 2 + 4 * 512)
    weights.close()
    assert live_bytes(device) == before
