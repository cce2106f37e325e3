"""Rows of many sequences by a table of positions and slots give the bytes of rows that are consecutive."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import ShapeError
from liveshape.graph import Graph, Limits
from liveshape.lower.activations import with_activations
from liveshape.lower.fusion import fuse
from tests.models.test_fused_rows import many_threads
from tests.models.test_layers import Layers
from tests.support.chains import executor_of

ROWS, SLOTS = 21, 50
SIZES = (ROWS, 1, 2, 7, ROWS - 1, 3, 1)


class Projection(NamedTuple):
    """QKV of x with rotary embedding, by tables of all positions or of the live rows."""

    positions: bool = True
    depth: int = 64
    bias: bool = False
    normed: bool = False
    activations: str = "float32"


def projection(case: Projection, *, table: bool) -> Graph:
    """Rotated queries of x, and its caches, at the rows of a table or consecutive from a position on."""
    made = Layers(group=32)
    chain, heads, size = made.chain, (4, 2), 8
    x = chain.input((1, ROWS, case.depth))
    start: Any = chain.input((ROWS, 2), "int32") if table else chain.scalar(given=True)
    source = made.norm(x) if case.normed else x
    q, k, v = (
        made.view(made.layer(source, count * size, case.bias), (1, -1, count, size), (1, ROWS, count, size))
        for count in (*heads, heads[1])
    )
    rotated = tuple(chain.tensor(each.max_shape) for each in (q, k))
    if case.positions:
        tables = [chain.constant(made.random.standard_normal((SLOTS, size)).astype(np.float32)) for _ in range(2)]
        chain.node("et_vk.apply_rotary_emb_hf.default", q, k, *tables, start, rotated)
    else:
        tables = [chain.input((ROWS, size // 2)) for _ in range(2)]
        chain.node("et_vk.apply_rotary_emb.default", q, k, *tables, rotated)
    caches = [chain.constant(np.zeros((1, SLOTS, heads[1], size), np.float32)) for _ in range(2)]
    chain.node("liveshape.update_caches", rotated[1], v, *caches, start, None)
    return chain.graph(rotated[0], *caches)


def fused(graph: Graph, case: Projection, limits: Limits) -> Graph:
    found = fuse(graph, limits)
    names = ["liveshape.rms_norm_rotary_linear_q4gsw" if case.normed else "liveshape.rotary_linear_q4gsw"]
    assert [node.name for node in found.nodes] == names
    return with_activations(found, case.activations, limits)


def inputs(case: Projection, size: int, start: Any) -> list[Any]:
    random = np.random.default_rng(size)
    angles = [] if case.positions else [random.standard_normal((size, 4)).astype(np.float32) for _ in range(2)]
    return [random.standard_normal((1, size, case.depth)).astype(np.float32), start, *angles]


def consecutive(start: int, size: int) -> np.ndarray:
    return np.arange(start, start + size, dtype=np.int32)[:, None].repeat(2, 1)


CASES = {
    "positions": Projection(),
    "rows": Projection(positions=False),
    "biased": Projection(bias=True),
    "normed": Projection(normed=True),
    "int8": Projection(activations="int8"),
    "int8, normed": Projection(activations="int8", normed=True, bias=True),
}


QUICK = ("positions",)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=name, marks=[] if name in QUICK else [pytest.mark.slow]) for name, case in CASES.items()],
)
def test_a_table_gives_the_bytes_of_consecutive_rows(case: Projection) -> None:
    """Fused and not, at rows that are consecutive and at these in another order, with pools that hold other rows."""
    device = many_threads() if case.normed else open_device()
    by_table, by_scalar = projection(case, table=True), projection(case, table=False)
    graphs = [fused(by_scalar, case, device.limits), fused(by_table, case, device.limits)]
    if case.activations == "float32":
        graphs.append(by_table)
    scalar, *tables = (executor_of(graph, device) for graph in graphs)
    for turn, size in enumerate(SIZES):
        start = turn * 29 % (SLOTS - size + 1)
        scalar.poison()
        expected = scalar.execute(inputs(case, size, start))
        for executor in tables:
            rounded = case.normed and executor.graph is by_table
            executor.poison()
            got = executor.execute(inputs(case, size, consecutive(start, size)))
            check(got, expected, f"{size} rows at {start}", rounded)
            order = np.random.default_rng(turn).permutation(size)
            x, _, *angles = inputs(case, size, None)
            turned = [x[:, order], consecutive(start, size)[order], *(each[order] for each in angles)]
            q, *caches = executor.execute(turned)
            check([q], [expected[0][:, order]], "queries in another order", rounded)
            check(caches, expected[1:], "the order of rows is seen in the pool", rounded)


def check(got: list[Any], expected: list[Any], message: str, rounded: bool) -> None:
    """Equal bytes; or, as the fused RMSNorm of one row scales its products and not the row, the rounding of floats."""
    for one, other in zip(got, expected, strict=True):
        if rounded:
            np.testing.assert_allclose(one, other, rtol=0, atol=2e-6 * np.abs(other).max(), err_msg=message)
        else:
            assert one.tobytes() == np.ascontiguousarray(other).tobytes(), message


@pytest.mark.parametrize("positions", [True, False], ids=["positions", "rows"])
def test_rotary_embedding_that_writes_to_slots(positions: bool) -> None:
    """Two members of a batch, each with rows at the same slots of a cache of its own."""
    made = Layers()
    chain, shapes = made.chain, [(2, ROWS, heads, 10) for heads in (4, 2, 2)]
    q, k, v = (chain.input(shape) for shape in shapes)
    places = chain.input((ROWS, 2), "int32")
    rotated = tuple(chain.tensor(each.max_shape) for each in (q, k))
    if positions:
        tables = [chain.constant(made.random.standard_normal((SLOTS, 6)).astype(np.float32)) for _ in range(2)]
        chain.node("et_vk.apply_rotary_emb_hf.default", q, k, *tables, places, rotated)
    else:
        tables = [chain.input((ROWS, 5)) for _ in range(2)]
        chain.node("et_vk.apply_rotary_emb.default", q, k, *tables, rotated)
    caches = [chain.constant(np.zeros((2, SLOTS, 2, 10), np.float32)) for _ in range(2)]
    chain.node("liveshape.update_caches", rotated[1], v, *caches, places, None)
    graph, device = chain.graph(rotated[0], *caches), open_device()
    together = fuse(graph, device.limits)
    assert [node.name for node in together.nodes] == ["liveshape.rotary_to_cache"]
    executors = executor_of(graph, device), executor_of(together, device)
    for size in SIZES:
        given: list[Any] = [made.random.standard_normal((2, size, *shape[2:])).astype(np.float32) for shape in shapes]
        slots = made.random.permutation(np.arange(-5, SLOTS + 5))[:size]
        given.append(np.stack([made.random.integers(-5, SLOTS + 5, size), slots], 1).astype(np.int32))
        given += [] if positions else [made.random.standard_normal((size, 5)).astype(np.float32) for _ in range(2)]
        results = []
        for executor in executors:
            executor.poison()
            results.append([array.tobytes() for array in executor.execute(given)])
        assert results[0] == results[1], f"at {size}"


def test_rows_without_a_slot_leave_the_pool_untouched() -> None:
    case, device = Projection(), open_device()
    graph = projection(case, table=True)
    for each in (graph, fuse(graph, device.limits)):
        executor = executor_of(each, device)
        q, *before = executor.execute(inputs(case, 7, consecutive(3, 7)))
        for slot in (-1, SLOTS, -(1 << 31), (1 << 31) - 1):
            places = consecutive(3, 7)
            places[:, 1] = slot
            got, *after = executor.execute(inputs(case, 7, places))
            assert got.tobytes() == q.tobytes()
            assert [cache.tobytes() for cache in after] == [cache.tobytes() for cache in before], slot
        places[:, 0] = [-1, -(1 << 31), 0, SLOTS, (1 << 31) - 1, SLOTS - 1, SLOTS - 1]
        clamped = places.clip(0, SLOTS - 1)
        clamped[:, 1] = -1
        found = [executor.execute(inputs(case, 7, each))[0].tobytes() for each in (places, clamped)]
        assert found[0] == found[1], "a position outside of the tables is their first or last one"


def test_positions_and_slots_of_two_tables_are_not_fused() -> None:
    made = Layers()
    chain = made.chain
    q, k, v = (chain.input((1, ROWS, 2, 8)) for _ in range(3))
    first, second = (chain.input((ROWS, 2), "int32") for _ in range(2))
    tables = [chain.constant(np.zeros((SLOTS, 8), np.float32)) for _ in range(2)]
    rotated = tuple(chain.tensor(each.max_shape) for each in (q, k))
    chain.node("et_vk.apply_rotary_emb_hf.default", q, k, *tables, first, rotated)
    caches = [chain.constant(np.zeros((1, SLOTS, 2, 8), np.float32)) for _ in range(2)]
    chain.node("liveshape.update_caches", rotated[1], v, *caches, second, None)
    graph = chain.graph(rotated[0], *caches)
    assert fuse(graph, open_device().limits) is graph


def test_a_table_is_not_fused_where_bindings_are_few() -> None:
    """Eight bindings hold neither the epilogue nor the rotary embedding that writes to slots."""
    graph = projection(Projection(), table=True)
    names = [node.name for node in fuse(graph, Limits()).nodes]
    assert "et_vk.apply_rotary_emb_hf.default" in names
    assert "liveshape.update_caches" in names


def test_a_table_has_a_line_for_every_row() -> None:
    executor = executor_of(projection(Projection(), table=True), open_device())
    with pytest.raises(ShapeError, match=r"a table of rows \(6, 2\): \(7, 2\) is needed, a position and a slot"):
        executor.execute(inputs(Projection(), 7, consecutive(0, 6)))
