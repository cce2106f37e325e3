"""Rows as integers only where the caller asks for it, and only where a layer can take them. No GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape.errors import UnsupportedError
from liveshape.graph import Graph
from liveshape.lower.activations import with_activations
from liveshape.lower.cse import share_subexpressions
from liveshape.lower.fusion import fuse
from liveshape.lower.pattern_operators import QKV_LAYERS
from liveshape.plan.compiling import compile
from liveshape.plan.memory import share_constants
from liveshape.plan.plan_state import PlanState
from tests.support.chains import Chain

LINEAR = "et_vk.linear_q4gsw.default"


def layer(
    chain: Chain, x: Any, columns: int = 8, group: int = 32, weight: np.ndarray | None = None, dtype: str = "float32"
) -> Any:
    depth = x.max_shape[-1]
    packed = np.zeros((columns, depth // 2), np.uint8) if weight is None else weight
    scales = chain.constant(np.zeros((depth // group, columns), dtype))
    out = chain.tensor((*x.max_shape[:-1], columns), dtype)
    return chain.node(LINEAR, x, chain.constant(packed), scales, group, None, out)


def weights(graph: Graph) -> list[str]:
    """The dtypes of the weights of layers."""
    return [node.args[1].dtype for node in graph.nodes if node.name == LINEAR]


def kernels(graph: Graph) -> set[str]:
    live = PlanState(compile(graph))
    live.begin()
    live.walk(0, len(graph.nodes), lambda node, request: 0)
    return {variant.kernel.name for node in live.nodes for variant, _ in node.group.route.dispatched}


def test_floats_are_as_the_program_says() -> None:
    chain = Chain()
    graph = chain.graph(layer(chain, chain.input((4, 64))))
    assert with_activations(graph, "float32") is graph
    assert with_activations(graph, "float16") is graph, "limits say it, not the graph"


def test_layers_that_can_take_int8_activations_do() -> None:
    chain = Chain()
    x, halves = chain.input((4, 64)), chain.input((4, 64), "float16")
    padded = np.zeros((8, 48), np.uint8)
    outs = [layer(chain, x), layer(chain, x, group=16), layer(chain, x, weight=padded), layer(chain, x, group=64)]
    outs.append(layer(chain, halves, dtype="float16"))
    graph = with_activations(chain.graph(*outs), "int8")
    assert weights(graph) == ["int8", "uint8", "uint8", "int8", "uint8"]
    assert {value for node in graph.nodes for value in node.inputs} <= {*graph.values}
    assert len(graph.values) == len(chain.values), "no weight stays behind that nothing reads"


def test_all_weights_of_a_layer_take_them_or_none() -> None:
    """Of a QKV projection the values have a weight of their own; what a file calls its bytes says nothing."""
    for group, expected in ((64, "int8"), (16, "uint8")):
        chain = Chain()
        x, signed = chain.input((4, 64)), np.zeros((8, 32), np.int8)
        outs = [layer(chain, x, weight=signed), layer(chain, x, weight=signed), layer(chain, x, group=group)]
        graph = fuse(chain.graph(*outs, layer(chain, chain.input((4, 64)))))
        for activations, dtype in (("float32", "uint8"), ("int8", expected)):
            node = next(node for node in with_activations(graph, activations).nodes if node.name == QKV_LAYERS)
            assert {node.named[name].dtype for name in ("weight", "value_weight")} == {dtype}, (group, activations)


def test_other_words_are_refused() -> None:
    chain = Chain()
    graph = chain.graph(layer(chain, chain.input((4, 64))))
    with pytest.raises(ValueError, match=r"activations 'int4': float32, float16 or int8 is possible"):
        with_activations(graph, "int4")


@pytest.mark.parametrize("kind", ["none", "small groups", "rounded by the program"])
def test_programs_without_such_layers_are_refused(kind: str) -> None:
    chain = Chain()
    x = chain.input((4, 64))
    if kind == "none":
        out = chain.node("aten.add.Tensor", x, x, 1, chain.tensor((4, 64)))
    elif kind == "small groups":
        out = layer(chain, x, group=16)
    else:
        found = chain.tensor((4,)), chain.tensor((4,), "int8")
        chain.node("torchao.choose_qparams_affine.default", x, "A", (1, 64), None, -128, 127, *[None] * 3, False, found)
        held = [chain.constant(each) for each in (np.zeros((8, 32), np.uint8), np.zeros((2, 8), np.int32))]
        scales = chain.constant(np.zeros((2, 8), np.float32))
        name, out = "et_vk.linear_dq8ca_q4gsw.default", chain.tensor((4, 8))
        chain.node(name, x, *found, *held, scales, 32, None, out)
    graph = share_subexpressions(chain.graph(out))
    with pytest.raises(UnsupportedError, match=r"chain has no 4-bit layer whose activations could be int8.*--quant 4w"):
        with_activations(graph, "int8")


def test_the_embedding_of_a_tied_table_stays_and_shares_its_memory() -> None:
    chain = Chain()
    table = chain.constant(np.zeros((40, 32), np.uint8))
    scales, by_row = chain.constant(np.zeros((2, 40), np.float32)), chain.constant(np.zeros((40, 2), np.float32))
    ids = chain.input((4,), "int64")
    rows = chain.node("et_vk.embedding_q4gsw.default", table, by_row, 32, ids, True, chain.tensor((4, 64)))
    out = chain.node(LINEAR, rows, table, scales, 32, None, chain.tensor((4, 40)))
    graph = with_activations(chain.graph(out), "int8")
    embedding, linear = graph.nodes
    assert (embedding.args[0], linear.args[1].dtype) == (table, "int8")
    roots = share_constants(graph)
    assert roots[table] is roots[linear.args[1]]
    before, after = compile(chain.graph(out)).memory, compile(graph).memory
    constants = [sum(each.blocks) - each.activation_bytes - each.persistent_bytes for each in (before, after)]
    assert constants[0] == constants[1]


def test_a_file_that_calls_its_weights_int8_keeps_float_activations() -> None:
    chain = Chain()
    x, halves = chain.input((4, 64)), chain.input((4, 64), "float16")
    signed = np.zeros((8, 32), np.int8)
    file = chain.graph(layer(chain, x, weight=signed), layer(chain, halves, weight=signed, dtype="float16"))
    assert any("quant" in name for name in kernels(file))
    graph = with_activations(file, "float32")
    assert weights(graph) == ["uint8", "uint8"]
    assert not any("quant" in name for name in kernels(graph))
