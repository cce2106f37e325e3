"""How many dispatches a layer of a Llama takes, as the exporter writes it: a count that no machine changes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from liveshape.graph import Limits
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from liveshape.tools.shapes import Shape, llama_graph
from tests.support.paper import PaperDevice

EIGHT, MORE, SOFTWARE = Limits(), Limits(max_bindings=9), Limits(max_bindings=9, max_parts=8)


def kernels_of(layers: int, rows: int, limits: Limits) -> Counter[str]:
    """The kernels of a call with so many tokens, in a context that attention does not split."""
    graph = llama_graph(Shape(layers, 64, 96, 4, 2, 16, 128, 32, 128, 256), limits)
    executor = Executor(compile(graph, limits), PaperDevice(limits))
    executor.execute([np.zeros((1, rows), np.int64), np.zeros(1, np.int64)])
    commands = executor.encoder.commands(executor.live, 0, len(graph.nodes))
    return Counter(command.label.rpartition(" ")[2] for command in commands)


@pytest.mark.parametrize(
    ("limits", "rows", "expected"),
    [(MORE, 1, 5), (MORE, 64, 7), (EIGHT, 1, 6), (EIGHT, 64, 8), (SOFTWARE, 1, 7), (SOFTWARE, 64, 7)],
    ids=["one", "many", "one in eight bindings", "many in eight bindings", "one of few threads", "many of few threads"],
)
def test_dispatches_of_a_layer(limits: Limits, rows: int, expected: int) -> None:
    more, fewer = kernels_of(3, rows, limits), kernels_of(2, rows, limits)
    assert (more - fewer).total() == expected, more - fewer
