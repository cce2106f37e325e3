"""The engine: one walk, each node at most once, nothing stale after an error. No GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveshape.errors import PlanError, ShapeError, UnsupportedError
from liveshape.kernels.requests import Scratch
from liveshape.ops.registry import OPS, op
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.plan.plan_state import PlanState, fold
from tests.support.chains import Chain

MAX = 43


def live_of(graph: Any) -> PlanState:
    """What is live of a graph whose nodes plan alone, so that they can be counted."""
    return PlanState(compile(graph, choices=Choices(classes=False, tracing=False)))


def walk(live: PlanState, data: Any = None) -> int:
    """One call's planning; returns how many nodes were planned."""
    before = live.planned
    live.begin()
    live.walk(0, len(live.nodes), lambda node, request: data[request.element])
    return live.planned - before


def rms(chain: Chain, x: Any) -> Any:
    weight = chain.constant(np.ones(x.max_shape[-1], np.float32))
    return chain.node("et_vk.rms_norm.default", x, weight, 1e-6, chain.tensor(x.max_shape))


def add(chain: Chain, a: Any, b: Any) -> Any:
    return chain.node("aten.add.Tensor", a, b, 1, chain.tensor(a.max_shape))


def test_nothing_moved_plans_nothing() -> None:
    chain = Chain()
    x = chain.input((1, MAX, 8))
    live = live_of(chain.graph(rms(chain, rms(chain, x))))
    assert walk(live) == 2
    version = live.version
    assert walk(live) == 0
    live.tensor(x).shape = (1, 7, 8)
    assert walk(live) == 2
    live.tensor(x).shape = (1, 7, 8)
    assert walk(live) == 0
    assert live.version == version, "only numbers moved: commands stay"


def test_scalar_and_tensor_moving_together_plan_a_node_once() -> None:
    chain = Chain()
    x, end = chain.input((1, MAX, 8)), chain.scalar(given=True)
    part = chain.node("aten.slice_copy.Tensor", x, 1, 0, end, 1, chain.tensor((1, MAX, 8)))
    graph = chain.graph(rms(chain, part))
    live = live_of(graph)
    live.scalar(end).value = MAX
    walk(live)
    live.tensor(x).shape, live.scalar(end).value = (1, 9, 8), 5
    assert walk(live) == 2
    assert live.tensor(graph.outputs[0]).shape == (1, 5, 8)
    live.scalar(end).value = 6
    assert walk(live) == 2
    live.scalar(end).value = 6
    assert walk(live) == 0


def test_a_shape_that_ends_up_equal_stops_the_walk() -> None:
    chain = Chain()
    x, end = chain.input((MAX, 8)), chain.scalar(given=True)
    part = chain.node("aten.slice_copy.Tensor", x, 0, 0, end, 1, chain.tensor((MAX, 8)))
    live = live_of(chain.graph(rms(chain, part)))
    live.scalar(end).value = 4
    walk(live)
    live.tensor(x).shape = (30, 8)
    assert walk(live) == 1, "the slice still ends at 4, so what reads it stays planned"


def test_sym_size_of_an_intermediate_is_live() -> None:
    chain = Chain()
    x = chain.input((1, MAX, 8))
    doubled = chain.node("aten.cat.default", (x, x), 1, chain.tensor((1, 2 * MAX, 8)))
    size = chain.node("sym_size.int", doubled, 1, chain.scalar())
    half = chain.node("floordiv", size, 4, chain.scalar())
    part = chain.node("aten.slice_copy.Tensor", x, 1, 0, half, 1, chain.tensor((1, MAX // 2, 8)))
    graph = chain.graph(part)
    live = live_of(graph)
    for length in (43, 1, 7, 42, 5):
        live.tensor(x).shape = (1, length, 8)
        walk(live)
        assert (live.scalar(size).value, live.scalar(half).value, live.tensor(part).shape) == (
            2 * length,
            length // 2,
            (1, length // 2, 8),
        )


def test_branches_of_different_depth_join() -> None:
    chain = Chain()
    x = chain.input((1, MAX, 8))
    deep = x
    for _ in range(5):
        deep = rms(chain, deep)
    graph = chain.graph(add(chain, x, deep))
    live = live_of(graph)
    walk(live)
    for length in (3, 43, 1, 20):
        live.tensor(x).shape = (1, length, 8)
        assert walk(live) == 6
        assert live.tensor(graph.outputs[0]).shape == (1, length, 8)


def test_an_error_in_the_middle_leaves_nothing_stale() -> None:
    chain = Chain()
    a, b = chain.input((MAX, 8)), chain.input((MAX, 8))
    graph = chain.graph(add(chain, rms(chain, a), rms(chain, b)))
    live = live_of(graph)
    walk(live)
    live.tensor(a).shape, live.tensor(b).shape = (3, 8), (4, 8)
    with pytest.raises(ShapeError, match=r"aten.add.Tensor \(node 2\).*\(3, 8\) and \(4, 8\) do not broadcast"):
        walk(live)
    assert bytes(live.pending) == b"\x01\x01\x01"
    live.tensor(b).shape = (3, 8)
    assert walk(live) == 3
    fresh = _fresh_steps(3)
    assert [step for node in graph.nodes for step in live.described(node.index)] == fresh


def _fresh_steps(size: int) -> list[Any]:
    chain = Chain()
    a, b = chain.input((size, 8)), chain.input((size, 8))
    graph = chain.graph(add(chain, rms(chain, a), rms(chain, b)))
    live = live_of(graph)
    walk(live)
    return [step for node in graph.nodes for step in live.described(node.index)]


def test_live_shapes_are_checked_against_the_allocation_in_each_dimension() -> None:
    chain = Chain()
    x = chain.input((2, MAX, 8))
    live = live_of(chain.graph(rms(chain, x)))
    for shape in ((2, MAX + 1, 8), (3, 1, 8), (2, MAX, 9), (2, -1, 8)):
        with pytest.raises(ShapeError, match=r"input 0: live shape .* does not fit the allocated \(2, 43, 8\)"):
            live.tensor(x).shape = shape
    assert live.tensor(x).shape == (2, MAX, 8)


def test_static_graphs_plan_once_and_stay_identical() -> None:
    chain = Chain()
    x = chain.input((1, MAX, 8))
    graph = chain.graph(rms(chain, x))
    live = live_of(graph)
    walk(live)
    route, version = live.nodes[0].group.route, live.version
    for _ in range(3):
        live.tensor(x).shape = (1, MAX, 8)
        assert walk(live) == 0
        assert live.nodes[0].group.route is route
        assert live.version == version


def test_select_as_symint_is_due_at_every_call_and_moves_only_when_its_value_does() -> None:
    chain = Chain()
    position, table = chain.input((1,), "int32"), chain.input((64, 8))
    start = chain.node("et_vk.select_as_symint.default", position, 0, -1, chain.scalar())
    end = chain.node("add", start, 3, chain.scalar())
    part = chain.node("aten.slice_copy.Tensor", table, 0, start, end, 1, chain.tensor((3, 8)))
    live = live_of(chain.graph(part))
    assert walk(live, [0]) == 3
    assert walk(live, [0]) == 1
    assert walk(live, [9]) == 3
    assert (live.scalar(start).value, live.scalar(end).value, live.tensor(part).shape) == (9, 12, (3, 8))
    with pytest.raises(PlanError, match="does not fit 32 bits"):
        walk(live, [1 << 40])


def test_unsupported_nodes_are_reported_together() -> None:
    chain = Chain()
    x = chain.input((4, 8), "int32")
    weight = chain.constant(np.ones(8, np.int32))
    for _ in range(2):
        chain.node("et_vk.rms_norm.default", x, weight, 1e-6, chain.tensor((4, 8), "int32"))
    told = r"2 x et_vk.rms_norm.default \(node 0, node 1\): .*takes f32 or f16.*not int32"
    with pytest.raises(UnsupportedError, match=told):
        compile(chain.graph(chain.nodes[-1].args[-1]))


@pytest.fixture
def late_scratch() -> Any:
    @op("test.late_scratch")
    def late(x: Any, out: Any) -> Any:
        out.shape = x.shape
        if x.shape[0] < 4:
            yield Scratch("float32", x.max_shape)

    yield
    del OPS["test.late_scratch"]


@pytest.mark.usefixtures("late_scratch")
def test_scratch_behind_a_route_is_an_error() -> None:
    chain = Chain()
    x = chain.input((8, 8))
    live = live_of(chain.graph(chain.node("test.late_scratch", x, chain.tensor((8, 8)))))
    walk(live)
    live.tensor(x).shape = (2, 8)
    with pytest.raises(PlanError, match="scratch must be asked for before any routing"):
        walk(live)


@given(st.integers(0, 2**33), st.sampled_from([1 << 12, 65535]))
def test_fold_covers_every_group_with_little_overshoot(groups: int, limit: int) -> None:
    x, y, z = fold(groups, limit)
    assert max(x, y, z) <= limit
    assert x * y * z >= groups
    assert x * y * z - groups < max(2, y * z)


def test_fold_refuses_what_no_grid_holds() -> None:
    with pytest.raises(UnsupportedError, match="do not fit a grid"):
        fold(5**3 + 1, 5)


def test_what_an_operator_reads_of_its_own_memory_is_written_before_it_reads() -> None:
    chain = Chain()
    x = chain.input((MAX, 3))
    out = chain.node("aten::nonzero.out", x, chain.tensor((MAX * 3, 2), "int64"))
    live = live_of(chain.graph(out))
    seen: list[list[str]] = []

    def kernels() -> list[str]:
        return [label.split("<")[0] for label, *_ in live.described(0)]

    def read(node: Any, request: Any) -> int:
        seen.append(kernels())
        return 5

    for _ in range(2):
        live.begin()
        live.walk(0, 1, read)
        assert seen.pop() == ["compaction/flags", "compaction/prefix_sums", "compaction/prefix_sums"]
        assert kernels() == ["compaction/coordinates"], "what ran before the read does not run again"
        assert live.tensor(out).shape == (5, 2)
