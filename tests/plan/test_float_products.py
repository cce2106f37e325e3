"""Which kernels products of floats take on devices of every kind. No GPU."""

from __future__ import annotations

import pytest

from liveshape.graph import Graph, Limits, Tensor
from liveshape.ops import OPS
from liveshape.plan.compiling import compile

FEW_THREADS = Limits(max_cooperating_threads=4, max_invocations=32, lanes=8)


def mm(rows: int, depth: int, columns: int) -> Graph:
    """Of inputs that are both given."""
    x, other = Tensor("x", "float32", (rows, depth)), Tensor("other", "float32", (depth, columns))
    out = Tensor("out", "float32", (rows, columns))
    node = OPS["aten.mm.default"].bind(0, "mm", (x, other, out))
    return Graph("mm", (node,), (x, other, out), (x, other), (out,))


def kernels(graph: Graph, limits: Limits) -> set[str]:
    """Of every route that a plan has."""
    return {variant.kernel.name for variant in compile(graph, limits).kernels}


@pytest.mark.parametrize("rows", [1, 3, 300])
def test_subgroups_multiply_where_threads_are_few(rows: int) -> None:
    assert kernels(mm(rows, 64, 64), FEW_THREADS) == {"matmul/lane_tiles"}
    assert "matmul/lane_tiles" not in kernels(mm(rows, 64, 64), Limits(max_cooperating_threads=4))
    assert "matmul/lane_tiles" not in kernels(mm(rows, 64, 64), Limits(lanes=8))
