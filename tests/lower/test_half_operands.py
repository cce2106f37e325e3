"""Queries, keys and values that attention by matrix units would round are stored as halves by what projects them.

The graph of a GPU with matrix units runs in every kernel of attention, which take such operands beside floats.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Graph
from liveshape.lower.lowering import optimized, simplified
from liveshape.lower.pattern_operators import SPELLED_ATTENTION
from liveshape.run.constant_norms import measured
from tests.lower.test_attention_epilogues import WAYS
from tests.matrices.opened import kernels_of
from tests.plan.test_matrices import MATRICES
from tests.support.blocks import Blocks
from tests.support.chains import executor_of

WIDTH, HEADS = 48, 3
CALLS = [(2, 33), (1, 1), (2, 17), (1, 33), (2, 5)]


def fused(graph: Graph) -> Graph:
    return optimized(simplified(graph, MATRICES), MATRICES, measured)


@pytest.mark.parametrize("way", WAYS)
def test_projections_of_a_norm_are_stored_as_halves(way: str) -> None:
    chain = Blocks(3)
    x = chain.input((2, 33, WIDTH))
    graph = chain.graph(chain.attention(chain.layer_norm(x), HEADS))
    assert attended(graph) == ["float16"] * 3
    limits = replace(open_device().limits, **WAYS[way])
    device = open_device(limits=limits)
    executor = executor_of(fused(graph), device)
    for batch, length in (*CALLS, *reversed(CALLS)):
        given = np.random.default_rng(batch + length).standard_normal((batch, length, WIDTH)).astype(np.float32)
        executor.poison()
        (out,) = executor.execute([given])
        (want,) = chain.golden(graph, given)
        assert float(np.abs(out - want).max()) < 4e-3 * max(1.0, float(np.abs(want).max()))
    assert any(way in kernel for kernel in kernels_of(device)), kernels_of(device)


def attended(graph: Graph) -> list[str]:
    """The dtypes of the queries, keys and values of a graph that is fused."""
    (node,) = (node for node in fused(graph).nodes if node.name == SPELLED_ATTENTION)
    return [each.dtype for each in node.args[:3]]


def test_numbers_without_a_bound_stay_floats() -> None:
    chain = Blocks(4)
    graph = chain.graph(chain.attention(chain.input((2, 33, WIDTH)), HEADS))
    assert attended(graph) == ["float32"] * 3


@pytest.mark.parametrize("bounded", [True, False])
def test_keys_stay_floats_beside_values_that_must(bounded: bool) -> None:
    """Both have one dtype; queries have their own, where they are no product with the keys."""
    chain = Blocks(5)
    x = chain.input((2, 33, WIDTH))
    normed, asking = chain.layer_norm(x), chain.layer_norm(x)
    graph = chain.graph(chain.attention(normed, HEADS, normed if bounded else x, asking))
    assert attended(graph) == ["float16", *["float16" if bounded else "float32"] * 2]
