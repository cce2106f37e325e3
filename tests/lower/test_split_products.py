"""Products whose columns are split are a product of each part: right at every live size, and only where that holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from liveshape.device.backends import open_device
from liveshape.graph import Graph, Tensor
from liveshape.lower.fusion import fuse
from tests.support.chains import executor_of
from tests.support.movements import Movements

BATCH, ROWS, WIDTH = 3, 19, 24
CALLS = ((3, 19), (1, 1), (2, 5), (1, 19), (3, 2))


class Parts(Movements):
    """A product whose columns are split into so many."""

    def __init__(self, *columns: int, biased: bool = True, flat: bool = True) -> None:
        super().__init__()
        self.columns, self.flat = columns, flat
        random, count = np.random.default_rng(len(columns)), sum(columns)
        self.weight = random.standard_normal((count, WIDTH)).astype(np.float32)
        self.bias = random.standard_normal(count).astype(np.float32) if biased else None
        self.x, (self.batch, self.rows) = self.live((BATCH, ROWS, WIDTH), 2)
        self.w, self.b = self.constant(self.weight), None if self.bias is None else self.constant(self.bias)

    def product(self) -> Tensor:
        x = self.view(self.x, self.times(self.batch, self.rows), WIDTH) if self.flat else self.x
        out = self.tensor((*x.max_shape[:-1], sum(self.columns)))
        return self.node("aten.linear.default", x, self.w, self.b, out)

    def split(self, product: Tensor, dim: int = -1) -> tuple[Tensor, ...]:
        whole = self.view(product, self.batch, self.rows, sum(self.columns)) if self.flat else product
        parts = tuple(self.tensor((BATCH, ROWS, count)) for count in self.columns)
        self.node("aten.split_with_sizes_copy.default", whole, self.columns, dim, parts)
        return parts

    def gated(self, parts: tuple[Tensor, ...]) -> Tensor:
        x, gate = parts
        opened = self.node("aten.gelu.default", gate, "none", self.tensor(gate.max_shape))
        return self.node("aten.mul.Tensor", x, opened, self.tensor(x.max_shape))

    def golden(self, x: np.ndarray) -> tuple[torch.Tensor, ...]:
        bias = None if self.bias is None else torch.from_numpy(self.bias).double()
        made = functional.linear(torch.from_numpy(x).double(), torch.from_numpy(self.weight).double(), bias)
        return made.split(self.columns, -1)


def columns_of(graph: Graph) -> list[int]:
    return [node.args[-1].max_shape[-1] for node in graph.nodes if node.name == "aten.linear.default"]


@pytest.mark.parametrize("options", [{}, {"biased": False}, {"flat": False}])
def test_a_gated_unit_is_a_product_and_one_with_it_in_its_epilogue(options: dict[str, Any]) -> None:
    chain = Parts(32, 32, **options)
    graph = fuse(chain.graph(chain.gated(chain.split(chain.product()))), open_device().limits)
    assert columns_of(graph) == [32, 32]
    assert not any("split" in node.name for node in graph.nodes)
    executor = executor_of(graph, open_device())
    for batch, rows in (*CALLS, *reversed(CALLS)):
        x = np.random.default_rng(rows).standard_normal((batch, rows, WIDTH)).astype(np.float32)
        executor.poison()
        value, gate = chain.golden(x)
        want = (value * functional.gelu(gate)).numpy()
        np.testing.assert_allclose(executor.execute([x])[0], want, 1e-4, 1e-4, err_msg=f"at {(batch, rows)}")


def test_parts_of_any_size() -> None:
    chain = Parts(5, 16, 1)
    graph = fuse(chain.graph(*chain.split(chain.product())), open_device().limits)
    assert columns_of(graph) == [5, 16, 1]
    executor = executor_of(graph, open_device())
    for batch, rows in CALLS:
        x = np.random.default_rng(rows).standard_normal((batch, rows, WIDTH)).astype(np.float32)
        executor.poison()
        for out, want in zip(executor.execute([x]), chain.golden(x), strict=True):
            np.testing.assert_allclose(out, want.numpy(), 1e-4, 1e-4)


def test_a_product_that_something_else_reads_stays() -> None:
    chain = Parts(32, 32)
    product = chain.product()
    parts = chain.split(product)
    other = chain.node("aten.tanh.default", product, chain.tensor(product.max_shape))
    assert columns_of(fuse(chain.graph(chain.gated(parts), other), open_device().limits)) == [64]


def test_a_weight_that_a_call_writes_stays() -> None:
    chain = Parts(32, 32)
    out = chain.gated(chain.split(chain.product()))
    chain.node("liveshape.move", chain.input(chain.w.max_shape), chain.w)
    assert columns_of(fuse(chain.graph(out), open_device().limits)) == [64]


def test_a_weight_of_two_products_stays() -> None:
    chain = Parts(32, 32)
    out = chain.gated(chain.split(chain.product()))
    assert columns_of(fuse(chain.graph(out, chain.product()), open_device().limits)) == [64, 64]
