"""A program is checked in the memory of a few of its nodes, and what is found is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape.check import lifetimes
from liveshape.check.checking import Check
from liveshape.check.findings import Found
from liveshape.check.lifetimes import Schedule
from liveshape.device.backends import open_device
from liveshape.graph import Graph
from tests.check.test_checking import block, looped
from tests.support.chains import Chain

ROWS, WIDTH, LAYERS = 64, 256, 12
NBYTES = 4 * ROWS * WIDTH  # of a value


def deep() -> Graph:
    """Layers of a product with an expression behind it, which are fused, and of a sum over what is far behind."""
    random, chain = np.random.default_rng(0), Chain()
    first = x = chain.input((ROWS, WIDTH))
    shape = (ROWS, WIDTH)
    for layer in range(LAYERS):
        weight = chain.constant(random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 16)
        x = chain.node("aten.linear.default", x, weight, None, chain.tensor(shape))
        x = chain.node("aten.relu.default", x, chain.tensor(shape))
        if layer == LAYERS - 1:
            x = chain.node("aten.add.Tensor", x, first, 1, chain.tensor(shape))
    return chain.graph(x)


class Peaks:
    """The most that a check holds, seen at each node, and what it finds."""

    def __init__(self, graph: Graph, sizes: tuple[int, ...]) -> None:
        device = open_device()
        before = device.counters.live_bytes
        check = Check(graph, device, device.limits)
        own = device.counters.live_bytes - before
        self.device = self.host = 0

        def begin(label: str) -> None:
            self.device = max(self.device, device.counters.live_bytes - before - own)
            arrays = [each for value, each in check.known.items() if getattr(value, "constant", None) is None]
            self.host = max(self.host, sum(np.asarray(each).nbytes for each in arrays))

        random = np.random.default_rng(1)
        for size in sizes:
            check.call([random.standard_normal((size, WIDTH)).astype(np.float32)], begin)
        check.close()
        self.found: Found = check.found
        assert device.counters.live_bytes <= before


def test_a_deep_program_takes_the_memory_of_a_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (ROWS, 1, 7, ROWS - 1, 2)
    whole = Peaks(deep(), sizes)
    monkeypatch.setattr(lifetimes, "MOST_VALUES", 3 * NBYTES)
    monkeypatch.setattr(lifetimes, "MOST_EXECUTORS", 1 << 20)
    few = Peaks(deep(), sizes)
    assert whole.found.right
    for name in ("checked", "fused", "unknown", "divergences", "calls", "planned"):
        assert getattr(few.found, name) == getattr(whole.found, name), name
    assert len(few.found.fused) == LAYERS
    assert few.host <= 6 * NBYTES < whole.host
    assert few.device <= 3 << 20 < whole.device


@pytest.mark.parametrize("what", ["MOST_VALUES", "MOST_EXECUTORS"])
def test_the_least_memory_finds_the_same(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is held that is not needed, and each node is opened anew: in a block, and in loops and branches."""
    monkeypatch.setattr(lifetimes, what, 0)
    device = open_device()
    check = Check(block(), device, device.limits)
    for size in (19, 1, 7):
        check.call([np.random.default_rng(size).standard_normal((1, size, 64)).astype(np.float32)])
    check.close()
    assert check.found.right
    assert len(check.found.checked) == 8
    assert looped((1, 5, 2)).right


def test_fused_nodes_come_when_all_is_known_that_they_take() -> None:
    graph = deep()
    device = open_device()
    check = Check(graph, device, device.limits)
    fused = [single.node for single in check._fused]
    schedule = Schedule(graph, fused)
    writes: dict[Any, int] = {value: node.index for node in graph.nodes for value in node.written}
    due = {place: index for index, places in enumerate(schedule.fused_after) for place in places}
    assert due.keys() == set(range(len(fused)))
    for place, node in enumerate(fused):
        assert due[place] == max(writes[value] for value in (*node.inputs, *node.written) if value in writes)
    dead = {value: index for index, values in enumerate(schedule.dead_after) for value in values}
    for node in (*graph.nodes, *fused):
        after = node.index if node in graph.nodes else due[fused.index(node)]
        assert all(dead.get(value, after) >= after for value in (*node.inputs, *node.written))
    assert not {*graph.inputs, *graph.outputs} & dead.keys()
    check.close()
