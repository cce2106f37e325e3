"""A graph with some of its nodes replaced or removed: indices are renumbered, jumps keep their targets."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from liveshape.graph import Graph, Node, Value
from liveshape.graph.traits import Role


def rewritten(graph: Graph, rows: Sequence[tuple[int, Node]], made: Sequence[Value]) -> Graph:
    """The same program with other nodes: each row has the index that its node, or the one it stands for, had before."""
    before = [index for index, _ in rows]
    nodes = []
    for place, (_, node) in enumerate(rows):
        if node.control:
            condition, target, out = node.args
            node = replace(node, args=(condition, bisect_left(before, target), out))
        nodes.append(node.at(place))
    return replace(graph, nodes=tuple(nodes), values=(*graph.values, *made))


def renamed(argument: Any, names: Mapping[Value, Value]) -> Any:
    """An argument with its values replaced."""
    if isinstance(argument, tuple):
        return tuple(renamed(item, names) for item in argument)
    return names.get(argument, argument) if isinstance(argument, Value) else argument


def without_dead_nodes(graph: Graph, nodes: list[Node]) -> Graph:
    """The graph with those of these nodes whose results are read (dead code elimination)."""
    kept: list[Node] = []
    read: set[Value] = {value for value in graph.outputs if isinstance(value, Value)}
    for node in reversed(nodes):
        if node.mutates or not node.written or any(value in read for value in node.written):
            kept.append(node)
            read.update(node.inputs)
    made = rewritten(graph, [(node.index, node) for node in reversed(kept)], ())
    used = {value for node in made.nodes for value in (*node.inputs, *node.outputs)} | read | made.given
    return replace(made, values=tuple(value for value in made.values if value in used))


def without_orphans(graph: Graph, removed: Iterable[Node]) -> Graph:
    """The graph without what only removed nodes read, and what only that read."""
    outputs = {value for value in graph.outputs if isinstance(value, Value)} | graph.persistent
    readers = Counter(value for node in graph.nodes for value in {*node.inputs})
    writers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.written:
            writers.setdefault(value, []).append(node)
    waiting = [value for node in removed for value in node.inputs]
    gone: set[Node] = set()
    while waiting:
        for node in writers.get(waiting.pop(), ()):
            kept = node.mutates or node.host or node.control or node.traits.role is Role.DRAW
            if kept or node in gone or any(readers[value] or value in outputs for value in node.written):
                continue
            gone.add(node)
            readers.subtract({*node.inputs})
            waiting += node.inputs
    return rewritten(graph, [(node.index, node) for node in graph.nodes if node not in gone], ()) if gone else graph
