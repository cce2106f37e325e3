"""Looking for kernels ahead: linear in nodes, whatever the number of inputs, and what was left out is said. No GPU."""

from __future__ import annotations

from typing import Any

import pytest

from liveshape.graph import Graph
from liveshape.plan import compiling
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.plan.plan_state import PlanState
from liveshape.plan.routes import explore
from tests.support.chains import Chain


def apart(inputs: int, nodes: int = 10) -> Graph:
    """Rows of nodes, each of an input with a bound of its own, and a position that is read from data."""
    chain = Chain()
    position = chain.input((1,), "int64")
    chain.node("et_vk.select_as_symint.default", position, 0, 0, chain.scalar())
    for place in range(inputs):
        x = chain.input((40 + place, 8))
        for _ in range(nodes):
            x = chain.node("aten.relu.default", x, chain.tensor(x.max_shape))
        chain.outputs.append(x)
    return chain.graph(*chain.outputs)


def planned(graph: Graph, monkeypatch: pytest.MonkeyPatch, choices: Choices) -> tuple[int, int]:
    """How many times a generator ran while a graph was compiled, and how many combinations were left out."""
    lives: list[PlanState] = []

    def noted(live: PlanState, many: bool = True) -> int:
        lives.append(live)
        return explore(live, many)

    monkeypatch.setattr(compiling, "explore", noted)
    plan = compile(graph, choices=choices)
    return lives[0].planned, plan.untried


# What a node of this graph costs now, with some room; it was 8,000 runs of a generator each at twenty inputs.
PER_NODE = {True: 40, False: 250}  # in classes, alone


@pytest.mark.parametrize("classes", [True, False], ids=["classes", "alone"])
def test_warming_is_linear_in_nodes(monkeypatch: pytest.MonkeyPatch, classes: bool) -> None:
    """It was the square of the inputs: 20 of them took 16 s."""
    for inputs in (2, 6, 12, 20):
        graph = apart(inputs)
        count, untried = planned(graph, monkeypatch, Choices(classes=classes))
        assert count <= PER_NODE[classes] * len(graph.nodes)
        assert (untried > 0) == (inputs >= 12), f"{inputs} inputs: {untried} left"


def test_nodes_cost_the_same_each(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [planned(apart(20, nodes), monkeypatch, Choices(classes=False))[0] for nodes in (3, 6, 12)]
    assert counts[2] - counts[1] <= 2.2 * (counts[1] - counts[0])


def test_nothing_is_tried_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = apart(6)
    count, untried = planned(graph, monkeypatch, Choices(warm=False, classes=False))
    assert count == 2 * len(graph.nodes), "once to check it, once at the bound"
    assert untried > 0, "a plan says that nothing was tried"


def test_what_was_found_is_what_smaller_shapes_ask_for() -> None:
    chain = Chain()
    x, start, end = chain.input((64, 5)), chain.scalar(given=True), chain.scalar(given=True)
    part = chain.node("aten.slice_copy.Tensor", x, 0, start, end, 1, chain.tensor((64, 5)))
    plan = compile(chain.graph(chain.node("aten.add.Tensor", part, part, 1, chain.tensor((64, 5)))))
    assert plan.untried == 0
    live, met = PlanState(plan), set[Any]()
    for size in (64, 63, 17, 4, 3, 2, 1):
        for first in range(size):
            live.set(x, (size, 5))
            live.set(start, first)
            live.set(end, size)
            live.begin()
            live.walk(0, len(live.nodes), lambda node, request: 0)
            met |= {variant for node in live.nodes for variant, _ in node.group.route.dispatched}
    assert len(met) > 2
    assert met <= plan.kernels
