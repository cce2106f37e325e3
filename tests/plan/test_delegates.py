"""Arguments of a delegate's call that its graph does not have: run is what the file decides, the rest is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.errors import ShapeError
from liveshape.formats import OperatorCall, ValueList, VkGraph, VkSymInt, VkTensor
from liveshape.graph import Graph, SymInt, Tensor
from liveshape.lower.building import Builder
from liveshape.lower.delegate_arguments import AtBounds
from liveshape.lower.delegates import InlinedDelegate
from tests.support.chains import executor_of


def called(inputs: tuple[tuple[int, ...], ...], shape: tuple[int, ...], unknown: int = -1) -> tuple[Builder, list[Any]]:
    """A graph that gives its one input back, called with all of these inputs; one of them may be given by nobody."""
    graph = VkGraph("0", (), (VkTensor("float32", shape, -1, -1, None),), (0,), (0,), ())
    given = [Tensor(f"input {place}", "float32", size) for place, size in enumerate(inputs)]
    out = Tensor("out", "float32", shape)
    builder: Any = Builder(None, {})  # type: ignore[arg-type]
    known = {value for place, value in enumerate(given) if place != unknown}
    InlinedDelegate(builder, graph, "", True, AtBounds()).call([*given, out], known, "instruction 0")
    return builder, given


class Outer:
    """A program of two inputs whose sizes are numbers that a delegate is called with; it reads some of them."""

    def __init__(self, rows: int, edges: int) -> None:
        self.builder: Any = Builder(None, {})  # type: ignore[arg-type]
        self.x, self.y = (
            self.builder.keep(Tensor(*each)) for each in (("x", "float32", (rows, 4)), ("y", "float32", (edges, 2)))
        )
        self.numbers = [self.size(self.x), self.size(self.y)]

    def size(self, of: Tensor) -> SymInt:
        number = self.builder.keep(SymInt(f"rows of {of.name}"))
        self.builder.node(ops.OPS["sym_size.int"], f"size of {of.name}", (of, 0, number))
        return number

    def call(self, graph: VkGraph, *inputs: Any) -> Graph:
        out = self.builder.keep(Tensor("out", "float32", graph.values[graph.output_ids[0]].shape))
        known = {self.x, self.y, *self.numbers}
        InlinedDelegate(self.builder, graph, "", True, AtBounds()).call([*inputs, out], known, "instruction 2")
        assert self.builder.problems == [] or pytest.fail(self.builder.problems[0].reason)
        return Graph("outer", tuple(self.builder.nodes), tuple(self.builder.values), (self.x, self.y), (out,))


def filled(bound: int) -> VkGraph:
    """A delegate that reads one number: a column of as many ones."""
    values = (VkSymInt(0), 1, ValueList((0, 1)), 1.0, None, VkTensor("float32", (bound, 1), -1, -1, None))
    call = OperatorCall(0, "aten.full.default", (2, 3, 4, 4, 4, 4, 5))
    return VkGraph("0", (call,), values, (0,), (5,), ())


def results(graph: Graph, *sizes: tuple[int, int]) -> list[int]:
    executor = executor_of(graph, open_device())
    found = [
        len(executor.execute([np.zeros((rows, 4), np.float32), np.zeros((edges, 2), np.float32)])[0])
        for rows, edges in sizes
    ]
    executor.close()
    return found


@pytest.mark.parametrize(("bound", "wanted"), [(7, [7, 3, 7]), (12, [12, 11, 2])])
def test_the_number_is_the_one_whose_bound_the_result_has(bound: int, wanted: list[int]) -> None:
    outer = Outer(7, 12)
    assert results(outer.call(filled(bound), *outer.numbers), (7, 12), (3, 11), (7, 2)) == wanted


def test_numbers_of_one_bound_are_read_where_they_are_one_number() -> None:
    outer = Outer(9, 9)
    graph = outer.call(filled(9), *outer.numbers)
    assert results(graph, (9, 9), (1, 1), (4, 4), (9, 9)) == [9, 1, 4, 9]
    with pytest.raises(ShapeError, match=r"which of the numbers \(3, 4\) is read here, and they differ at this call"):
        results(graph, (4, 4), (3, 4))


def test_a_number_under_which_an_operator_fails_is_not_the_one() -> None:
    """A view of x by one of two numbers of no known bound: only the rows of x make one of it."""
    outer = Outer(6, 9)
    numbers = []
    for number in outer.numbers:
        numbers.append(outer.builder.keep(SymInt(f"twice the {number.name}")))
        outer.builder.node(ops.OPS["mul"], f"twice the {number.name}", (number, 2, numbers[-1]))
    outer.numbers += numbers
    values = (
        VkTensor("float32", (6, 4), -1, -1, None), VkSymInt(0), 2, ValueList((1, 2)),
        VkTensor("float32", (12, 2), -1, -1, None),
    )  # fmt: skip
    view = VkGraph("0", (OperatorCall(0, "aten.view_copy.default", (0, 3, 4)),), values, (0, 1), (4,), ())
    assert results(outer.call(view, outer.x, *numbers), (6, 9), (2, 9), (6, 1), (1, 3)) == [12, 4, 12, 2]


@pytest.mark.parametrize("place", [0, 1])
def test_a_dtype_tells_tensors_of_one_shape(place: int) -> None:
    graph = VkGraph("0", (), (VkTensor("int32", (4, 3), -1, -1, "int32"),), (0,), (0,), ())
    given = [Tensor(f"input {each}", "int64" if each == place else "float32", (4, 3)) for each in range(2)]
    builder: Any = Builder(None, {})  # type: ignore[arg-type]
    out = Tensor("out", "int64", (4, 3))
    InlinedDelegate(builder, graph, "", True, AtBounds()).call([*given, out], set(given), "instruction 0")
    assert (builder.nodes[0].args[0], builder.problems) == (given[place], [])


@pytest.mark.parametrize("place", range(3))
def test_the_input_that_is_read_is_found_by_its_shape(place: int) -> None:
    inputs = [(4, 3)] * 3
    inputs[place] = (5, 3)
    builder, given = called(tuple(inputs), (5, 3))
    (node,) = builder.nodes
    assert (node.name, node.args[0], builder.problems) == ("liveshape.move", given[place], [])


@pytest.mark.parametrize(
    ("inputs", "shape", "unknown"),
    [
        (((4, 3), (4, 3)), (4, 3), -1),  # two that fit
        (((4, 3), (5, 3)), (6, 3), -1),  # none that fits
        (((4, 3), (5, 3)), (4, 3), 1),  # what would be left out may be an output
    ],
)
def test_what_the_file_does_not_say_is_refused(inputs: Any, shape: Any, unknown: int) -> None:
    builder, _ = called(inputs, shape, unknown)
    (problem,) = builder.problems
    if inputs[0] == inputs[1]:
        named = "input 0 (float32 (4, 3)), input 1 (float32 (4, 3))"
        assert f"does not say which of these is input 0 of its graph: {named}" in problem.reason
    assert "called with 3 arguments, its graph has 1 inputs and 1 outputs, and " in problem.reason
    assert "and and" not in problem.reason
