"""Which kernels products of floats take on devices of every kind, and what of their weights stays there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from liveshape.graph import Graph, Limits, Tensor
from liveshape.graph.limits import MatrixShape
from liveshape.lower.lowering import optimized
from liveshape.ops import OPS
from liveshape.plan.compiling import compile
from tests.support.movements import Movements

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


HALVES = Limits(
    subgroup=32,
    max_workgroup_bytes=49152,
    matrices=(MatrixShape("float16", "float32", 16, 16, 16),),
    half_inputs=True,
)


def layers(count: int, data: np.ndarray, rows: int = 40) -> Graph:
    """Linear layers of one input and of one weight."""
    columns, depth = data.shape
    x = Tensor("x", "float32", (rows, depth))
    weight = Tensor("weight", "float32", data.shape, memoryview(data).cast("B"))
    outs = [Tensor(f"out {index}", "float32", (rows, columns)) for index in range(count)]
    linear = OPS["aten.linear.default"]
    nodes = tuple(linear.bind(index, f"linear {index}", (x, weight, None, out)) for index, out in enumerate(outs))
    return Graph("layers", nodes, (x, weight, *outs), (x,), (*outs,))


@pytest.mark.parametrize("count", [1, 2])
def test_of_a_weight_that_is_halves_the_floats_leave_the_device(count: int) -> None:
    graph = layers(count, np.zeros((512, 256), np.float32))
    plan = compile(graph, HALVES)
    weight = graph.nodes[0].args[1]
    assert weight not in plan.memory.storages
    assert all(any(tensor is weight for tensor in step.tensors) for step in plan.prepack)
    assert len(plan.prepack) == count
    for route in plan.routes:
        assert [variant.kernel.name for variant, _ in route.dispatched].count("matmul/half_lines") <= 1  # of the rows


@pytest.mark.parametrize("columns", [512, 8])
def test_floats_that_somebody_else_reads_stay(columns: int) -> None:
    graph = layers(1, np.zeros((columns, 256), np.float32))
    weight, out = graph.nodes[0].args[1], Tensor("copy", "float32", (columns, 256))
    copy = OPS["aten.neg.default"].bind(1, "neg", (weight, out))
    changed = replace(graph, nodes=(*graph.nodes, copy), values=(*graph.values, out), outputs=(*graph.outputs, out))
    for each in (changed, graph) if columns == 8 else (changed,):
        assert weight in compile(each, HALVES).memory.storages


@pytest.mark.parametrize("of_data", [False, True], ids=["of sizes", "of data"])
def test_a_weight_is_packed_where_the_view_behind_its_product_takes_live_sizes(of_data: bool) -> None:
    """The epilogue of a product counts in the shape of the view, whose sizes are known at a call."""
    chain = Movements()
    x, (batch, rows) = chain.live((4, 64, 256), 2)
    if of_data:
        batch = chain.scalar()
        chain.bounds[batch] = 4
        chain.node("et_vk.select_as_symint.default", chain.input((1,), "int32"), 0, 0, batch)
    flat = chain.view(x, chain.times(batch, rows), 256)
    weight = chain.constant(np.zeros((512, 256), np.float32))
    layer = chain.node("aten.linear.default", flat, weight, None, chain.tensor((256, 512)))
    viewed = chain.view(layer, batch, rows, 512)
    residual = chain.input((4, 64, 512))
    out = chain.node("aten.add.Tensor", viewed, residual, 1, chain.tensor((4, 64, 512)))
    graph = optimized(chain.graph(out), HALVES)
    assert [node.name for node in graph.nodes][-1] == "liveshape.composed"
    plan = compile(graph, HALVES)
    assert len(plan.prepack) == 1
    assert weight not in plan.memory.storages


SPLITTING = replace(HALVES, half_inputs=False, fast_matrices=True)


def is_split(graph: Graph, limits: Limits) -> bool:
    """Whether a product is three of halves at some of its live sizes."""
    return any("split" in variant.kernel.others for variant in compile(graph, limits).kernels)


def test_large_products_of_float32_are_split_where_matrices_are_fast() -> None:
    data = np.zeros((768, 768), np.float32)
    graph = layers(1, data, 4096)
    plan = compile(graph, SPLITTING)
    assert graph.nodes[0].args[1] not in plan.memory.storages, "the sums of halves are all that is left of a weight"
    taken = [{variant.kernel.file for variant, _ in route.dispatched} for route in plan.routes]
    assert any("matmul/matrix_tiles" in files for files in taken)
    assert any("matmul/register_tiles" in files for files in taken), "few rows are multiplied by threads"
    assert not is_split(layers(1, data, 128), SPLITTING)
    assert not is_split(layers(1, np.zeros((770, 48), np.float32), 4096), SPLITTING)


@pytest.mark.parametrize("changed", [{"one_order": True}, {"fast_matrices": False}, {"matrices": ()}])
def test_products_stay_float32_where_it_is_asked_for_or_does_not_pay(changed: dict[str, object]) -> None:
    assert not is_split(layers(1, np.zeros((768, 768), np.float32), 4096), replace(SPLITTING, **changed))  # type: ignore[arg-type]


def test_rounded_inputs_are_not_split() -> None:
    graph = layers(1, np.zeros((768, 768), np.float32), 4096)
    assert not is_split(graph, replace(SPLITTING, half_inputs=True))
