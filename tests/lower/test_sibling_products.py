"""Linears of one input that attention reads are one product: right at every live size, and only where that holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.backends import open_device
from liveshape.graph import Graph, Tensor
from liveshape.lower.fusion import fuse
from tests.support.chains import executor_of
from tests.support.movements import Movements

BATCH, ROWS, KEYS, HEADS, SIZE = 3, 19, 11, 4, 8
WIDTH = HEADS * SIZE
CALLS = ((3, 19, 11), (1, 1, 1), (2, 5, 11), (3, 2, 7), (1, 19, 2))


class Attending(Movements):
    """Attention of an input to itself, or to a second one, behind projections with weights of their own."""

    def __init__(
        self,
        *,
        cross: bool = False,
        key_heads: int = HEADS,
        biased: bool = True,
        flat: bool = True,
        halved: bool = False,  # of which values are
    ) -> None:
        super().__init__()
        self.halved = halved
        self.random = np.random.default_rng(key_heads)
        self.cross, self.key_heads, self.biased, self.flat = cross, key_heads, biased, flat
        self.x, (self.batch, self.rows) = self.live((BATCH, ROWS, WIDTH), 2)
        self.memory, self.keys = self.x, self.rows
        if cross:
            self.memory, (_, self.keys) = self.live((BATCH, KEYS, WIDTH), 2)
        self.layers: list[tuple[np.ndarray, np.ndarray]] = []
        self.new: Tensor | None = None  # what becomes of x behind the queries

    def projected(self, x: Tensor, rows: Any, heads: int) -> Tensor:
        """(batch, heads, rows, size)."""
        weight, bias = self.random.standard_normal((heads * SIZE, WIDTH)), self.random.standard_normal(heads * SIZE)
        self.layers.append((weight, bias if self.biased else bias * 0))
        made = self.constant(weight.astype("float32"))
        added = self.constant(bias.astype("float32")) if self.biased else None
        if self.flat:
            x = self.view(x, self.times(self.batch, rows), WIDTH)
        out = self.node("aten.linear.default", x, made, added, self.tensor((*x.max_shape[:-1], heads * SIZE)))
        return self.permute(self.view(out, self.batch, rows, heads, SIZE), 0, 2, 1, 3)

    def attended(self) -> Tensor:
        q = self.projected(self.x, self.rows, HEADS)
        if self.new is not None:
            self.node("liveshape.move", self.new, self.x)
        values = self.broadcast("aten::mul.Scalar_out", self.memory, 0.5) if self.halved else self.memory
        k, v = (self.projected(each, self.keys, self.key_heads) for each in (self.memory, values))
        if self.key_heads != HEADS:
            k, v = self.repeated(k), self.repeated(v)
        units = self.times(self.batch, HEADS)
        left = self.view(q, units, self.rows, SIZE)
        scores = self.product(left, self.view(self.permute(k, 0, 1, 3, 2), units, SIZE, self.keys))
        scaled = self.broadcast("aten::mul.Scalar_out", scores, SIZE**-0.5)
        shares = self.node("aten._softmax.default", scaled, -1, False, self.tensor(scores.max_shape))
        return self.product(shares, self.view(v, units, self.keys, SIZE))

    def repeated(self, x: Tensor) -> Tensor:
        batch, keys = self.batch, self.keys
        spread = self.expand(self.unsqueeze(x, 2), batch, self.key_heads, HEADS // self.key_heads, keys, SIZE)
        return self.view(spread, batch, HEADS, keys, SIZE)

    def golden(self, x: np.ndarray, memory: np.ndarray) -> np.ndarray:
        made = []
        values = memory / 2 if self.halved else memory
        for (weight, bias), rows, heads in zip(
            self.layers, (x, memory, values), (HEADS, self.key_heads, self.key_heads), strict=True
        ):
            array = (rows.astype(np.float64) @ weight.T + bias).reshape(*rows.shape[:2], heads, SIZE)
            made.append(torch.from_numpy(array.repeat(HEADS // heads, axis=2)).transpose(1, 2))
        found: np.ndarray = torch.nn.functional.scaled_dot_product_attention(*made).flatten(0, 1).numpy()
        return found


def linears(graph: Graph) -> list[Any]:
    return [node.args[-1].max_shape[-1] for node in graph.nodes if node.name == "aten.linear.default"]


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, [3 * WIDTH]),
        ({"biased": False}, [3 * WIDTH]),
        ({"flat": False}, [3 * WIDTH]),
        ({"key_heads": 2}, [2 * WIDTH]),
        ({"halved": True}, [2 * WIDTH, WIDTH]),
        ({"halved": True, "flat": False}, [2 * WIDTH, WIDTH]),
        ({"cross": True}, [WIDTH, 2 * WIDTH]),
        ({"cross": True, "key_heads": 1, "flat": False}, [WIDTH, 2 * SIZE]),
    ],
)
def test_projections_of_one_input_are_one_product(options: dict[str, Any], columns: list[int]) -> None:
    chain = Attending(**options)
    graph = fuse(chain.graph(chain.attended()), open_device().limits)
    assert sorted(linears(graph)) == sorted(columns)
    executor = executor_of(graph, open_device())
    random = np.random.default_rng(5)
    for batch, rows, keys in (*CALLS, *reversed(CALLS)):
        inputs = [random.standard_normal((batch, rows, WIDTH)).astype("float32")]
        if chain.cross:
            inputs.append(random.standard_normal((batch, keys, WIDTH)).astype("float32"))
        executor.poison()
        want = chain.golden(inputs[0], inputs[-1])
        np.testing.assert_allclose(executor.execute(inputs)[0], want, 1e-4, 1e-4, err_msg=f"at {(batch, rows, keys)}")


def test_a_projection_that_something_else_reads_stays() -> None:
    chain = Attending()
    out = chain.attended()
    read = next(node for node in chain.graph(out).nodes if node.name == "aten.linear.default").args[-1]
    other = chain.node("aten.tanh.default", read, chain.tensor(read.max_shape))
    assert linears(fuse(chain.graph(out, other), open_device().limits)) == [WIDTH, 2 * WIDTH]


def test_weights_that_a_call_writes_stay_apart() -> None:
    chain = Attending()
    out = chain.attended()
    graph = chain.graph(out)
    weights = [node.args[1] for node in graph.nodes if node.name == "aten.linear.default"]
    new = chain.input(weights[1].max_shape)
    chain.node("liveshape.move", new, weights[1])
    assert linears(fuse(chain.graph(out), open_device().limits)) == [2 * WIDTH, WIDTH], "the keys' stays"


@pytest.mark.parametrize("flat", [True, False])
def test_projections_of_an_input_that_is_written_in_between_stay_apart(flat: bool) -> None:
    chain = Attending(flat=flat)
    chain.new = chain.input((BATCH, ROWS, WIDTH))
    graph = fuse(chain.graph(chain.attended()), open_device().limits)
    assert WIDTH in linears(graph)
    executor = executor_of(graph, open_device())
    random = np.random.default_rng(6)
    for batch, rows, _ in (*CALLS, *reversed(CALLS)):
        before, after = (random.standard_normal((batch, rows, WIDTH)).astype("float32") for _ in range(2))
        want = chain.golden(before, after)
        np.testing.assert_allclose(executor.execute([before, after])[0], want, 1e-4, 1e-4, err_msg=f"at {batch, rows}")
