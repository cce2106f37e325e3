"""Sliding-window and causal masks by the operators that compute them from positions.

Those that mask nothing, of a window at least as long as the context, are removed: they cost a tensor of queries times
keys. The others are told apart from any other mask by their window.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.traits import Role
from liveshape.llm.program.token_graph import is_position_of
from liveshape.lower.pattern_operators import AND, ARANGE, AT_LEAST, LESS_THAN, SUB, VIEW
from liveshape.lower.rewriting import renamed, without_dead_nodes


def without_windows(graph: Graph, tokens: Tensor, position: Tensor, context: int) -> Graph:
    """The same graph without the sliding-window masks that are all true at positions below `context`.

    Example: `without_windows(graph, tokens, position, 2048)`.
    """
    if graph.controls:
        return graph
    distances = Distances(graph, tokens, position)
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
    return without_dead_nodes(replace(graph, outputs=renamed(graph.outputs, names)), nodes)


class Distances:
    """Recognizes tensors of query-key distances, and masks of these, by the operators that compute them."""

    def __init__(self, graph: Graph, tokens: Tensor, position: Tensor) -> None:
        self._tokens, self._is_position = tokens, is_position_of(graph, position)
        self._makers = {value: graph.nodes[writers[0]] for value, writers in graph.writers.items() if len(writers) == 1}

    def window_of(self, mask: Any, causal: bool) -> int | None:
        """The window of a mask (0: none) that hides exactly what lies before it, and what comes later if `causal`.

        None for any other mask.
        """
        node = self._makers.get(mask)
        if node is None:
            return None
        if node.name == AND and causal:
            parts = [self._makers.get(part) for part in node.args[:2]]
            windows = [part for part in parts if part is not None and self._is_window(part)]
            later = [part for part in parts if part is not None and self._hides_later(part)]
            return windows[0].args[1] if len(windows) == len(later) == 1 else None
        if causal:
            return 0 if self._hides_later(node) else None
        return node.args[1] if self._is_window(node) else None

    def below_context(self, value: Any) -> bool:
        """Whether every element is below the sequence length."""
        node = self._makers.get(value)
        if node is None:
            return False
        if node.name == SUB:
            return node.args[2] == 1 and self.below_context(node.args[0]) and self._counted(node.args[1], 0)
        return self.below_context(node.args[0]) if node.name == VIEW else self._counted(value)

    def is_positions(self, node: Node) -> bool:
        """Whether a node counts the positions of the call's tokens."""
        return (
            node.name == ARANGE and self._is_position(node.args[0]) and node.args[2] == 1 and self.is_end(node.args[1])
        )

    def is_end(self, value: Any) -> bool:
        """Whether a scalar is the position of the call plus its number of tokens."""
        node = self._makers.get(value) if isinstance(value, SymInt) else None
        if node is None or node.traits.role is not Role.SUM:
            return False
        one, other = node.args[:2]
        return any(self._is_position(start) and self.is_count(count) for start, count in ((one, other), (other, one)))

    def is_count(self, value: Any) -> bool:
        """Whether a scalar is the number of tokens of the call."""
        node = self._makers.get(value) if isinstance(value, SymInt) else None
        return node is not None and node.traits.role is Role.SIZE and node.args[:2] == (self._tokens, 1)

    def _is_window(self, node: Node) -> bool:
        return node.name == LESS_THAN and isinstance(node.args[1], int) and node.args[1] > 0 and self._far(node.args[0])

    def _hides_later(self, node: Node) -> bool:
        return node.name == AT_LEAST and node.args[1] == 0 and self._far(node.args[0])

    def _far(self, value: Any) -> bool:
        """Whether a tensor [S, keys] has the position of each query less that of each key."""
        node = self._makers.get(value)
        if node is None or node.name != SUB or node.args[2] != 1:
            return False
        column = self._makers.get(node.args[0])
        if column is None or column.name != VIEW or tuple(column.args[1][1:]) != (1,):
            return False
        queries = self._makers.get(column.args[0])
        return queries is not None and self.is_positions(queries) and self._counted(node.args[1], 0)

    def _counted(self, value: Any, start: int | None = None) -> bool:
        """Whether a tensor is an arange with step 1 up to the last position of the call."""
        node = self._makers.get(value)
        if node is None or node.name != ARANGE:
            return False
        begin, end, step = node.args[:3]
        return step == 1 and (begin == start or start is None) and self.is_end(end)
