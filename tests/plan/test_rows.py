"""The ways of a layer over the rows of a call, as counts that no machine changes: few, each for a stretch of rows,
and none that takes many more dispatches than its neighbour. No GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby, pairwise

import pytest

from liveshape.device.protocol import Clock, Command
from liveshape.graph import Limits
from liveshape.graph.activation_kinds import ACTIVATIONS
from liveshape.llm.engine.engine import TOKEN, Engine
from liveshape.llm.program.token_graph import token_graph
from liveshape.llm.sampling_settings import Sampling
from liveshape.lower.activations import with_activations
from liveshape.plan.layers import layers_of
from liveshape.tools.measuring.random_llamas import SHAPES, llama_graph
from tests.support.paper import PaperDevice

MOST_ROWS = 130  # more than a tile of any kernel has
SHAPE = replace(SHAPES["tiny"], max_seq_len=MOST_ROWS, max_context=1024)
DEEP = 512  # a context that one row reads in parts

# Dispatches of a layer, up to so many rows.
MOST_DISPATCHES = {
    "float32": {1: 6, 8: 8, MOST_ROWS: 10},
    "float16": {1: 6, 8: 8, MOST_ROWS: 10},
    "int8": {1: 6, 8: 12, MOST_ROWS: 14},
}
MOST_ROUTES = 4


@cache
def routes(activations: str, depth: int) -> list[tuple[str, ...]]:
    """The kernels of a layer in the middle of a model, for 1 row, 2 rows and so on."""
    device = PaperDevice(Limits(max_cooperating_threads=256))
    graph = with_activations(llama_graph(SHAPE, device.limits), activations)
    engine = Engine(token_graph(graph, {}), device)
    layers = layers_of(engine.executor.plan)
    assert layers is not None
    found = []
    for rows in range(1, MOST_ROWS + 1):
        noted: list[Sequence[Command]] = []
        with device.watched(Clock.NOTHING, noted.append):
            engine.run([1] * rows, depth, Sampling(), [TOKEN])
        commands = [command for each in noted for command in each if layers[command.origin[0]] == "layer 0"]
        found.append(tuple(command.label.rpartition(" ")[2] for command in commands))
    return found


everywhere = pytest.mark.parametrize("depth", [0, DEEP])
of_all = pytest.mark.parametrize("activations", ACTIVATIONS)


@of_all
@everywhere
def test_a_layer_takes_few_dispatches(activations: str, depth: int) -> None:
    for rows, kernels in enumerate(routes(activations, depth), 1):
        most = next(most for bound, most in MOST_DISPATCHES[activations].items() if rows <= bound)
        assert 0 < len(kernels) <= most, f"{rows} rows: {kernels}"


@of_all
@everywhere
def test_no_row_count_takes_twice_the_dispatches_of_its_neighbour(activations: str, depth: int) -> None:
    for rows, (here, there) in enumerate(pairwise(routes(activations, depth)), 1):
        few, many = sorted((len(here), len(there)))
        assert many <= 2 * few, f"{rows} rows take {here}, {rows + 1} rows take {there}"


@of_all
@everywhere
def test_a_route_that_ended_does_not_come_back(activations: str, depth: int) -> None:
    stretches = [kernels for kernels, _ in groupby(routes(activations, depth))]
    assert len(stretches) == len(set(stretches)) <= MOST_ROUTES


@of_all
def test_many_rows_have_one_route_at_every_depth(activations: str) -> None:
    """But for a long context, which tiles of few heads share."""

    def alike(depth: int) -> list[list[str]]:
        return [
            [name for name in kernels if name != "attention/combine_splits"]
            for kernels in routes(activations, depth)[64:]
        ]

    assert alike(0) == alike(DEEP)
