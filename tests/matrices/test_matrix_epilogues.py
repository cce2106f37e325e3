"""Products by matrix units with expressions in their epilogues, and results between them stored as float16."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from liveshape.plan.compiling import compile
from liveshape.run.constant_norms import compile_measured
from liveshape.run.executor import Executor
from tests.matrices.opened import kernels_of, with_matrices
from tests.plan.test_half_results import WIDTH, Block

pytestmark = pytest.mark.slow


def test_a_block_with_halves_between_its_products_is_as_exact_as_without() -> None:
    device, limits = with_matrices()
    block = Block()
    residual = block.input((64, WIDTH))
    total = block.node("aten.add.Tensor", block.out, residual, 1, block.tensor((64, WIDTH)))
    graph = block.graph(total)
    plan = compile_measured(graph, limits)
    assert sum(getattr(value, "dtype", "") == "float16" for node in plan.graph.nodes for value in node.outputs) == 2
    fused, apart = Executor(plan, device), Executor(compile(graph, limits), device)
    weight, bias, first, second = (torch.from_numpy(array).double() for array in block.arrays)
    random = np.random.default_rng(2)
    for rows in (64, 1, 17, 63, 16, 5, 40, 64):
        x, other = (random.standard_normal((rows, WIDTH)).astype("float32") for _ in range(2))
        normed = torch.nn.functional.layer_norm(torch.from_numpy(x).double(), (WIDTH,), weight, bias, 1e-5)
        want = (torch.nn.functional.gelu(normed @ first.T) @ second.T).numpy() + other
        fused.poison()
        apart.poison()
        off, off_apart = (np.abs(each.execute([x, other])[0] - want).max() for each in (fused, apart))
        assert off <= 1.5 * off_apart + 1e-3, f"at {rows} rows: {off}, apart {off_apart}"
        assert off <= 2e-3 * np.abs(want).max()
    assert any("matmul/matrix_tiles" in name and "gelu" in name for name in kernels_of(device))
