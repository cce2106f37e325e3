"""A graph with some of its nodes replaced or removed: indices are renumbered, jumps keep their targets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from liveshape.graph import Graph, Node, Value


def rewritten(graph: Graph, rows: Sequence[tuple[int, Node]], made: Sequence[Value]) -> Graph:
    """The same program with other nodes: each row has the index that its node, or the one it stands for, had before."""
    before = [index for index, _ in rows]
    nodes = []
    for place, (_, node) in enumerate(rows):
        if node.control:
            condition, target, out = node.args
            node = replace(node, args=(condition, bisect_left(before, target), out))
        nodes.append(replace(node, index=place))
    return replace(graph, nodes=tuple(nodes), values=(*graph.values, *made))


def renamed(argument: Any, names: Mapping[Value, Value]) -> Any:
    """An argument with its values replaced."""
    if isinstance(argument, tuple):
        return tuple(renamed(item, names) for item in argument)
    return names.get(argument, argument) if isinstance(argument, Value) else argument
