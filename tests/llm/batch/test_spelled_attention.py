"""Attention and masks that are spelled out are recognized as what they compute, and nothing else is taken for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Node, Tensor
from liveshape.llm.program.batched_graph import BatchBounds, BatchTables, batched
from liveshape.llm.program.token_graph import constants_of, signature
from liveshape.lower.pattern_operators import LESS_THAN, SOFTMAX, WHERE
from liveshape.lower.rewriting import renamed
from liveshape.ops.paged_attention import paged_attention
from liveshape.program.compile_target import CompileTarget
from liveshape.program.program import load_program
from tests.llm.batch.test_families import exported

BOUNDS = BatchBounds(24, 4, 32, 16, 64)


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Graph, dict[str, Any]]]:
    @cache
    def made(name: str) -> tuple[Graph, dict[str, Any]]:
        path: Path = tmp_path_factory.mktemp(name)
        found: list[Graph] = []
        with load_program(CompileTarget(None), exported(name, path)) as program:
            program.graph("forward", lambda graph: found.append(graph) or graph)
            return found[0], constants_of(program)

    return made


def many(graph: Graph, constants: dict[str, Any]) -> Graph:
    tokens, position, _ = signature(graph, constants)
    return batched(graph, position, tokens, BOUNDS, BatchTables.of(tokens, BOUNDS))


def masks(graph: Graph) -> list[tuple[int, float, bool]]:
    """Window, soft cap, and whether there are sinks, of each attention."""
    found = [node.named for node in graph.nodes if node.run is paged_attention]
    return [(given["window"], given["softcap"], given["sinks"] is not None) for given in found]


def altered(value: Any) -> list[Any]:
    """A literal with one number of it changed."""
    if isinstance(value, tuple):
        return [(*value[:i], each, *value[i + 1 :]) for i, item in enumerate(value) for each in altered(item)]
    return [not value] if isinstance(value, bool) else [value + 1] if isinstance(value, int) else []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mistral", [(9, 0.0, False)] * 2),
        ("gemma2", [(9, 1.5, False), (0, 1.5, False), (9, 1.5, False)]),
        ("gpt_oss", [(9, 0.0, True), (0, 0.0, True), (9, 0.0, True)]),
    ],
)
def test_only_exact_spellings_are_taken(
    lowered: Callable[[str], tuple[Graph, dict[str, Any]]], name: str, expected: list[tuple[int, float, bool]]
) -> None:
    """With any literal changed of what the rewrite drops, the graph is refused, or has another window."""
    graph, constants = lowered(name)
    made = many(graph, constants)
    assert masks(made) == expected
    kept = {node.label for node in made.nodes}
    first = next(node.label for node in made.nodes if node.run is paged_attention)
    until = next(node.index for node in graph.nodes if node.label == first) + 1
    dropped = [node for node in graph.nodes[:until] if node.label not in kept and isinstance(node.args[-1], Tensor)]
    refused, taken = 0, []
    for node in dropped:
        for place, value in enumerate(node.args[:-1]):
            if node.name == SOFTMAX and place == 2:
                continue  # how its kernel rounds
            for other in altered(value):
                args = (*node.args[:place], other, *node.args[place + 1 :])
                changed = with_node(graph, replace(node, args=args))
                if node.name == LESS_THAN and place == 1:
                    assert masks(many(changed, constants)) == [(window and 10, *rest) for window, *rest in expected]
                    continue
                try:
                    many(changed, constants)
                except UnsupportedError:
                    refused += 1
                else:
                    taken.append(f"{node.label} with {other} in the place of {value}")
    assert taken == []
    assert refused > 3


def with_node(graph: Graph, node: Node) -> Graph:
    return replace(graph, nodes=(*graph.nodes[: node.index], node, *graph.nodes[node.index + 1 :]))


def with_numbers(graph: Graph, node: Node, place: int, number: float) -> Graph:
    """The graph with another constant at a place of a node."""
    before = node.args[place]
    data = memoryview(np.full(before.max_shape, number, before.dtype)).cast("B")
    names = {before: replace(before, constant=data)}
    return replace(
        graph,
        nodes=tuple(replace(each, args=renamed(each.args, names)) for each in graph.nodes),
        values=tuple(renamed(graph.values, names)),
    )


def test_a_mask_that_hides_little_is_refused(lowered: Callable[[str], tuple[Graph, dict[str, Any]]]) -> None:
    graph, constants = lowered("gemma2")
    where = next(node for node in graph.nodes if node.name == WHERE)
    assert masks(many(with_numbers(graph, where, 2, -1e9), constants)) == masks(many(graph, constants))
    with pytest.raises(UnsupportedError, match="reads a cache, and is no attention that is known"):
        many(with_numbers(graph, where, 2, -100.0), constants)
