"""Def-use chains of a graph: who produces and consumes a value, and which reordering is free of hazards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from liveshape.graph import Graph, Node, Tensor, Value
from liveshape.lower.live_sizes import LiveSizes
from liveshape.lower.pattern_operators import VIEW


class DefUse:
    """The producer and the consumers of every value, and what rewrites ask about them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producer = {value: node for node in graph.nodes for value in node.written}
        self.writes = Counter(value for node in graph.nodes for value in node.written)
        self.consumers: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for value in dict.fromkeys(node.inputs):
                self.consumers.setdefault(value, []).append(node)
        self._outputs = {value for value in graph.outputs if isinstance(value, Value)}
        self._regions = graph.regions()

    @cached_property
    def sizes(self) -> LiveSizes:
        """The live sizes of its tensors, as products of what is not known."""
        return LiveSizes(self.graph)

    @cached_property
    def met_sizes(self) -> LiveSizes:
        """The same, where sizes that meet in an operator are taken to be equal."""
        return LiveSizes(self.graph, met=True)

    def in_basic_block(self, nodes: Sequence[Node]) -> bool:
        """Whether the nodes lie in one basic block: no jump leads into or out of it between them."""
        return len({self._regions[node.index] for node in nodes}) == 1

    def may_move(self, nodes: Sequence[Node], *read: Any) -> bool:
        """Whether one of the nodes may read these values in the place of another one: in one basic block, unchanged."""
        return self.in_basic_block(nodes) and all(self.unchanged(value, nodes) for value in read)

    def only_consumer(self, value: Any) -> Node | None:
        """The one node that reads a value, if nothing else does."""
        consumers = self.consumers.get(value, [])
        return consumers[0] if len(consumers) == 1 and value not in self._outputs else None

    def used_only_by(self, nodes: Sequence[Node], value: Any) -> bool:
        """Whether nothing but these nodes reads a value."""
        return value not in self._outputs and all(node in nodes for node in self.consumers.get(value, []))

    def private_constant(self, node: Node, tensor: Tensor) -> bool:
        """Whether a tensor is a constant, of whole words, that no other node reads."""
        data = tensor.constant
        in_words = data is not None and len(data) > 0 and len(data) % 4 == 0
        return in_words and not self.writes[tensor] and self.used_only_by((node,), tensor)

    def unchanged(self, value: Any, nodes: Sequence[Node]) -> bool:
        """Whether nothing writes a value from the first to the last of some nodes (no WAR or RAW hazard)."""
        indices = [node.index for node in nodes]
        return all(value not in node.written for node in self.graph.nodes[min(indices) : max(indices)])

    def single_assignment(self, *values: Any) -> bool:
        """Whether tensors are written once, and read only after that: their producer may move earlier."""
        return all(
            isinstance(value, Tensor)
            and self.writes[value] == 1
            and value not in self.graph.given
            and all(consumer.index > self.producer[value].index for consumer in self.consumers.get(value, []))
            for value in values
        )

    def viewed(self, tensor: Tensor) -> Tensor:
        """What a tensor is a view of, in its own shape; else the tensor.

        The last size of a linear layer is fixed, and so are sizes of 1. If they are in the view, and one more is left,
        that one is the same, since a view has as many elements as its source.
        """
        view = self.producer.get(tensor)
        if view is None or view.name != VIEW:
            return tensor
        source, sizes, _ = view.args
        layer, shape = self.producer.get(source), source.max_shape
        live = {place for place, size in enumerate(shape[:-1]) if size > 1}
        given = {place for place, (size, most) in enumerate(zip(sizes, shape, strict=False)) if size != most}
        linear = layer is not None and _is_linear(layer) and self.writes[source] == 1
        return source if linear and shape == tensor.max_shape and given <= live and len(live) < 2 else tensor


def _is_linear(node: Node) -> bool:
    """Whether a node gives its first argument with another last size, which is fixed."""
    return node.traits.product is not None and node.traits.product.linear
