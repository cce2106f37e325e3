"""Planning at a live size equals, byte for byte, planning a graph whose bound is that size. No GPU."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from liveshape.plan.planning import Planner

from liveshape.graph import Graph, SymInt, Tensor
from liveshape.plan.memory import alias_views
from tests.ops.cases import CASES
from tests.support.graphs import In, OpCase, build, flat_specs


def _no_data(node: Any, request: Any) -> int:
    return 0


def _planned(case: OpCase, size: int) -> tuple[Graph, Planner]:
    graph = build(case, size)
    alias_views(graph)
    return graph, Planner(graph)


def _resize(case: OpCase, graph: Graph, planner: Planner, size: int) -> None:
    for value, spec in zip(graph.inputs, flat_specs(case.args_at(size)), strict=True):
        if isinstance(value, Tensor):
            assert isinstance(spec, In)
            value.shape = tuple(spec.shape)
        elif isinstance(value, SymInt):
            value.value = spec.value
    planner.begin()
    planner.walk(0, len(graph.nodes), _no_data)


def _steps(graph: Graph) -> list[Any]:
    return [step.describe() for node in graph.nodes for step in node.steps]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_live_plan_equals_fresh_plan(case: OpCase) -> None:
    graph, planner = _planned(case, max(case.sizes))
    fresh = {}
    for size in case.sizes:
        exact, exact_planner = _planned(case, size)
        _resize(case, exact, exact_planner, size)
        fresh[size] = _steps(exact), [value.shape for value in exact.outputs]

    @settings(max_examples=10, deadline=None)
    @given(st.lists(st.sampled_from(case.sizes), min_size=1, max_size=6))
    def after_any_sequence(sizes: list[int]) -> None:
        for size in sizes:
            _resize(case, graph, planner, size)
            assert (_steps(graph), [value.shape for value in graph.outputs]) == fresh[size]

    after_any_sequence()
