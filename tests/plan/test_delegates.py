"""Arguments of a delegate's call that its graph does not have. No GPU."""

from __future__ import annotations

from typing import Any

import pytest

from liveshape.formats import VkGraph, VkTensor
from liveshape.graph import Tensor
from liveshape.lower.building import Builder
from liveshape.lower.delegates import InlinedDelegate


def called(inputs: tuple[tuple[int, ...], ...], shape: tuple[int, ...], unknown: int = -1) -> tuple[Builder, list[Any]]:
    """A graph that gives its one input back, called with all of these inputs; one of them may be given by nobody."""
    graph = VkGraph("0", (), (VkTensor("float32", shape, -1, -1, None),), (0,), (0,), ())
    given = [Tensor(f"input {place}", "float32", size) for place, size in enumerate(inputs)]
    out = Tensor("out", "float32", shape)
    builder: Any = Builder(None, {})  # type: ignore[arg-type]
    known = {value for place, value in enumerate(given) if place != unknown}
    InlinedDelegate(builder, graph, "", True).call([*given, out], known, "instruction 0")
    return builder, given


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
    assert "called with 3 arguments, its graph has 1 inputs and 1 outputs" in problem.reason
