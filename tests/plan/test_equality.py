"""Planning at a live size equals, byte for byte, planning a graph whose bound is that size. No GPU."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liveshape.graph import Graph, Limits, SymInt, Tensor
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.plan.plan_state import PlanState
from tests.ops.cases import CASES, normalization, reduction, scan, softmax, training
from tests.support.graphs import In, OpCase, build, flat_specs


def _no_data(node: Any, request: Any) -> int:
    return 0


# So few that the sizes of the sweep are long rows, which go in stages.
FEW_TURNS = Limits(max_turns=128)
_UNNUMBERED = re.compile(r"(?<=scratch) \d+")  # a larger bound may have more scratch


def _planned(case: OpCase, size: int, limits: Limits | None = None) -> tuple[Graph, PlanState]:
    graph = build(case, size)
    # Trials at other sizes are what this test makes itself.
    return graph, PlanState(compile(graph, limits, Choices(warm=False)))


def _resize(case: OpCase, graph: Graph, live: PlanState, size: int) -> None:
    for value, spec in zip(graph.inputs, flat_specs(case.args_at(size)), strict=True):
        if isinstance(value, Tensor):
            assert isinstance(spec, In)
            live.set(value, tuple(spec.shape))
        elif isinstance(value, SymInt):
            live.set(value, spec.value)
    live.begin()
    live.walk(0, len(graph.nodes), _no_data)


def _found(graph: Graph, live: PlanState) -> tuple[list[Any], list[Any]]:
    steps = [
        (kernel, [_UNNUMBERED.sub("", name) for name in names], *rest)
        for node in graph.nodes
        for kernel, names, *rest in live.described(node.index)
    ]
    return steps, [live.tensor(value).shape for value in graph.outputs]


def _cases(cases: list[OpCase]) -> list[Any]:
    """The last case of each operator in `make test`, which has most arguments; all of them in `make test-all`."""
    quick = {case.op: case.name for case in cases}.values()
    return [pytest.param(case, id=case.name, marks=() if case.name in quick else pytest.mark.slow) for case in cases]


@pytest.mark.parametrize("case", _cases(CASES))
def test_live_plan_equals_fresh_plan(case: OpCase) -> None:
    _check_every_size(case)


@pytest.mark.parametrize(
    "case", _cases([case for each in (normalization, reduction, scan, softmax, training) for case in each.CASES])
)
def test_it_does_in_stages(case: OpCase) -> None:
    """Where a short row has fewer threads than the longest one, too, and so takes stages where that takes none."""
    _check_every_size(case, FEW_TURNS)


def _check_every_size(case: OpCase, limits: Limits | None = None) -> None:
    graph, live = _planned(case, max(case.sizes), limits)
    fresh = {}
    for size in case.sizes:
        exact, exact_live = _planned(case, size, limits)
        _resize(case, exact, exact_live, size)
        fresh[size] = _found(exact, exact_live)

    @settings(max_examples=5, deadline=None)
    @given(st.lists(st.sampled_from(case.sizes), min_size=1, max_size=6))
    def after_any_sequence(sizes: list[int]) -> None:
        for size in sizes:
            _resize(case, graph, live, size)
            assert _found(graph, live) == fresh[size]

    after_any_sequence()
