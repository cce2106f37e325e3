"""Weights that a file spells out are one layer or table: as exact as before, and fused with the same neighbours."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Limits, Tensor
from liveshape.lower.activations import with_activations
from liveshape.lower.fusion import fuse
from liveshape.ops import OPS
from tests.support.chains import Chain, executor_of
from tests.support.spelled import Kind, Spelled, Weights

ROWS = 40
SIZES = (ROWS, 1, 3, 17, 2, 8, 1)
KINDS = {
    "minima": Kind(minima=True),
    "bytes": Kind(8),
    "bytes_with_minima": Kind(8, minima=True),
    "minima_of_32": Kind(minima=True, group=32),
    "halves": Kind(8, minima=True, dtype="float16"),
}
GROUPS = {
    "minima_of_32": KINDS["minima_of_32"],
    "bytes_of_32": Kind(8, group=32),
    "bytes_of_32_with_minima": Kind(8, True, 32),
}


def slowly(kinds: dict[str, Kind], *quick: str) -> list[Any]:
    """Kinds by name, those that are not quick for `make test-all`."""
    return [
        pytest.param(kind, id=name, marks=() if name in quick else pytest.mark.slow) for name, kind in kinds.items()
    ]


def operators(graph: Graph) -> Counter[str]:
    return Counter(node.name for node in graph.nodes)


def begun(depth: int, dtype: str = "float32") -> tuple[Spelled, Any]:
    chain = Chain()
    x = chain.input((1, ROWS, depth), dtype)
    return Spelled(chain, chain.node("sym_size.int", x, 1, chain.scalar()), dtype), x


def layer(kind: Kind, depth: int, columns: int, bias: bool) -> tuple[Graph, np.ndarray, np.ndarray]:
    """A graph of a layer, and its weight and bias."""
    random = np.random.default_rng(0)
    weights = kind.draw(random, columns, depth)
    offset = random.standard_normal(columns).astype(kind.dtype)
    spelled, x = begun(depth, kind.dtype)
    out = spelled.linear(x, weights, spelled.chain.constant(offset) if bias else None)
    return spelled.chain.graph(out), weights.values, offset * bias


@pytest.mark.parametrize("bias", [pytest.param(False, marks=pytest.mark.slow), True], ids=["plain", "biased"])
@pytest.mark.parametrize("kind", slowly(KINDS, "bytes", "minima_of_32", "halves"))
def test_a_dequantized_linear_fused_and_unfused(kind: Kind, bias: bool) -> None:
    depth, columns = 96, 22
    graph, weight, offset = layer(kind, depth, columns, bias)
    fused = fuse(graph)
    assert operators(fused) == Counter({"sym_size.int": 1, "et_vk.linear_q4gsw.default": 1})
    executors = [executor_of(each, open_device()) for each in (graph, fused)]
    bound = {"rtol": 2e-5, "atol": 2e-5} if kind.dtype == "float32" else {"rtol": 5e-3, "atol": 2e-2}
    for size in SIZES:
        x = np.random.default_rng(size).standard_normal((1, size, depth)).astype(kind.dtype)
        for executor in executors:
            executor.poison()
            found = executor.execute([x])[0]
            np.testing.assert_allclose(found, x.astype(np.float64) @ weight.T + offset, **bound)


def test_vec4_scales_get_vec4_minima() -> None:
    """Columns that were filled up have scales, and no minima."""
    graph, weight, _ = layer(Kind(minima=True), 24, 22, False)
    name = "et_vk.linear_q4gsw.default"
    scales = next(node for node in graph.nodes if node.name == name).args[2]
    wide = np.pad(np.frombuffer(scales.constant, np.float32).reshape(6, 22), ((0, 0), (0, 2)), constant_values=np.nan)
    fused = fuse(with_constant(graph, name, 2, wide))
    assert operators(fused) == Counter({"sym_size.int": 1, "et_vk.linear_q4gsw.default": 1})
    for size in (1, 3, ROWS):
        x = np.random.default_rng(size).standard_normal((1, size, 24)).astype(np.float32)
        found = executor_of(fused, open_device()).execute([x])[0]
        np.testing.assert_allclose(found, x.astype(np.float64) @ weight.T, rtol=2e-5, atol=2e-5)


def block(kind: Kind, draw: Any) -> Graph:
    """Attention with its cache and a gated unit, with norms before and sums after."""
    spelled, x = begun(64)
    chain = spelled.chain
    position = chain.scalar(given=True)
    tables = [chain.constant(np.random.default_rng(9).standard_normal((100, 16)).astype(np.float32)) for _ in range(2)]

    def norm(given: Any) -> Any:
        weight = chain.constant(np.random.default_rng(8).uniform(0.5, 1.5, 64).astype(np.float32))
        return chain.node("et_vk.rms_norm.default", given, weight, 1e-5, chain.tensor(given.max_shape))

    def both(operator: str, one: Any, other: Any, *more: Any) -> Any:
        return chain.node(operator, one, other, *more, chain.tensor(one.max_shape))

    rows = norm(x)
    q, k, v = (spelled.linear(rows, draw(heads * 16, 64), None, heads, 16) for heads in (4, 2, 2))
    rotated = chain.tensor(q.max_shape), chain.tensor(k.max_shape)
    chain.node("et_vk.apply_rotary_emb_hf.default", q, k, *tables, position, rotated)
    caches = [chain.constant(np.zeros((1, 100, 2, 16), np.float32)) for _ in range(2)]
    rest = position, spelled.length, None, 0.0, True, None, chain.tensor(q.max_shape)
    found = chain.node("sdpa_with_kv_cache.default", *rotated, v, *caches, *rest)
    heads = chain.node("aten.view_copy.default", found, (1, spelled.length, 64), chain.tensor(x.max_shape))
    x = both("aten.add.Tensor", x, spelled.linear(heads, draw(64, 64)), 1)
    rows = norm(x)
    gate = spelled.linear(rows, draw(96, 64))
    silu = both("aten.mul.Tensor", gate, chain.node("aten.sigmoid.default", gate, chain.tensor(gate.max_shape)))
    gated = both("aten.mul.Tensor", silu, spelled.linear(rows, draw(96, 64)))
    return chain.graph(both("aten.add.Tensor", x, spelled.linear(gated, draw(64, 96)), 1), *caches)


@pytest.mark.parametrize("kind", slowly(GROUPS, "minima_of_32"))
def test_a_block_fuses_as_one_of_plain_weights(kind: Kind) -> None:
    """Its result is that of the same weights in plain layers, to the last bits."""
    limits = Limits(max_bindings=9)
    random = np.random.default_rng(2)
    drawn: list[Weights] = []

    def draw(columns: int, depth: int) -> Weights:
        drawn.append(kind.draw(random, columns, depth))
        return drawn[-1]

    graph = block(kind, draw)
    fused = fuse(graph, limits)
    plain = fuse(block(Kind(group=32), lambda *shape: Kind(group=32).draw(random, *shape)), limits)
    assert operators(fused) == operators(plain)
    executors = [executor_of(each, open_device()) for each in (graph, fused)]
    for size in SIZES:
        x = np.random.default_rng(size).standard_normal((1, size, 64)).astype(np.float32)
        results = []
        for executor in executors:
            executor.poison()
            results.append(executor.execute([x, 7]))
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5, err_msg=f"at {size}")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_dequantized_embedding_fused_and_unfused(kind: Kind) -> None:
    weights = kind.draw(np.random.default_rng(1), 50, 64)
    chain = Chain()
    ids = chain.input((1, ROWS), "int64")
    spelled = Spelled(chain, chain.node("sym_size.int", ids, 1, chain.scalar()), kind.dtype)
    graph = chain.graph(spelled.embedding(ids, weights))
    fused = fuse(graph)
    name = "liveshape.embedding_with_minima" if kind.minima else "quantized_decomposed.embedding_byte.dtype"
    assert operators(fused) == Counter({"sym_size.int": 1, name: 1})
    executors = [executor_of(each, open_device()) for each in (graph, fused)]
    bound = {"rtol": 1e-6, "atol": 1e-6} if kind.dtype == "float32" else {"rtol": 2e-3, "atol": 2e-3}
    for size in SIZES:
        given = np.random.default_rng(size).integers(0, 50, (1, size))
        for executor in executors:
            executor.poison()
            np.testing.assert_allclose(executor.execute([given])[0], weights.values[given], **bound)


def test_a_tied_embedding_and_linear_share_int8_codes() -> None:
    weights = Kind(8).draw(np.random.default_rng(1), 48, 32)
    chain = Chain()
    ids = chain.input((1, ROWS), "int64")
    spelled = Spelled(chain, chain.node("sym_size.int", ids, 1, chain.scalar()))
    table = spelled._numbers(weights)
    rows = chain.node("aten.embedding.default", table, ids, -1, False, False, chain.tensor((1, ROWS, 32)))
    graph = chain.graph(chain.node("aten.linear.default", rows, table, None, chain.tensor((1, ROWS, 48))))
    fused = fuse(graph)
    assert "torchao.dequantize_affine.default" not in operators(fused)
    executor = executor_of(fused, open_device())
    scales = 2 * weights.scales.nbytes  # in the order of rows, and in that of groups
    assert executor.plan.memory.persistent_bytes == weights.codes.nbytes + scales
    given = np.arange(7)[None]
    expected = weights.values[given] @ weights.values.T
    np.testing.assert_allclose(executor.execute([given])[0], expected, rtol=2e-5, atol=2e-5)


def test_dequantized_weights_with_another_consumer_are_not_fused() -> None:
    graph, *_ = layer(Kind(8), 16, 8, False)
    dequantized = next(node for node in graph.nodes if node.name == "torchao.dequantize_affine.default").args[-1]
    found = operators(fuse(Graph("all", graph.nodes, graph.values, graph.inputs, (*graph.outputs, dequantized))))
    assert found["torchao.dequantize_affine.default"] == found["aten.linear.default"] == 1
    graph, *_ = layer(Kind(minima=True), 16, 8, False)
    sums = next(node for node in graph.nodes if node.name == "aten.sum.dim_IntList").args[-1]
    found = operators(fuse(Graph("all", graph.nodes, graph.values, graph.inputs, (*graph.outputs, sums))))
    assert found["aten.sum.dim_IntList"] == found["aten.linear.default"] == 1
    graph, *_ = layer(Kind(8), 16, 8, False)
    name = "torchao.dequantize_affine.default"
    for zeros, left in ((np.zeros((8, 4), np.int8), 0), (np.eye(8, 4, dtype=np.int8), 1)):
        assert operators(fuse(with_constant(graph, name, 3, zeros)))[name] == left, "zero points that are not zero"


def with_constant(graph: Graph, name: str, position: int, array: np.ndarray) -> Graph:
    """A graph whose only node of a name has another constant for an argument."""
    (node,) = (node for node in graph.nodes if node.name == name)
    given = Tensor("given", str(array.dtype), array.shape, constant=memoryview(np.ascontiguousarray(array)).cast("B"))
    args = (*node.args[:position], given, *node.args[position + 1 :])
    nodes = list(graph.nodes)
    nodes[node.index] = OPS[name].bind(node.index, node.label, args)
    return Graph("given", tuple(nodes), (*graph.values, given), graph.inputs, graph.outputs)


@pytest.mark.parametrize("kind", [Kind(8), Kind(8, True, 16), Kind(4, group=16)], ids=str)
def test_activations_stay_floats_where_groups_do_not_align(kind: Kind) -> None:
    """Groups of 16 need bytes without minima."""
    graph, *_ = layer(kind, 96, 22, False)
    with pytest.raises(UnsupportedError, match=r"no 4-bit layer .* nor one of 8 bits.* or of 16 with 8 bits"):
        with_activations(fuse(graph), "int8")


@pytest.mark.parametrize("kind", slowly(GROUPS | {"bytes_of_16": Kind(8, group=16)}, "bytes_of_32"))
def test_activations_are_quantized_where_groups_align(kind: Kind) -> None:
    graph, weight, _ = layer(kind, 96, 22, False)
    quantized = with_activations(fuse(graph), "int8")
    assert [node.args[1].dtype for node in quantized.nodes if "q4gsw" in node.name] == ["int8"]
    executor = executor_of(quantized, open_device())
    for size in SIZES:
        x = np.random.default_rng(size).standard_normal((1, size, 96)).astype(np.float32)
        expected = x.astype(np.float64) @ weight.T
        assert 0 < np.abs(executor.execute([x])[0] - expected).max() < 0.02 * np.abs(expected).max()


@pytest.mark.parametrize(("shape", "view"), [((8, 24), (-1,)), ((), (1, 1)), ((), (1,))])
def test_sums_of_what_has_no_groups_stay(shape: tuple[int, ...], view: tuple[int, ...]) -> None:
    """Looking for groups in them, the lowering stumbled over those without two dimensions."""
    chain = Chain()
    x = chain.input(shape)
    sizes = tuple(192 if size == -1 else size for size in view)
    rows = chain.node("aten.view_copy.default", x, view, chain.tensor(sizes))
    total = chain.node("aten.sum.dim_IntList", rows, (len(sizes) - 1,), False, None, chain.tensor(sizes[:-1]))
    device = open_device()
    graph = fuse(chain.graph(total), device.limits)
    given = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (got,) = executor_of(graph, device).execute([given])
    np.testing.assert_allclose(got, given.reshape(sizes).sum(-1), rtol=1e-5, atol=1e-5)
