"""What a token costs, as counts that no machine changes: dispatches, bytes, operations and params. No GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from bench.host import Decoding, reduced
from liveshape.device.protocol import Clock, Command
from liveshape.graph import Tensor
from liveshape.lower.lowering import optimized
from liveshape.plan.compiling import compile
from liveshape.plan.cost import Cost, costs
from liveshape.plan.layers import AFTER, BEFORE, layers_of
from liveshape.run.executor import Executor
from liveshape.tools.measuring.random_llamas import Llama
from tests.ops.cases import CASES
from tests.plan.test_equality import _planned, _resize
from tests.support.chains import Chain
from tests.support.paper import PaperDevice

MOST_DISPATCHES = 7  # of a layer, with a context that is split
MOST_AROUND = 7  # before and after the layers, and where the last one takes the last rows
MOST_PARAMS = 3200  # bytes


@cache
def decoded(layers: int) -> tuple[Decoding, Sequence[Command], int]:
    """A model after some tokens, the commands of the last one, and the bytes of params that it wrote."""
    decoding = Decoding(reduced(layers))
    decoding.tokens(5)
    arena = decoding.engine.executor.live.arena
    before = arena.uploaded
    noted: list[Sequence[Command]] = []
    with decoding.device.watched(Clock.NOTHING, noted.append):
        decoding.token()
    (commands,) = noted
    return decoding, commands, arena.uploaded - before


def total(executor: Executor) -> Cost:
    half = executor.plan.limits.half
    return sum((cost for node in executor.live.nodes for cost in costs(node, half)), Cost())


def test_dispatches_per_token() -> None:
    few, many = (len(decoded(layers)[1]) for layers in (4, 16))
    assert (many - few) % 12 == 0, "every layer has the same"
    assert (many - few) // 12 <= MOST_DISPATCHES
    assert few - (many - few) // 3 <= MOST_AROUND


def test_a_product_with_an_epilogue_has_its_operations() -> None:
    chain, (rows, depth, columns) = Chain(), (9, 24, 40)
    x, residual = chain.input((rows, depth)), chain.input((rows, columns))
    weight = chain.constant(np.ones((columns, depth), np.float32))
    product = chain.node("aten.linear.default", x, weight, None, chain.tensor((rows, columns)))
    out = chain.node("aten.add.Tensor", product, residual, 1, chain.tensor((rows, columns)))
    limits = PaperDevice().limits
    fused = optimized(chain.graph(out), limits)
    assert [node.name for node in fused.nodes] == ["liveshape.composed"]
    executor = Executor(compile(fused, limits), PaperDevice())
    executor.execute([np.ones((rows, depth), np.float32), np.ones((rows, columns), np.float32)])
    assert total(executor).operations == 2 * rows * depth * columns
    (command,) = executor.encoder.commands(executor.live, 0, 1)
    assert command.label.rpartition(", kernel ")[2].endswith(" + add"), "the kernel is named with its expression"


def test_params_per_token_are_the_same_at_every_depth() -> None:
    few, many = (decoded(layers)[2] for layers in (4, 16))
    assert 0 < few == many <= MOST_PARAMS


def test_a_token_reads_every_weight_and_the_cache_once() -> None:
    layers = 4
    decoding, _, _ = decoded(layers)
    executor, shape = decoding.engine.executor, reduced(layers)
    graph = executor.graph
    tables = [tensor for node in graph.nodes if node.gathers for tensor in node.inputs if isinstance(tensor, Tensor)]
    weights = sum(
        len(tensor.constant)
        for tensor in graph.tensors
        if tensor.constant is not None
        and tensor not in tables
        and graph.consumers[tensor]
        and not graph.writers[tensor]
        and tensor.max_shape[0] != shape.max_context  # angles, of which a token takes one row
    )
    context = decoding._position
    cache_bytes = 2 * layers * context * shape.kv_heads * shape.head_size * 4
    cost = total(executor)
    assert weights + cache_bytes <= cost.read <= 1.05 * (weights + cache_bytes)
    assert cost.written <= 0.05 * cost.read
    products = layers * (
        shape.hidden * (shape.heads + 2 * shape.kv_heads) * shape.head_size
        + shape.heads * shape.head_size * shape.hidden
        + 3 * shape.hidden * shape.ffn
        + 2 * shape.heads * shape.head_size * context
    )
    products += shape.hidden * shape.vocabulary
    assert 2 * products <= cost.operations <= 1.05 * 2 * products


def test_rows_read_the_weights_once_and_compute_with_each() -> None:
    shape = reduced(2)
    plan = compile(Llama(shape).graph())
    executor = Executor(plan, PaperDevice())

    def of(rows: int) -> Cost:
        executor.execute([np.zeros((1, rows), np.int64), np.zeros(1, np.int64)])
        return total(executor)

    one, eight = of(1), of(8)
    assert one.read < eight.read < 2 * one.read
    assert eight.operations > 4 * one.operations


@pytest.mark.parametrize(
    ("operator", "operations"),
    [("aten.mm.default", 2 * 5 * 7 * 11), ("aten.add.Tensor", 35)],
)
def test_products_and_everything_else(operator: str, operations: int) -> None:
    chain = Chain()
    x = chain.input((5, 7))
    if operator == "aten.mm.default":
        out = chain.node(operator, x, chain.input((7, 11)), chain.tensor((5, 11)))
    else:
        out = chain.node(operator, x, x, 1, chain.tensor((5, 7)))
    executor = Executor(compile(chain.graph(out)), PaperDevice())
    executor.execute([np.zeros(value.max_shape, np.float32) for value in executor.graph.inputs])
    cost = total(executor)
    assert cost.operations == operations
    assert cost.read == (4 * (35 + 77) if operator == "aten.mm.default" else 4 * 35), "each tensor once"


def test_every_operator_can_be_counted() -> None:
    """Whatever a program has, a profile of it must not fail; products are known as what they are."""
    for case in CASES:
        graph, live = _planned(case, max(case.sizes))
        _resize(case, graph, live, case.sizes[len(case.sizes) // 2])
        for node in live.nodes:
            found = costs(node, half=True)
            assert len(found) == len(node.group.route.dispatched)
            assert all(min(cost.read, cost.written, cost.operations) >= 0 for cost in found)
            if node.node.run.__module__.rpartition(".")[2] in ("matmul", "convolution") and found:
                given = sum(tensor.numel for tensor in node.outputs)
                depth = min(tensor.numel for tensor in node.inputs)
                if depth:
                    assert sum(cost.operations for cost in found) >= 2 * given, node.node.name


def test_layers_are_told_by_attention() -> None:
    plan = decoded(4)[0].engine.executor.plan
    names = layers_of(plan)
    assert names is not None
    assert list(dict.fromkeys(names)) == [BEFORE, *(f"layer {layer}" for layer in range(4)), AFTER]
    of_layer = [
        [node.name for node, name in zip(plan.graph.nodes, names, strict=True) if name == f"layer {layer}"]
        for layer in range(4)
    ]
    assert of_layer[0] == of_layer[1] == of_layer[2]
    assert len(of_layer[3]) == len(of_layer[0])
    assert sum("sdpa" in name for name in of_layer[3]) == 1


def test_a_graph_without_attention_has_no_layers() -> None:
    chain = Chain()
    x = chain.input((5, 7))
    assert layers_of(compile(chain.graph(chain.node("aten.add.Tensor", x, x, 1, chain.tensor((5, 7)))))) is None
