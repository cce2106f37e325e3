"""The last rows taken before the operators that do the same to every row: the same logits, or the graph as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Graph, Limits, SymInt, Tensor
from liveshape.graph.activation_kinds import ACTIVATIONS
from liveshape.llm.program.hoist_last_rows import hoist_last_rows
from liveshape.llm.program.last_logits import keep_last_logits
from liveshape.llm.program.token_graph import token_graph
from liveshape.lower.activations import with_activations
from liveshape.lower.fusion import fuse
from liveshape.lower.pattern_operators import VIEW
from liveshape.tools.measuring.random_llamas import Shape, llama_graph
from tests.models.test_layers import Layers
from tests.support.chains import Chain, executor_of

ROWS, WIDTH, MOST = 12, 16, 4
RANDOM = np.random.default_rng(2)
GATE, UP, HEAD = (RANDOM.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 4 for _ in range(3))
SCALE = RANDOM.standard_normal(WIDTH).astype(np.float32)
SIZES = ((12, 1), (12, 4), (5, 3), (1, 1), (2, 4), (12, 2), (7, 1))


class Layer:
    """A unit of rows with what comes before and after it."""

    def __init__(self) -> None:
        self.chain = Chain()
        self.x = self.chain.input((1, ROWS, WIDTH))

    def put(self, name: str, *args: Any, width: int = WIDTH) -> Tensor:
        return self.chain.node(name, *args, self.chain.tensor((1, ROWS, width)))

    def linear(self, x: Tensor, weight: np.ndarray) -> Tensor:
        return self.put("aten.linear.default", x, self.chain.constant(weight), None)

    def cumulated(self) -> Tensor:
        """Something of all rows, as attention is."""
        return self.put("aten.cumsum.default", self.x, 1, None)

    def unit(self, x: Tensor) -> Tensor:
        """x + linear(sigmoid(linear(x)) * x * scale)"""
        gate = self.put("aten.sigmoid.default", self.linear(x, GATE))
        scaled = self.put("aten.mul.Tensor", self.put("aten.mul.Tensor", gate, x), self.chain.constant(SCALE))
        return self.put("aten.add.Tensor", x, self.linear(scaled, UP), 1)

    def graph(self, x: Tensor, *more: Tensor, most: int = MOST) -> tuple[Graph, SymInt]:
        last = self.chain.node("aten.select_copy.int", x, 1, -1, self.chain.tensor((1, WIDTH)))
        weight = self.chain.constant(HEAD)
        logits = self.chain.node("aten.linear.default", last, weight, None, self.chain.tensor((1, WIDTH)))
        rows = SymInt("rows", 1)
        return keep_last_logits(self.chain.graph(logits, *more), logits, rows, most)[0], rows


def golden(x: np.ndarray) -> np.ndarray:
    total = np.cumsum(x[0].astype(np.float64), 0)
    gate = 1 / (1 + np.exp(-(total @ GATE.T)))
    return (total + (gate * total * SCALE) @ UP.T) @ HEAD.T


def bounds(graph: Graph) -> list[int]:
    """How many rows each node has room for."""
    return [node.args[-1].max_shape[-2] for node in graph.nodes]


def test_rows_are_taken_where_others_are_needed_no_more() -> None:
    layer = Layer()
    before, rows = layer.graph(layer.unit(layer.cumulated()))
    graph = hoist_last_rows(before)
    assert bounds(before) == [ROWS] * 7 + [MOST] * 2
    assert bounds(graph) == [ROWS] + [MOST] * 9
    assert graph.nodes[-2].name == VIEW
    executor = executor_of(graph, open_device())
    for given, wanted in SIZES:
        x = RANDOM.standard_normal((1, given, WIDTH)).astype(np.float32)
        executor.poison()
        executor.set_scalar(rows, wanted)
        (got,) = executor.execute([x])
        np.testing.assert_allclose(got, golden(x)[max(given - wanted, 0) :], 1e-4, 1e-4)


def test_what_somebody_else_reads_keeps_all_rows() -> None:
    layer = Layer()
    first = layer.unit(layer.cumulated())
    graph, _ = layer.graph(layer.unit(first), layer.put("aten.cumsum.default", first, 1, None))
    assert bounds(hoist_last_rows(graph)).count(ROWS) == 1 + 6 + 1, "the second unit alone is of few rows"


def test_what_is_an_output_keeps_all_rows() -> None:
    layer = Layer()
    total = layer.unit(layer.cumulated())
    graph, _ = layer.graph(total, total)
    assert hoist_last_rows(graph) is graph


@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (1, ROWS, WIDTH), (ROWS, 1)])
def test_a_constant_of_every_row_keeps_them(shape: tuple[int, ...]) -> None:
    layer = Layer()
    table = layer.chain.constant(RANDOM.standard_normal(shape).astype(np.float32))
    graph, _ = layer.graph(layer.put("aten.add.Tensor", layer.cumulated(), table, 1))
    assert hoist_last_rows(graph) is graph


def test_rows_that_are_written_twice_are_not_taken_from_before() -> None:
    layer = Layer()
    total = layer.cumulated()
    unit = layer.unit(total)
    layer.chain.node("aten.add.Tensor", unit, unit, 1, total)
    graph, _ = layer.graph(unit)
    assert all(node.name != "liveshape.last_rows" or node.args[0] is not total for node in hoist_last_rows(graph).nodes)


def test_a_call_that_is_never_longer_than_what_is_taken_stays() -> None:
    layer = Layer()
    graph, _ = layer.graph(layer.unit(layer.cumulated()), most=ROWS)
    assert hoist_last_rows(graph) is graph


def test_without_a_last_row_nothing_changes() -> None:
    layer = Layer()
    total = layer.unit(layer.cumulated())
    graph = layer.chain.graph(total)
    assert hoist_last_rows(graph) is graph


@pytest.mark.parametrize("activations", ACTIVATIONS)
def test_of_the_last_layer_of_a_model_only_attention_has_all_rows(activations: str) -> None:
    limits = Limits(max_bindings=9)
    made = llama_graph(Shape(2, 64, 96, 4, 2, 16, 128, 32, 128, 256), limits)
    graph = token_graph(with_activations(made, activations, limits), {}).graph
    attention = max(node.index for node in graph.nodes if "sdpa" in node.name)
    layers = [node for node in graph.nodes if "q4gsw" in node.name and node.index > attention]
    assert len(layers) == 4, "of the output, of the unit and back, and the head"
    tensors = [value for node in layers for value in node.outputs if isinstance(value, Tensor)]
    assert all(tensor.max_shape[-2] == 16 for tensor in tensors)


@pytest.mark.parametrize("shared", [True, False], ids=["read by others", "private"])
def test_bytes_of_one_row_are_not_taken_from_many(shared: bool) -> None:
    """A sum in 8 bits is written while it has one live row: where it keeps all rows, nobody may take the last one."""
    made, rows = Layers(group=32), SymInt("rows", 1)
    chain, shape = made.chain, (1, 40, 64)
    mixed = chain.node("aten.cumsum.default", chain.input(shape), 1, None, chain.tensor(shape))
    total = made.add(chain.node("aten.cumsum.default", mixed, 1, None, chain.tensor(shape)), made.layer(mixed, 64))
    out = made.add(total, made.layer(made.gated(made.norm(total), 96), 64))
    others = [chain.node("aten.cumsum.default", total, 1, None, chain.tensor(shape))] if shared else []
    last = chain.node("aten.select_copy.int", out, 1, -1, chain.tensor((1, 64)))
    limits = Limits(max_bindings=9)
    graph = with_activations(fuse(chain.graph(made.layer(made.norm(last), 128), *others), limits), "int8", limits)
    logits = graph.outputs[0]
    assert isinstance(logits, Tensor)
    early = hoist_last_rows(keep_last_logits(graph, logits, rows, 16)[0])
    (added,) = [node for node in early.nodes if node.name == "liveshape.residual_quantized_linear_q4gsw"]
    taken = [node.args[0] for node in early.nodes if node.name == "liveshape.last_rows"]
    assert taken
    assert not set(taken) & {added.outputs[1]}
    assert (added.outputs[1].max_shape[1] == 40) == shared, "private sums are taken early as a whole"
