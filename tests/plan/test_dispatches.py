"""How many dispatches a layer of a Llama takes, as the exporter writes it: a count that no machine changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.graph import Limits
from liveshape.lower.activations import with_activations
from liveshape.lower.lowering import simplified
from liveshape.plan.compiling import compile
from liveshape.plan.plan_state import PlanState
from liveshape.run.executor import Executor
from liveshape.tools.measuring.random_llamas import Llama, Shape, llama_graph
from tests.support.chains import Chain
from tests.support.paper import PaperDevice
from tests.support.spelled import Kind, Spelled

EIGHT = Limits(max_workgroup_bytes=32768)
MORE = replace(EIGHT, max_bindings=9)
SOFTWARE = replace(MORE, max_cooperating_threads=8)


class SpelledLlama(Llama):
    """A Llama whose layers have weights of another kind, as a file spells them out."""

    def __init__(self, shape: Shape, kind: Kind) -> None:
        super().__init__(shape)
        self.kind, self.random = kind, np.random.default_rng(0)
        self.spelled: Spelled | None = None

    def linear(self, x: Any, columns: int, layer: str = "") -> Any:
        if x.rank == 2:  # the head
            return super().linear(x, columns, layer)
        if self.spelled is None:
            chain = Chain()
            chain.nodes, chain.values = self.nodes, self.values
            length = next(node.args[-1] for node in self.nodes if node.name == "sym_size.int")
            self.spelled = Spelled(chain, length)
        return self.spelled.linear(x, self.kind.draw(self.random, columns, x.max_shape[-1]))


def kernels_of(
    layers: int,
    rows: int,
    limits: Limits,
    kind: Kind | None = None,
    activations: str = "float32",
    mix: str | None = None,
) -> Counter[str]:
    """The kernels of a call with so many tokens, in a context that attention does not split."""
    shape = Shape(layers, 64, 96, 4, 2, 16, 128, 32, 128, 256, mix)
    graph = llama_graph(shape, limits) if kind is None else simplified(SpelledLlama(shape, kind).graph(), limits)
    graph = with_activations(graph, activations)
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


@pytest.mark.parametrize(("rows", "expected"), [(1, (5, 6, 7)), (2, (8, 9, 8)), (8, (8, 9, 8)), (64, (8, 9, 8))])
def test_rows_become_bytes_where_they_are_made(rows: int, expected: tuple[int, ...]) -> None:
    """But for one row, what attention gives is rounded in a dispatch of its own, and nothing else is."""
    for limits, count in zip((MORE, EIGHT, SOFTWARE), expected, strict=True):
        more, fewer = (kernels_of(layers, rows, limits, activations="int8") for layers in (3, 2))
        assert (more - fewer).total() == count, more - fewer
        assert (more - fewer)["quantization/quantize_rows"] == (rows > 1)


@pytest.mark.parametrize(("rows", "more"), [(32, 0), (33, 1), (64, 1)])
def test_a_tile_that_little_memory_does_not_hold_takes_one_more(rows: int, more: int) -> None:
    """That of a gated unit whose epilogue makes the bytes."""
    little = replace(MORE, max_workgroup_bytes=16384)
    counts = [kernels_of(3, rows, limits, activations="int8").total() for limits in (MORE, little)]
    assert counts[1] == counts[0] + 3 * more


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("kind", [Kind(minima=True, group=32), Kind(8, group=32)], ids=["minima", "bytes"])
def test_weights_of_other_kinds_take_no_more(kind: Kind, rows: int) -> None:
    for limits in (MORE, EIGHT, SOFTWARE):
        found, plain = kernels_of(2, rows, limits, kind), kernels_of(2, rows, limits)
        assert found.total() == plain.total(), (found - plain, plain - found)


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("activations", ["float32", "int8"])
@pytest.mark.parametrize(("mix", "more"), [("q8_0", 0), ("q4_k_m", 1)])
def test_formats_of_gguf_files_take_no_more(mix: str, more: int, activations: str, rows: int) -> None:
    """But for a layer whose values have more bits than queries and keys: of three layers of Q4_K_M, one."""
    for limits in (MORE, EIGHT, SOFTWARE):
        found, plain = (kernels_of(3, rows, limits, None, activations, each) for each in (mix, None))
        assert found.total() == plain.total() + more, (found - plain, plain - found)


def test_a_thread_does_a_run_where_threads_are_few() -> None:
    """A workgroup costs more there than what its threads do once; nothing of it is in the text of other devices."""
    chain = Chain()
    x, statistic = chain.input((1, 8, 5000)), chain.input((8,))
    outputs = tuple(chain.tensor(shape) for shape in (x.max_shape, (0,), (0,)))
    chain.node("aten._native_batch_norm_legit_no_training.default", x, *[statistic] * 4, 0.1, 1e-5, outputs)
    threads, texts = [], []
    for limits in (Limits(), Limits(max_cooperating_threads=4)):
        live = PlanState(compile(chain.graph(outputs[0]), limits))
        ((variant, _, _, grid),) = live.steps(live.nodes[0], lambda node, request: 0)
        threads.append(variant.group_size * grid[0])
        texts.append(variant.source)
    assert threads == [157 * 64, 10 * 64], "a thread for each of 10,000 vectors, or for 16"
    assert ["+= WG) {" in text for text in texts] == [False, True]
