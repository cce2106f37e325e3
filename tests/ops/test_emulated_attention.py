"""Attention in tiles of matrices, against float64: matrix units are emulated in WGSL, 32 lanes at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.lower.lowering import optimized, simplified
from liveshape.ops import attention_heuristics
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.lower.test_attention_patterns import SPELLINGS, Spelled, drawn, golden
from tests.matrices.masks import HIDDEN, check_masks
from tests.matrices.opened import kernels_of
from tests.support.emulated_attention import emulate


# A compiler for CPUs takes long over the text of a tile: that of one mask, which the others share, is enough.
@pytest.mark.parametrize(
    "hidden",
    [pytest.param(each, id=name, marks=() if name == "least" else pytest.mark.slow) for name, each in HIDDEN.items()],
)
def test_masks(hidden: float, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = emulate(monkeypatch, open_device().limits)
    device = open_device(limits=limits)
    check_masks(device, limits, hidden)
    assert "attention/matrix_tiles" in kernels_of(device)


# Half of a matrix is zeros; queries, keys and values are columns of one tensor, and the last tiles have few rows.
@pytest.mark.slow
def test_heads_of_half_a_matrix_along_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_heuristics, "FEW_LARGE_TILES", 0)
    limits = emulate(monkeypatch, open_device().limits)
    device = open_device(limits=limits)
    case = replace(SPELLINGS["one projection"], size=24)
    chain = Spelled(case)
    out = case.write(chain)
    graph = chain.graph(chain.node("aten.tanh.default", out, chain.tensor(out.max_shape)))
    executor = Executor(compile(optimized(simplified(graph, limits), limits), limits), device)
    generator = np.random.default_rng(0)
    for batch, rows in ((3, 21), (1, 20), (2, 17)):
        inputs = drawn(case, generator, batch, rows, rows)
        executor.poison()
        wanted = np.tanh(golden(case, inputs, None))
        np.testing.assert_allclose(executor.execute(inputs)[0], wanted, 4e-3, 4e-3)
    assert any(name.startswith("attention/matrix_tiles + ") for name in kernels_of(device))
