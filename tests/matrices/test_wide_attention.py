"""Attention of one head too wide for a workgroup, as two products of matrix units, at live sizes up and down."""

from __future__ import annotations

import numpy as np
import pytest

from liveshape.graph import Tensor
from liveshape.lower.fusion import fuse
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.matrices.opened import kernels_of, with_matrices
from tests.support.movements import Movements

pytestmark = pytest.mark.slow
BATCH, ROWS, WIDTH = 2, 200, 24
CALLS = ((2, 200), (1, 67), (2, 130), (1, 200), (2, 3), (1, 93))


class Wide(Movements):
    """Attention of one head among rows, of projections whose weights are multiplied by these numbers."""

    def __init__(self, size: int, values: int, scales: tuple[float, float, float]) -> None:
        super().__init__()
        self.random, self.size = np.random.default_rng(size), size
        self.x, _ = self.live((BATCH, ROWS, WIDTH), 2)
        draws = zip(scales, (size, size, values), strict=True)
        self.weights = [
            (scale * self.random.standard_normal((columns, WIDTH)) * WIDTH**-0.5).astype(np.float32)
            for scale, columns in draws
        ]

    def attended(self) -> Tensor:
        q, k, v = (
            self.node(
                "aten.linear.default", self.x, self.constant(weight), None, self.tensor((BATCH, ROWS, len(weight)))
            )
            for weight in self.weights
        )
        scores = self.product(q, self.permute(k, 0, 2, 1))
        scaled = self.broadcast("aten::mul.Scalar_out", scores, self.size**-0.5)
        shares = self.node("aten._softmax.default", scaled, -1, False, self.tensor(scores.max_shape))
        return self.product(shares, v)

    def golden(self, x: np.ndarray) -> np.ndarray:
        q, k, v = (x.astype(np.float64) @ weight.T.astype(np.float64) for weight in self.weights)
        scores = q @ k.transpose(0, 2, 1) * self.size**-0.5
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        found: np.ndarray = shares / shares.sum(-1, keepdims=True) @ v
        return found


@pytest.mark.parametrize(
    ("size", "values", "scales"),
    [(136, 136, (1.0, 1.0, 1.0)), (264, 136, (1.0, 1.0, 1e5)), (136, 160, (1e5, 1e-5, 1e-6))],
)
def test_one_wide_head(size: int, values: int, scales: tuple[float, float, float]) -> None:
    device, limits = with_matrices()
    chain = Wide(size, values, scales)
    graph = fuse(chain.graph(chain.attended()), limits)
    assert [node.name for node in graph.nodes].count("liveshape.attention") == 1
    executor = Executor(compile(graph, limits), device)
    for batch, rows in (*CALLS, *reversed(CALLS)):
        x = np.random.default_rng(rows).standard_normal((batch, rows, WIDTH)).astype(np.float32)
        executor.poison()
        (out,) = executor.execute([x])
        want = chain.golden(x)
        error = np.abs(out - want).max() / np.abs(want).max()
        assert error < 4e-3, f"{error} at {(batch, rows)}"
    assert "attention/softmax_lines" in kernels_of(device)
