"""Shapes that torch refuses are refused at planning, with the shapes in the message; the next call plans as if new."""

from __future__ import annotations

from typing import Any

import pytest

from liveshape.errors import ShapeError
from liveshape.graph import Graph
from liveshape.plan.compiling import compile
from liveshape.plan.plan_state import PlanState
from tests.support.graphs import In, OpCase, Out, build


def _graph(op: str, args: list[Any]) -> Graph:
    return build(OpCase(op, op, lambda size: args, lambda *inputs: None), 1)


def _walk(graph: Graph, live: PlanState, shape: tuple[int, ...]) -> None:
    live.set(graph.inputs[0], shape)
    live.walk(0, len(graph.nodes), lambda node, request: 0)


@pytest.mark.parametrize("op", ["aten.amax.default", "aten.amin.default", "aten.argmax.default", "aten.argmin.default"])
def test_an_extremum_of_nothing_is_refused(op: str) -> None:
    graph = _graph(op, [In("float32", (3, 8)), (1,), False, Out("int64" if "arg" in op else "float32", (3,))])
    live = PlanState(compile(graph))
    with pytest.raises(ShapeError, match=r"\(3, 0\).*nothing"):
        _walk(graph, live, (3, 0))
    _walk(graph, live, (2, 5))
    assert [live.tensor(value).shape for value in graph.outputs] == [(2,)]


@pytest.mark.parametrize(
    ("op", "args", "message"),
    [
        (
            "aten.mm.default",
            [In("float32", (4, 3)), In("float32", (5, 2)), Out("float32", (4, 2))],
            "(4, 3) and (5, 2)",
        ),
        (
            "aten.linear.default",
            [In("float32", (4, 3)), In("float32", (2, 5)), None, Out("float32", (4, 2))],
            "(4, 3) and (2, 5)",
        ),
        (
            "aten.addmm.default",
            [In("float32", (3, 2)), In("float32", (4, 3)), In("float32", (3, 2)), 1, 1, Out("float32", (4, 2))],
            "(3, 2)",
        ),
        ("aten.sum.dim_IntList", [In("float32", (4, 3)), (1, -1), False, None, Out("float32", (4,))], "twice"),
        ("aten._softmax.default", [In("float32", (4, 3)), 2, False, Out("float32", (4, 3))], "dimension 2"),
        (
            "aten.native_layer_norm.default",
            [In("float32", (4, 3)), (4,), None, None, 1e-5, (Out("float32", (4, 3)), *[Out("float32", (4, 1))] * 2)],
            "(4, 3)",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_named(op: str, args: list[Any], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        compile(_graph(op, args))
    assert message in str(caught.value)
