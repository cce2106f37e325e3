"""Nodes that plan alike are planned once, and nobody can tell: each has the plan that it would have alone. No GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liveshape.errors import LiveshapeError, PlanError
from liveshape.graph import Graph, Limits, SymInt, Tensor
from liveshape.graph.live import identity
from liveshape.plan.compiling import check_resume, compile
from liveshape.plan.plan import Choices, Plan
from liveshape.plan.plan_state import PlanState
from liveshape.tools.measuring.random_llamas import Llama, Shape
from tests.support.chains import Chain

BOUND = 16


def walked(live: PlanState, data: Any = 0, start: int = 0, stop: int | None = None) -> int:
    """One call's planning in a straight row; returns how many nodes were planned."""
    before = live.planned
    live.begin()
    live.walk(start, len(live.nodes) if stop is None else stop, lambda node, request: data)
    return live.planned - before


def described(live: PlanState) -> list[Any]:
    return [live.described(index) for index in range(len(live.nodes))]


def small_llama(layers: int) -> Graph:
    shape = Shape(
        layers, hidden=32, ffn=64, heads=2, kv_heads=1, head_size=16, vocabulary=64, max_seq_len=16, max_context=32
    )
    return Llama(shape).graph()


@pytest.mark.parametrize("moving", ["position", "length"])
def test_a_move_plans_one_node_of_each_class_whatever_the_depth(moving: str) -> None:
    """A token of a model of 32 layers costs the planner what one of 2 costs."""
    counts = []
    for layers in (2, 8, 32):
        graph = small_llama(layers)
        live = PlanState(compile(graph, choices=Choices(tracing=False, warm=False)))
        tokens, _ = graph.inputs
        live.set(tokens, (1, 1))
        walked(live, 0)
        if moving == "length":
            live.set(tokens, (1, 7))
        counts.append(walked(live, 5))
    assert counts[0] == counts[1] == counts[2] > 2
    assert counts[0] < len(small_llama(2).nodes)


def test_the_first_walk_plans_one_of_each_class() -> None:
    graph = small_llama(8)
    plan = compile(graph, choices=Choices(warm=False))
    assert walked(PlanState(plan)) == len(plan.classes) < len(graph.nodes) / 3
    alone = compile(graph, choices=Choices(warm=False, classes=False))
    assert walked(PlanState(alone)) == len(alone.classes) == len(graph.nodes)


# Random programs: nodes that look alike, two lengths, state, jumps, values and scalars that are written twice


class Writer:
    """Draws a program; what moves in a call are the lengths of `inputs`, and the numbers `position` and `factor`."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.chain = chain = Chain()
        self.tensors: list[Tensor] = [chain.input((BOUND, 4)), chain.input((BOUND, 4))]
        self.scalars: list[SymInt] = [chain.scalar(given=True)]
        self.factor = chain.scalar(given=True)
        self.kept = chain.constant(np.zeros((BOUND, 4), np.float32))
        self.twice, self.number = chain.tensor((BOUND, 4)), chain.scalar()
        self.cuts: list[int] = []

    def write(self) -> tuple[Graph, tuple[int, ...]]:
        self.block(self.draw(st.integers(3, 16)), 0)
        return self.chain.graph(*self.tensors[-3:]), tuple(self.cuts)

    def block(self, count: int, depth: int) -> None:
        kinds = ["relu", "add", "scaled", "slice", "move", "size", "rewrite", "rewrite", "renumber", "keep", "cut"]
        for _ in range(count):
            getattr(self, self.draw(st.sampled_from(kinds if depth else [*kinds, "branch", "loop"])))()

    def some(self) -> Tensor:
        found: Tensor = self.draw(st.sampled_from(self.tensors))
        return found

    def whole(self, *others: int) -> Any:
        return self.draw(st.sampled_from([*others, *self.scalars]))

    def made(self, operator: str, *args: Any) -> None:
        self.tensors.append(self.chain.node(operator, *args, self.chain.tensor((BOUND, 4))))

    def relu(self) -> None:
        self.made("aten.relu.default", self.some())

    def add(self) -> None:
        x = self.some()
        self.made("aten.add.Tensor", x, self.draw(st.sampled_from([x, self.some()])), 1)

    def scaled(self) -> None:
        self.made("aten.mul.Scalar", self.some(), self.draw(st.sampled_from([0.0, -0.0, 1, 1.0, True, self.factor])))

    def slice(self) -> None:
        self.made("aten.slice_copy.Tensor", self.some(), 0, self.whole(0, 1, 4, -2), self.whole(2, 9, -1), 1)

    def size(self) -> None:
        self.scalars.append(self.chain.node("sym_size.int", self.some(), 0, self.chain.scalar()))

    def window(self) -> tuple[Any, Any]:
        """Ends of a range that moves as a whole: its length stays, and only params differ."""
        start = self.whole()
        return start, self.chain.node("add", start, 2, self.chain.scalar())

    def move(self) -> None:
        self.made("aten.slice_copy.Tensor", self.some(), 0, *self.window(), 1)

    def rewrite(self) -> None:
        source = self.draw(st.sampled_from([each for each in self.tensors if each is not self.twice]))
        ends = self.window() if self.draw(st.booleans()) else (self.whole(0, 2), self.whole(4, 9))
        self.chain.node("aten.slice_copy.Tensor", source, 0, *ends, 1, self.twice)
        self.tensors.append(self.twice)

    def renumber(self) -> None:
        self.chain.node("add", self.whole(), self.draw(st.integers(0, 2)), self.number)
        self.scalars.append(self.number)

    def keep(self) -> None:
        """One row of something becomes all rows of the state; a slice of nothing cannot, and is refused."""
        self.made("aten.slice_copy.Tensor", self.some(), 0, 0, 1, 1)
        self.chain.node("aten.copy_.default", self.kept, self.tensors[-1], False, self.kept)
        self.made("aten.slice_copy.Tensor", self.kept, 0, 0, self.whole(3), 1)

    def cut(self) -> None:
        self.cuts.append(len(self.chain.nodes))

    def branch(self) -> None:
        index = len(self.chain.nodes)
        self.chain.node("liveshape.jump_false", self.scalars[0], 0, None)
        self.block(self.draw(st.integers(1, 4)), 1)
        jump = self.chain.nodes[index]
        self.chain.nodes[index] = replace(jump, args=(jump.args[0], len(self.chain.nodes), None))

    def loop(self) -> None:
        start = len(self.chain.nodes)
        self.block(self.draw(st.integers(1, 4)), 1)
        self.chain.node("liveshape.jump_false", self.scalars[0], start, None)


@st.composite
def programs(draw: Callable[[Any], Any]) -> tuple[Graph, tuple[int, ...]]:
    graph, cuts = Writer(draw).write()
    return graph, tuple(cut for cut in cuts if may_resume(graph, cut))


def may_resume(graph: Graph, point: int) -> bool:
    try:
        check_resume(graph, point)
    except PlanError:
        return False
    return True


LENGTHS = st.sampled_from((0, 1, 2, 3, 4, 5, 8, 15, 16))
FACTORS = st.sampled_from((0.0, -0.0, 1, 1.0, True, False, 2, 2.5))
_DECISIONS = st.lists(st.booleans(), min_size=6, max_size=6)
# Lengths that stay for several calls are what a trace needs.
CALLS = st.lists(
    st.tuples(
        st.tuples(LENGTHS, LENGTHS),
        st.lists(st.tuples(st.integers(0, BOUND), FACTORS, _DECISIONS), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=3,
).map(lambda rows: [(*lengths, *moved) for lengths, calls in rows for moved in calls])


def called(live: PlanState, call: tuple[Any, ...], cuts: tuple[int, ...]) -> list[Any]:
    """One call as an executor makes it: what each row of nodes ran, and the shapes and numbers after it."""
    graph, end = live.plan.graph, len(live.nodes)
    one, other, position, factor, decisions = call
    for value, to in zip(graph.inputs, ((one, 4), (other, 4), position, factor), strict=True):
        live.set(value, to)
    found: list[Any] = []
    taken = iter(decisions)

    def walk(start: int, stop: int) -> None:
        live.walk(start, stop, lambda node, request: 0)
        found.append([live.described(index) for index in range(start, stop)])
        found.append([live.tensor(value).shape for value in graph.tensors])
        found.append(live.scalars())

    live.begin()
    index = 0
    try:
        while index < end:
            stop = next((control for control in graph.controls if control >= index), end)
            walk(index, stop)
            # Decisions that run out are all true, so that every loop ends.
            index = stop if stop == end else stop + 1 if next(taken, True) else graph.nodes[stop].args[1]
        for cut in cuts:
            if cut > max(graph.controls, default=-1):
                walk(cut, end)
    except LiveshapeError as error:
        found.append(str(error))
    return found


def nodes_are_planned_as_if_alone(program: tuple[Graph, tuple[int, ...]], calls: list[tuple[Any, ...]]) -> None:
    graph, cuts = program
    ways = [
        Choices(resume=cuts, warm=False, classes=classes, tracing=tracing)
        for classes, tracing in ((False, False), (True, False), (False, True), (True, True))
    ]
    lives = [PlanState(compile(graph, choices=choices)) for choices in ways]
    for call in calls:
        alone, *others = (called(live, call, cuts) for live in lives)
        assert others == [alone] * 3
        if not graph.controls:
            fresh = PlanState(compile(graph, choices=ways[0]))
            assert called(fresh, call, cuts) == alone, "nothing is left of the calls before"


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_every_node_has_the_plan_that_it_would_have_alone(count: int) -> None:
    settings(max_examples=count, deadline=None)(given(programs(), CALLS)(nodes_are_planned_as_if_alone))()


def planning_leaves_no_trace(program: tuple[Graph, tuple[int, ...]], calls: list[tuple[Any, ...]]) -> None:
    """Plans of a graph that was planned and run under other choices are those of a fresh one."""
    graph, cuts = program
    tight = Limits(max_binding_bytes=100, max_buffer_bytes=1000, max_bindings=64, uniform_alignment=64, half=False)
    ways = [
        (limits, Choices(aliasing=aliasing, resume=cuts)) for limits in (Limits(), tight) for aliasing in (True, False)
    ]
    first = [compile(graph, limits, choices) for limits, choices in ways]
    for plan in first:
        live = PlanState(plan)
        for call in calls:
            called(live, call, cuts)
    again = [compile(graph, limits, choices) for limits, choices in reversed(ways)]
    assert [as_value(plan) for plan in again] == [as_value(plan) for plan in reversed(first)]


@pytest.mark.parametrize("count", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_a_graph_is_planned_without_a_trace(count: int) -> None:
    settings(max_examples=count, deadline=None)(given(programs(), CALLS)(planning_leaves_no_trace))()


def as_value(plan: Plan) -> Any:
    """Everything about a plan; scratch is made anew for each, and is known by its name."""
    return (
        plan.classes,
        [(route.members, route.dispatched) for route in plan.routes],
        [[(tensor.name, tensor.max_shape) for tensor in row] for row in plan.scratch],
        plan.memory.blocks,
        [(tensor.name, storage) for tensor, storage in plan.memory.storages.items()],
        [plan.bindings(tensor) for tensor in plan.graph.tensors],
        (plan.untried, plan.param_bytes, plan.staging_bytes, plan.index_limits),
    )


def test_a_plan_that_is_computed_sets_the_shape_of_a_value_that_others_write() -> None:
    """Only params of the first slice move, so they are computed; what it gives had the shape that the move left."""
    chain = Chain()
    x, start = chain.input((9, 4)), chain.scalar(given=True)
    end = chain.node("add", start, 2, chain.scalar())
    twice = chain.node("aten.slice_copy.Tensor", x, 0, start, end, 1, chain.tensor((9, 4)))
    part = chain.node("aten.flip.default", twice, (0,), chain.tensor((9, 4)))
    chain.node("liveshape.move", x, twice)
    everything = chain.node("aten.flip.default", twice, (0,), chain.tensor((9, 4)))
    live = PlanState(compile(chain.graph(part, everything)))
    for position in (0, 1, 3, 5, 6):
        live.set(start, position)
        walked(live)
        assert [live.tensor(each).shape for each in (part, everything)] == [(2, 4), (9, 4)]
    assert live.nodes[1].group.traced is not None


# What is told apart


def scaled_by(*numbers: Any) -> Graph:
    chain = Chain()
    x = chain.input((8,))
    outs = [chain.node("aten.mul.Scalar", x, number, chain.tensor((8,))) for number in numbers]
    return chain.graph(*outs)


def test_numbers_that_python_calls_equal_are_told_apart() -> None:
    """0.0 and -0.0 shared a plan: the second of two products had the sign of the first."""
    graph = scaled_by(0.0, -0.0, 0.0)
    live = PlanState(compile(graph))
    assert [each.members for each in live.plan.classes] == [(0, 2), (1,)]
    walked(live)
    positive, negative, again = described(live)
    assert positive[0][2] == again[0][2] != negative[0][2]
    assert identity(1) != identity(True) != identity(1.0) != identity(1)


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (-0.0, 0.0)])
def test_a_live_number_that_only_changes_its_sign_is_planned_again(one: float, other: float) -> None:
    chain = Chain()
    x, factor = chain.input((8,)), chain.scalar(given=True)
    live = PlanState(compile(chain.graph(chain.node("aten.mul.Scalar", x, factor, chain.tensor((8,))))))
    live.set(factor, one)
    walked(live)
    before = described(live)
    live.set(factor, other)
    assert walked(live) == 1
    assert described(live) != before


@pytest.mark.parametrize(("one", "other"), [(1, True), (True, 1.0), (1, 1.0)])
def test_a_live_number_that_changes_its_type_is_planned_again(one: Any, other: Any) -> None:
    chain = Chain()
    x, factor = chain.input((8,)), chain.scalar(given=True)
    live = PlanState(compile(chain.graph(chain.node("aten.mul.Scalar", x, factor, chain.tensor((8,))))))
    live.set(factor, one)
    walked(live)
    live.set(factor, other)
    assert type(live.scalar(factor).value) is type(other)
    assert walked(live) == 1


def test_members_leave_when_their_shapes_differ_and_join_others() -> None:
    """Two inputs of one bound: four nodes of each are one class, then two, and right at every length."""
    chain = Chain()
    s, t = chain.input((BOUND, 8)), chain.input((BOUND, 8))
    for x in (s, t):
        for _ in range(4):
            x = chain.node("aten.relu.default", x, chain.tensor((BOUND, 8)))
        chain.outputs.append(x)
    graph = chain.graph(*chain.outputs)
    live = PlanState(compile(graph, choices=Choices(warm=False)))
    assert [each.members for each in live.classes()] == [tuple(range(8))]
    assert walked(live) == 1
    for one, other, planned in ((5, 5, 1), (5, 7, 1), (6, 9, 2), (3, 3, 2)):
        live.set(s, (one, 8))
        live.set(t, (other, 8))
        assert walked(live) == planned
        assert [live.tensor(value).shape for value in graph.outputs] == [(one, 8), (other, 8)]
    assert [each.members for each in live.classes()] == [(0, 1, 2, 3), (4, 5, 6, 7)]
