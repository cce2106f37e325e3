"""Params have their place: they stay where they are while routes stay, and the device is told what differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Graph
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.plan.plan_state import PlanState
from liveshape.run.executor import Executor
from tests.support.chains import Chain

ROWS = 300


def windows() -> tuple[Graph, Any]:
    """Two rows from a live position on, by a slice whose kernel stays, between two nodes that do not move."""
    chain = Chain()
    x, start = chain.input((ROWS, 8)), chain.scalar(given=True)
    end = chain.node("add", start, 2, chain.scalar())
    doubled = chain.node("aten.add.Tensor", x, x, 1, chain.tensor((ROWS, 8)))
    part = chain.node("aten.slice_copy.Tensor", doubled, 0, start, end, 1, chain.tensor((2, 8)))
    return chain.graph(chain.node("aten.relu.default", part, chain.tensor((2, 8)))), start


def walked(live: PlanState) -> None:
    live.begin()
    live.walk(0, len(live.nodes), lambda node, request: 0)


@pytest.mark.parametrize("tracing", [True, False], ids=["computed", "planned"])
def test_places_stay_while_routes_stay(tracing: bool) -> None:
    graph, start = windows()
    live = PlanState(compile(graph, choices=Choices(tracing=tracing)))
    live.set(start, 1)
    walked(live)
    slots = [node.group.route.slots for node in live.nodes]
    offsets = [slot.offset for row in slots for slot in row]
    version, room = live.version, len(live.arena.data)
    assert len(set(offsets)) == len(offsets) == 3
    live.arena.mark_clean()
    (moving,) = live.nodes[2].group.route.slots
    for position in (2, 3, 5, 8, 100, 297):
        before = bytes(live.arena.data)
        live.set(start, position)
        walked(live)
        after = bytes(live.arena.data)
        assert [node.group.route.slots for node in live.nodes] == slots
        assert [slot.offset for row in slots for slot in row] == offsets
        assert (live.version, len(after)) == (version, room)
        assert after[moving.offset : moving.offset + len(moving.params)] == moving.params
        dirty = live.arena.dirty()
        assert dirty is not None
        at, data = dirty
        differ = [place for place in range(room) if before[place] != after[place]]
        assert moving.offset <= at <= differ[0]
        assert differ[-1] < at + len(data) <= moving.offset + len(moving.params)
        live.arena.mark_clean()
    walked(live)
    assert live.arena.dirty() is None, "nothing moved"


def test_params_stay_dirty_until_the_device_has_them() -> None:
    graph, start = windows()
    live = PlanState(compile(graph))
    live.set(start, 1)
    walked(live)
    live.arena.mark_clean()
    live.set(start, 2)
    walked(live)
    first = live.arena.dirty()
    live.set(start, 3)
    walked(live)
    assert first is not None
    assert live.arena.dirty() == (first[0], live.arena.data[first[0] : first[0] + len(first[1])])


@pytest.mark.parametrize("count", [60, 70, 200])
def test_many_pieces_alone_in_a_graph(count: int) -> None:
    """The room for params was a guess per node: a cat of 200 pieces did not fit it."""
    device = open_device()
    chain = Chain()
    pieces = tuple(chain.input((1, 3)) for _ in range(count))
    out = chain.node("aten.cat.default", pieces, 0, chain.tensor((count, 3)))
    executor = Executor(compile(chain.graph(out), device.limits), device)
    buffers = device.counters.buffers
    (got,) = executor.execute([np.full((1, 3), place, np.float32) for place in range(count)])
    np.testing.assert_array_equal(got, np.arange(count, dtype=np.float32)[:, None].repeat(3, 1))
    assert len(executor.live.arena.data) <= executor.plan.uniform_bytes
    assert device.counters.buffers == buffers, "the plan knew how much its params take"


def test_an_arena_that_grows_while_running_is_right() -> None:
    """Without trials the plan knows the routes of the bound alone; others find their room when they are met."""
    device = open_device()
    chain = Chain()
    x, start, end = chain.input((64, 5)), chain.scalar(given=True), chain.scalar(given=True)
    parts = []
    for _ in range(6):
        x_part = chain.node("aten.slice_copy.Tensor", x, 0, start, end, 1, chain.tensor((64, 5)))
        parts.append(chain.node("aten.slice_copy.Tensor", x_part, 1, 1, 4, 1, chain.tensor((64, 3))))
    graph = chain.graph(*parts)
    executor = Executor(compile(graph, device.limits, Choices(warm=False, classes=False)), device)
    data = np.random.default_rng(0).standard_normal((64, 5)).astype(np.float32)
    rooms = []
    for first, last in ((0, 64), (0, 0), (1, 9), (3, 64), (4, 5), (2, 2), (0, 64), (7, 8)):
        executor.poison()
        rooms.append(len(executor.live.arena.data))
        for got in executor.execute([data, first, last]):
            np.testing.assert_array_equal(got, data[first:last, 1:4])
    assert max(rooms) > executor.plan.uniform_bytes, "or this test asks for nothing"
    assert rooms[-1] == rooms[-2] == max(rooms), "routes that were met have their places"
