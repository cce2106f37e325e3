"""The logits of several tokens from graphs that give those of the last: the same rows, or the graph stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Graph, SymInt, Tensor
from liveshape.llm.program.last_logits import keep_last_logits
from tests.support.chains import Chain, executor_of

RANDOM = np.random.default_rng(2)
SCALE = RANDOM.standard_normal(16).astype(np.float32)
WEIGHT = RANDOM.standard_normal((20, 16)).astype(np.float32)
Tail = Callable[[Chain, Tensor], Tensor]


def scaled(chain: Chain, x: Tensor) -> Tensor:
    return chain.node("aten.mul.Tensor", x, chain.constant(SCALE), chain.tensor((1, 16)))


def linear(chain: Chain, x: Tensor) -> Tensor:
    return chain.node("aten.linear.default", x, chain.constant(WEIGHT), None, chain.tensor((1, 20)))


def head(chain: Chain, x: Tensor) -> Tensor:
    found = linear(chain, scaled(chain, x))
    return chain.node("aten.slice_copy.Tensor", found, 1, 0, 18, 1, chain.tensor((1, 18)))


def program(tail: Tail, dim: int = 1, index: int = -1) -> tuple[Graph, Tensor]:
    chain = Chain()
    x = chain.input((1, 8, 16))
    logits = tail(chain, chain.node("aten.select_copy.int", x, dim, index, chain.tensor((1, 16))))
    return chain.graph(logits), logits


@pytest.mark.parametrize("dim", [1, -2])
def test_the_last_rows_as_many_as_are_asked_for(dim: int) -> None:
    rows = SymInt("rows", 1)
    graph, logits = keep_last_logits(*program(head, dim), rows, 4)
    assert logits.max_shape == (4, 18)
    assert graph.outputs == (logits,)
    executor = executor_of(graph, open_device())
    x = RANDOM.standard_normal((1, 8, 16)).astype(np.float32)
    expected = ((x[0] * SCALE) @ WEIGHT.T)[:, :18]
    for given, wanted in ((8, 1), (8, 4), (5, 3), (1, 1), (2, 4), (8, 2), (8, 1)):
        executor.poison()
        executor.set_scalar(rows, wanted)
        (got,) = executor.execute([x[:, :given]])
        np.testing.assert_allclose(got, expected[max(given - wanted, 0) : given], 1e-5, 1e-5)


def test_one_row_takes_the_kernels_that_it_took() -> None:
    x = RANDOM.standard_normal((1, 8, 16)).astype(np.float32)
    kernels = []
    for graph in (program(head)[0], keep_last_logits(*program(head), SymInt("rows", 1), 4)[0]):
        executor = executor_of(graph, open_device())
        executor.execute([x])
        steps = [executor.live.described(index) for index in range(len(graph.nodes))]
        kernels.append([(label, grid) for node in steps for label, _, _, grid in node])
    assert kernels[0] == kernels[1]
    assert len(kernels[0]) == 4


def beside_two(chain: Chain, x: Tensor) -> Tensor:
    two = chain.constant(np.ones((2, 20), np.float32))
    return chain.node("aten.add.Tensor", linear(chain, x), two, 1, chain.tensor((2, 20)))


def over_rows(chain: Chain, x: Tensor) -> Tensor:
    return linear(chain, chain.node("aten.mean.dim", x, (0,), True, None, chain.tensor((1, 16))))


def along_rows(chain: Chain, x: Tensor) -> Tensor:
    return linear(chain, chain.node("aten.slice_copy.Tensor", x, 0, 0, 1, 1, chain.tensor((1, 16))))


def unknown(chain: Chain, x: Tensor) -> Tensor:
    return linear(chain, chain.node("aten.cumsum.default", x, 0, None, chain.tensor((1, 16))))


def as_weight(chain: Chain, x: Tensor) -> Tensor:
    one = chain.constant(np.ones((1, 16), np.float32))
    return chain.node("aten.linear.default", one, x, None, chain.tensor((1, 1)))


@pytest.mark.parametrize("tail", [beside_two, over_rows, along_rows, unknown, as_weight])
def test_what_is_not_the_same_for_every_row_stays(tail: Tail) -> None:
    before: Any = program(tail)
    graph, logits = keep_last_logits(*before, SymInt("rows", 1), 4)
    assert graph is before[0]
    assert logits is before[1]


def test_another_row_than_the_last_stays() -> None:
    before = program(head, index=0)
    assert keep_last_logits(*before, SymInt("rows", 1), 4)[0] is before[0]
