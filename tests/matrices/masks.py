"""Attention with additive masks, by matrix units or by what stands for them, against float64."""

from __future__ import annotations

import numpy as np

from liveshape.device.protocol import Device
from liveshape.graph import Limits
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.chains import Chain

HEADS, SIZE, ROWS, KEYS = 2, 32, 40, 128
# What people hide keys by; Hugging Face takes the least number of the dtype.
HIDDEN = {"infinite": -np.inf, "large": -1e9, "least": float(np.finfo(np.float32).min)}


def check_masks(device: Device, limits: Limits, hidden: float) -> None:
    """Keys of several tiles are hidden from all rows, as by left padding, then all keys from one row."""
    chain, draw = Chain(), np.random.default_rng(1)
    q = chain.input((1, HEADS, ROWS, SIZE))
    k, v = (chain.input((1, HEADS, KEYS, SIZE)) for _ in "kv")
    mask, out = chain.input((1, 1, ROWS, KEYS)), chain.tensor((1, HEADS, ROWS, SIZE))
    executor = Executor(
        compile(chain.graph(chain.node("et_vk.sdpa.default", q, k, v, mask, None, out)), limits), device
    )
    for padding, alone in ((0, None), (31, None), (32, None), (96, None), (64, 3)):
        queries, keys, values = (
            draw.standard_normal((1, HEADS, count, SIZE)).astype(np.float32) for count in (ROWS, KEYS, KEYS)
        )
        values[:, :, KEYS // 2 :] *= 100  # a row that sees nothing still counts all keys alike
        given = np.zeros((1, 1, ROWS, KEYS), np.float32)
        given[..., :padding] = hidden
        if alone is not None and np.isfinite(hidden):
            given[..., alone, :] = hidden
        executor.poison()
        (got,) = executor.execute([queries, keys, values, given])
        # In float32 a score vanishes beside the least number, in the model that people compare with as well.
        scores = (queries @ keys.transpose(0, 1, 3, 2) / np.float32(SIZE**0.5) + given).astype(np.float64)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        want = weights / weights.sum(axis=-1, keepdims=True) @ values
        error = np.abs(got - want).max() / np.abs(want).max()
        assert error < 2e-3, f"{padding} keys hidden by {hidden}, and all from row {alone}: {error}"
