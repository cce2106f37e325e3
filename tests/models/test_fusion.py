"""Fused nodes give the very bytes of the operators that they stand for, at every live size."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import ShapeError
from liveshape.graph import Graph, Limits
from liveshape.lower.fusion import FUSIONS, fuse
from liveshape.lower.lowering import optimized
from liveshape.lower.result_patterns import FIRST_RESULTS
from liveshape.ops import OPS
from liveshape.ops.q4_heuristics import partial_sums_bound
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.chains import Chain

MAX, WIDTH, HIDDEN = 43, 24, 36
ROWS = 70


def executor_of(graph: Graph) -> Executor:
    device = open_device()
    return Executor(compile(graph, device.limits), device)


def feed_forward(dtype: str, width: int = WIDTH) -> Chain:
    """x + y, normalized, through a gated linear unit, and added again."""
    chain = Chain()
    random = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return chain.constant((random.standard_normal(shape) / shape[-1] ** 0.5).astype(dtype))

    def tensor(last: int) -> Any:
        return chain.tensor((1, MAX, last), dtype)

    x, y = chain.input((1, MAX, width), dtype), chain.input((1, MAX, width), dtype)
    total = chain.node("aten.add.Tensor", x, y, 1, tensor(width))
    norm = chain.node("et_vk.rms_norm.default", total, weight(width), 1e-6, tensor(width))
    gate = chain.node("aten.linear.default", norm, weight(HIDDEN, width), None, tensor(HIDDEN))
    up = chain.node("aten.linear.default", norm, weight(HIDDEN, width), None, tensor(HIDDEN))
    sigmoid = chain.node("aten.sigmoid.default", gate, tensor(HIDDEN))
    silu = chain.node("aten.mul.Tensor", gate, sigmoid, tensor(HIDDEN))
    gated = chain.node("aten.mul.Tensor", up, silu, tensor(HIDDEN))
    down = chain.node("aten.linear.default", gated, weight(width, HIDDEN), None, tensor(width))
    chain.node("aten.add.Tensor", total, down, 1, tensor(width))
    return chain


@pytest.mark.parametrize("width", [24, 23])
def test_fused_and_unfused_give_equal_bytes(width: int) -> None:
    dtype = "float32"
    plain, other = feed_forward(dtype, width), feed_forward(dtype, width)
    unfused = plain.graph(plain.nodes[-1].args[-1])
    fused = optimized(fuse(other.graph(other.nodes[-1].args[-1])), open_device().limits)
    assert (len(unfused.nodes), len(fused.nodes)) == (9, 4)
    assert [node.index for node in fused.nodes] == list(range(4))
    executors = executor_of(unfused), executor_of(fused)
    for size in (MAX, 1, 2, 7, 29, 3):
        random = np.random.default_rng(size)
        inputs = [random.standard_normal((1, size, width)).astype(dtype) for _ in range(2)]
        results = []
        for executor in executors:
            executor.poison()
            results.append(executor.execute(inputs)[0].tobytes())
        assert results[0] == results[1], f"at {size}"


class Case(NamedTuple):
    """A block of quantized layers."""

    depth: int
    widths: tuple[int, ...]
    views: tuple[tuple[int, ...], ...] = ((), ())  # of the gate and of what it gates
    bias: bool = False
    dtype: str = "float32"


BLOCK = Case(24, (24, 12, 12))
CASES = {
    "biased": BLOCK._replace(bias=True),
    "viewed": BLOCK._replace(views=((HIDDEN,), (HIDDEN,))),
    "gate_viewed": BLOCK._replace(views=((HIDDEN,), ())),
    "reshaped": BLOCK._replace(views=((4, 9), (4, 9))),
    "odd": Case(20, (6, 10, 2)),
    "deep": Case(512, (30, 16, 16), bias=True),
    "halves": BLOCK._replace(bias=True, dtype="float16"),
}


def quantized_block(case: Case) -> Chain:
    """Three viewed 4-bit layers of x, and a gated unit of two more."""
    chain = Chain()
    random = np.random.default_rng(1)
    length = chain.scalar()
    x = chain.input((1, ROWS, case.depth), case.dtype)
    chain.node("sym_size.int", x, 1, length)

    def tensor(*sizes: int) -> Any:
        return chain.tensor((1, ROWS, *sizes), case.dtype)

    def layer(width: int, *viewed: int) -> Any:
        weight = chain.constant(random.integers(0, 256, (width, case.depth // 2), np.uint8))
        scales = chain.constant((random.random((case.depth // 4, width)) / 8).astype(case.dtype))
        bias = chain.constant(random.standard_normal(width).astype(case.dtype)) if case.bias else None
        out = chain.node("et_vk.linear_q4gsw.default", x, weight, scales, 4, bias, tensor(width))
        return chain.node("aten.view_copy.default", out, (1, length, *viewed), tensor(*viewed)) if viewed else out

    outputs = [layer(width, 2, width // 2) for width in case.widths]
    sizes = case.views[0] or (HIDDEN,)
    gate = layer(HIDDEN, *case.views[0])
    sigmoid = chain.node("aten.sigmoid.default", gate, tensor(*sizes))
    silu = chain.node("aten.mul.Tensor", gate, sigmoid, tensor(*sizes))
    up = layer(HIDDEN, *case.views[1])
    chain.outputs = [*outputs, chain.node("aten.mul.Tensor", silu, up, tensor(*sizes))]
    return chain


def operators(graph: Graph) -> Counter[str]:
    return Counter(node.name.removeprefix("liveshape.") for node in graph.nodes)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=pytest.mark.slow if name in ("odd", "deep", "viewed") else ())
        for name, case in CASES.items()
    ],
)
def test_fused_linears_of_one_input_give_equal_bytes(case: Case) -> None:
    chain, other = quantized_block(case), quantized_block(case)
    graph, fused = chain.graph(*chain.outputs), fuse(other.graph(*other.outputs))
    found, gated = operators(fused), case.dtype == "float32"
    assert (found["qkv_linear_q4gsw"], found["gated_linear_q4gsw"]) == (1, gated)
    views = sum(1 for sizes in case.views if sizes == (HIDDEN,)) + (case.views[0] == (4, 9))
    assert len(fused.nodes) == len(graph.nodes) - 2 - (4 + views if gated else 0)
    executors = executor_of(graph), executor_of(fused)
    unfused, fused_memory = (executor.plan.memory for executor in executors)
    # More columns leave more sums where workgroups share the depth.
    (sums,) = partial_sums_bound(ROWS, max(sum(case.widths), 2 * HIDDEN), case.depth, False, executors[0].device.limits)
    assert fused_memory.activation_bytes <= unfused.activation_bytes + 4 * sums
    assert fused_memory.persistent_bytes <= unfused.persistent_bytes
    for size in (ROWS, 1, 2, 7, 16, 17, 33, 64, 3, ROWS - 1, 1):
        x = np.random.default_rng(size).standard_normal((1, size, case.depth)).astype(case.dtype)
        results = []
        for executor in executors:
            executor.poison()
            results.append([(array.shape, array.tobytes()) for array in executor.execute([x])])
        assert results[0] == results[1], f"at {size}"


def test_qkv_is_not_fused_where_something_else_uses_a_part() -> None:
    chain = quantized_block(BLOCK)
    layers = [node for node in chain.nodes if node.name == "et_vk.linear_q4gsw.default"]
    gate, third = layers[3].args[-1], layers[2]
    shared = third.args[1]
    chain.node("aten.view_copy.default", shared, shared.max_shape, chain.tensor(shared.max_shape, shared.dtype))
    found = operators(fuse(chain.graph(*chain.outputs, gate, chain.nodes[-1].args[-1])))
    assert found["et_vk.linear_q4gsw.default"] == 5, "the caller wants the gate, and another node a weight"
    assert found["aten.sigmoid.default"] == 1


def test_linears_are_not_fused_where_their_weight_would_exceed_a_binding() -> None:
    chain = quantized_block(BLOCK)
    found = operators(fuse(chain.graph(*chain.outputs), Limits(max_binding_bytes=512)))
    assert found["et_vk.linear_q4gsw.default"] == 5


KEPT, HEADS, SIZE = 60, (4, 2), 10


def cached_attention(*, positions: bool, batch: int = 2) -> Chain:
    """Rotary embedding, by tables of all positions or of the live rows, then attention with a KV cache."""
    chain = Chain()
    random = np.random.default_rng(5)
    q, k, v = (chain.input((batch, MAX, heads, SIZE)) for heads in (*HEADS, HEADS[1]))
    position = chain.scalar(given=True)
    rotated = tuple(chain.tensor(x.max_shape) for x in (q, k))
    if positions:
        tables = [chain.constant(random.standard_normal((KEPT, SIZE - 2)).astype(np.float32)) for _ in range(2)]
        chain.node("et_vk.apply_rotary_emb_hf.default", q, k, *tables, position, rotated)
    else:
        tables = [chain.input((MAX, SIZE // 2)) for _ in range(2)]
        chain.node("et_vk.apply_rotary_emb.default", q, k, *tables, rotated)
    caches = [chain.constant(np.zeros((batch, KEPT, HEADS[1], SIZE), np.float32)) for _ in range(2)]
    rest = position, 1, None, 0.0, True, None, chain.tensor(q.max_shape)
    out = chain.node("sdpa_with_kv_cache.default", *rotated, v, *caches, *rest)
    chain.outputs = [out, *caches]
    return chain


@pytest.mark.parametrize("positions", [True, False], ids=["positions", "rows"])
def test_rotary_embedding_fused_with_the_cache_update(positions: bool) -> None:
    chain, other = cached_attention(positions=positions), cached_attention(positions=positions)
    fused = fuse(other.graph(*other.outputs))
    assert [node.name for node in fused.nodes] == ["liveshape.rotary_to_cache", "custom_sdpa.default"]
    executors = executor_of(chain.graph(*chain.outputs)), executor_of(fused)
    unfused, fused_memory = (executor.plan.memory for executor in executors)
    assert fused_memory.activation_bytes <= unfused.activation_bytes
    for size, position in ((MAX, 0), (1, 7), (2, 50), (29, 31), (3, 0), (1, KEPT - 1)):
        random = np.random.default_rng(size)
        inputs: list[Any] = [
            random.standard_normal((2, size, heads, SIZE)).astype(np.float32) for heads in (*HEADS, HEADS[1])
        ]
        inputs.append(position)
        if not positions:
            inputs += [random.standard_normal((size, SIZE // 2)).astype(np.float32) for _ in range(2)]
        results = []
        for executor in executors:
            executor.poison()
            results.append([array.tobytes() for array in executor.execute(inputs)])
        assert results[0] == results[1], f"{size} at {position}"
    with pytest.raises(ShapeError, match=f"position {KEPT} and 1 "):
        executors[1].execute([*inputs[:3], KEPT, *inputs[4:]])


def test_rotated_keys_that_are_outputs_are_kept() -> None:
    chain = cached_attention(positions=True)
    keys = chain.nodes[0].args[-1][1]
    assert "rotary_to_cache" not in operators(fuse(chain.graph(*chain.outputs, keys)))


def test_tables_of_heads_before_rows_are_left_alone() -> None:
    """What is rotated as [B, H, S, D] is attention's [B, S, H, D] only by name: rows are where heads were."""
    chain = Chain()
    q, k, v = (chain.input((1, 4, 3, SIZE)) for _ in range(3))
    rotated = tuple(chain.tensor(x.max_shape) for x in (q, k))
    tables = [chain.input((1, 3, SIZE)) for _ in range(2)]
    chain.node("et_vk.apply_rotary_emb_hf.default", q, k, *tables, 0, rotated)
    caches = [chain.constant(np.zeros((1, KEPT, 3, SIZE), np.float32)) for _ in range(2)]
    rest = 0, 1, None, 0.0, True, None, chain.tensor(q.max_shape)
    out = chain.node("sdpa_with_kv_cache.default", *rotated, v, *caches, *rest)
    fused = fuse(chain.graph(out, *caches))
    assert [node.name for node in fused.nodes] == [node.name for node in chain.nodes]
    assert (
        executor_of(fused).execute([np.ones(x.max_shape, np.float32) for x in (q, k, v, *tables)])[0].shape
        == q.max_shape
    )


def test_a_sum_that_broadcasts_when_live_is_still_right() -> None:
    chain = feed_forward("float32")
    executor = executor_of(fuse(chain.graph(chain.nodes[0].args[-1], chain.nodes[1].args[-1])))
    x, y = np.ones((1, 7, WIDTH), np.float32), np.full((1, 1, WIDTH), 2, np.float32)
    total, _ = executor.execute([x, y])
    np.testing.assert_array_equal(total, np.full((1, 7, WIDTH), 3, np.float32))


@pytest.mark.parametrize("output", [5, 6], ids=["sigmoid", "silu"])
def test_outputs_are_not_fused_away(output: int) -> None:
    chain = feed_forward("float32")
    graph = fuse(chain.graph(chain.nodes[-1].args[-1], chain.nodes[output - 1].args[-1]))
    assert operators(graph)["gated_linear_q4gsw"] == 0


def test_gates_of_unlike_origin_are_not_fused() -> None:
    chain = Chain()
    gate, up = chain.input((1, MAX, 8)), chain.input((1, MAX, 8))
    sigmoid = chain.node("aten.sigmoid.default", gate, chain.tensor((1, MAX, 8)))
    silu = chain.node("aten.mul.Tensor", gate, sigmoid, chain.tensor((1, MAX, 8)))
    out = chain.node("aten.mul.Tensor", silu, up, chain.tensor((1, MAX, 8)))
    assert len(fuse(chain.graph(out)).nodes) == 3, "their live shapes may differ and broadcast"


def test_halves_are_not_fused() -> None:
    chain = feed_forward("float16")
    assert len(fuse(chain.graph(chain.nodes[-1].args[-1])).nodes) == 9, "their rounding in between may be skipped"


def branching() -> Graph:
    """A sum that is normalized, behind a jump over another one and in a loop of three iterations."""
    chain = Chain()
    x, y, flag = chain.input((1, MAX, WIDTH)), chain.input((1, MAX, WIDTH)), chain.scalar(given=True)
    weight = chain.constant(np.linspace(0.5, 1.5, WIDTH, dtype=np.float32))
    iteration, done = chain.scalar(), chain.scalar()
    kept, joined = chain.tensor((1, MAX, WIDTH)), chain.tensor((1, MAX, WIDTH))

    def sum_and_norm(a: Any, b: Any) -> Any:
        total = chain.node("aten.add.Tensor", a, b, 1, chain.tensor((1, MAX, WIDTH)))
        return chain.node("et_vk.rms_norm.default", total, weight, 1e-6, chain.tensor((1, MAX, WIDTH)))

    chain.node("liveshape.move", x, kept)  # 0
    chain.node("liveshape.assign", 0, iteration)  # 1
    chain.node("liveshape.move", sum_and_norm(kept, y), kept)  # 2, 3, 4
    chain.node("add", iteration, 1, iteration)  # 5
    chain.node("eq", iteration, 3, done)  # 6
    chain.node("liveshape.jump_false", done, 2, None)  # 7
    chain.node("liveshape.move", kept, joined)  # 8
    chain.node("liveshape.jump_false", flag, 13, None)  # 9
    chain.node("liveshape.move", sum_and_norm(kept, x), joined)  # 10, 11, 12
    chain.node("aten.neg.default", joined, chain.tensor((1, MAX, WIDTH)))  # 13
    return chain.graph(chain.nodes[-1].args[-1])


def test_fusion_within_basic_blocks() -> None:
    graph = branching()
    fused = fuse(graph)
    assert (len(graph.nodes), len(fused.nodes)) == (14, 12)
    assert [fused.nodes[index].args[1] for index in fused.controls] == [2, 11]
    executors = executor_of(graph), executor_of(fused)
    random = np.random.default_rng(0)
    for iteration, size in enumerate((MAX, 1, 7, MAX - 1, 2)):
        x, y = (random.standard_normal((1, size, WIDTH)).astype(np.float32) for _ in range(2))
        results = []
        for executor in executors:
            executor.poison()
            results.append(executor.execute([x, y, iteration % 2])[0])
        assert results[0].tobytes() == results[1].tobytes()


def test_a_pattern_across_basic_blocks_is_not_fused() -> None:
    chain = Chain()
    x, flag = chain.input((MAX, WIDTH)), chain.scalar(given=True)
    weight = chain.constant(np.ones(WIDTH, np.float32))
    total = chain.tensor((MAX, WIDTH))
    chain.node("liveshape.jump_false", flag, 2, None)
    chain.node("aten.add.Tensor", x, x, 1, total)
    out = chain.node("et_vk.rms_norm.default", total, weight, 1e-6, chain.tensor((MAX, WIDTH)))
    graph = chain.graph(out)
    assert fuse(graph) is graph


def norms(statistics: bool) -> Graph:
    """A layer norm, a group norm and a batch norm, one after the other."""
    random, chain = np.random.default_rng(0), Chain()
    shape = (MAX, 8, 5)
    of_row, of_channel = ([chain.constant(random.random(size, np.float32) + 0.5) for _ in range(4)] for size in (5, 8))
    x, saved = chain.input(shape), [chain.tensor(size) for size in ((MAX, 8, 1),) * 2 + ((MAX, 4),) * 2 + ((0,),) * 2]
    for name, arguments in {
        "aten.native_layer_norm.default": ((5,), *of_row[:2], 1e-5),
        "aten.native_group_norm.default": (*of_channel[:2], MAX, 8, 5, 4, 1e-5),
        "aten._native_batch_norm_legit_no_training.default": (*of_channel, 0.1, 1e-5),
    }.items():
        place = 2 * len(chain.nodes)
        x = chain.node(name, x, *arguments, (chain.tensor(shape), *saved[place : place + 2]))[0]
    return chain.graph(x, *(saved[1:4] if statistics else ()))


def test_norms_whose_statistics_nobody_reads_store_none() -> None:
    alone = ["liveshape.layer_norm", "liveshape.group_norm", "liveshape.batch_norm"]
    assert [node.name for node in fuse(norms(statistics=False)).nodes] == alone
    read = fuse(norms(statistics=True))
    assert [node.name == name for node, name in zip(read.nodes, alone, strict=True)] == [False, False, True]
    plain, fused = executor_of(norms(statistics=False)), executor_of(fuse(norms(statistics=False)))
    for rows in (MAX, 1, 7, MAX):
        x = np.random.default_rng(rows).standard_normal((rows, 8, 5)).astype(np.float32)
        fused.poison()
        assert plain.execute([x])[0].tobytes() == fused.execute([x])[0].tobytes()


@pytest.mark.parametrize(
    ("operator", "arguments", "alone"),
    [
        ("aten.max.dim", (1, True), "aten.amax.default"),
        ("aten.min.dim", (-1, False), "aten.amin.default"),
        ("aten.var_mean.correction", ((1,), 1, True), "aten.var.correction"),
    ],
)
def test_reductions_whose_second_result_nobody_reads_take_expressions(
    operator: str, arguments: tuple[Any, ...], alone: str
) -> None:
    """One dispatch with what is before and behind, and NaN where it was."""
    chain, shape = Chain(), (MAX, 8) if False in arguments else (MAX, 1, 5)
    x = chain.input((MAX, 8, 5))
    before = chain.node("aten.abs.default", x, chain.tensor(x.max_shape))
    second = chain.tensor(shape, "float32" if operator.startswith("aten.var") else "int64")
    first, _ = chain.node(operator, before, *arguments, (chain.tensor(shape), second))
    last = chain.node("aten.neg.default", first, chain.tensor(shape))
    read = chain.graph(last, second)
    assert operator in [node.name for node in fuse(read).nodes]
    graph = chain.graph(last)
    assert [node.name for node in fuse(graph).nodes] == ["aten.abs.default", alone, "aten.neg.default"]
    device = open_device()
    made = optimized(fuse(graph), device.limits)
    assert len(made.nodes) == 1
    plain, fused = executor_of(graph), executor_of(made)
    for rows in (MAX, 1, 7, MAX):
        values = np.random.default_rng(rows).standard_normal((rows, 8, 5)).astype(np.float32)
        values[0, 3, 1] = np.nan
        fused.poison()
        assert plain.execute([values])[0].tobytes() == fused.execute([values])[0].tobytes()


def test_the_table_names_operators_that_exist() -> None:
    for fusion in (*FUSIONS, FIRST_RESULTS):
        assert all(name in OPS for name in fusion.anchors), fusion.pattern
