"""Remove sliding-window masks that mask nothing: those of a window at least as long as the context.

They cost a tensor of queries times keys.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.traits import Role
from liveshape.lower.pattern_operators import AND, ARANGE, LESS_THAN, SUB, VIEW
from liveshape.lower.rewriting import renamed, rewritten


def without_windows(graph: Graph, tokens: Tensor, position: Tensor, context: int) -> Graph:
    """The same graph without the sliding-window masks that are all true at positions below `context`.

    Example: `without_windows(graph, tokens, position, 2048)`.
    """
    if graph.controls:
        return graph
    distances = _Distances(graph, tokens, position)
    seen = {
        node.args[-1]
        for node in graph.nodes
        if node.name == LESS_THAN and distances.below_context(node.args[0]) and context <= node.args[1]
    }
    if not seen:
        return graph
    names: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        args = renamed(node.args, names)
        if node.name == AND and any(value in seen for value in args[:2]):
            names[args[-1]] = next((value for value in args[:2] if value not in seen), args[0])
            continue
        if node.traits.role is Role.ATTENTION:
            args = tuple(None if value in seen else value for value in args)
        nodes.append(replace(node, args=args))
    return _without_dead_nodes(replace(graph, outputs=renamed(graph.outputs, names)), nodes)


class _Distances:
    """Recognizes tensors of query-key distances by the operators that compute them."""

    def __init__(self, graph: Graph, tokens: Tensor, position: Tensor) -> None:
        self._tokens, self._position = tokens, position
        self._makers = {value: graph.nodes[writers[0]] for value, writers in graph.writers.items() if len(writers) == 1}

    def below_context(self, value: Any) -> bool:
        """Whether every element is below the sequence length."""
        node = self._makers.get(value)
        if node is None:
            return False
        if node.name == SUB:
            return node.args[2] == 1 and self.below_context(node.args[0]) and self._counted(node.args[1], 0)
        return self.below_context(node.args[0]) if node.name == VIEW else self._counted(value)

    def _counted(self, value: Any, start: int | None = None) -> bool:
        """Whether a tensor is an arange with step 1 up to the last position of the call."""
        node = self._makers.get(value)
        if node is None or node.name != ARANGE:
            return False
        begin, end, step = node.args[:3]
        return step == 1 and (begin == start or start is None) and self._is_end(end)

    def _is_end(self, value: Any) -> bool:
        """Whether a scalar is the position of the call plus its number of tokens."""
        node = self._makers.get(value) if isinstance(value, SymInt) else None
        if node is None or node.traits.role is not Role.SUM:
            return False
        terms = [self._makers.get(term) for term in node.args[:2]]
        wanted = (Role.SELECT, self._position, 0, 0), (Role.SIZE, self._tokens, 1)
        given = [None if term is None else (term.traits.role, *term.args[:-1]) for term in terms]
        return all(term in given for term in wanted)


def _without_dead_nodes(graph: Graph, nodes: list[Node]) -> Graph:
    """Dead code elimination: drop nodes whose results are not read any more."""
    kept: list[Node] = []
    read: set[Value] = {value for value in graph.outputs if isinstance(value, Value)}
    for node in reversed(nodes):
        if node.mutates or not node.written or any(value in read for value in node.written):
            kept.append(node)
            read.update(node.inputs)
    made = rewritten(graph, [(node.index, node) for node in reversed(kept)], ())
    used = {value for node in made.nodes for value in (*node.inputs, *node.outputs)} | read | made.given
    return replace(made, values=tuple(value for value in made.values if value in used))
