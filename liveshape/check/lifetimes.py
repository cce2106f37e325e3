"""What a check holds at once: the values that something still needs, and the executors that ran last, so that a program
whose values together are larger than any memory is checked node by node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from liveshape.check.single_node import SingleNode
from liveshape.graph import Graph, Node, Tensor, Value

MOST_VALUES = 1 << 30  # bytes on the host, beyond those that are needed
MOST_EXECUTORS = 2 << 30  # bytes of single nodes that are kept for the next call


class Schedule:
    """After which nodes of the unfused program fused ones can be checked, and values are needed no more.

    In a loop nothing is: a fused node is checked on what is known at the end.

    Example: `Schedule(graph, fused.nodes).fused_after[3]` are places in `fused.nodes`.
    """

    def __init__(self, graph: Graph, fused: Sequence[Node]) -> None:
        count = len(graph.nodes)
        self.fused_after: list[list[int]] = [[] for _ in range(count)]
        self.dead_after: list[list[Value]] = [[] for _ in range(count)]
        writes = {value: node.index for node in graph.nodes for value in node.written}
        uses = {value: node.index for node in graph.nodes for value in (*node.inputs, *node.written)}
        for place, node in enumerate(fused):
            values = (*node.inputs, *node.written)
            # State is written more than once: what is known of it then is what the whole program leaves.
            last = count - 1 if graph.controls else max([writes.get(value, 0) for value in values], default=0)
            self.fused_after[last].append(place)
            for value in node.written:
                writes.setdefault(value, last)  # what the unfused program does not have is known from then on
            uses.update({value: max(last, uses.get(value, 0)) for value in values})
        if graph.controls:
            return
        always = {value for value in (*graph.inputs, *graph.outputs) if isinstance(value, Value)} | graph.persistent
        for value, last in uses.items():
            if value not in always and not (isinstance(value, Tensor) and value.constant is not None):
                self.dead_after[last].append(value)


class HeldValues:
    """Drops what is dead from the values of a call, the oldest first, where there is too much of it.

    Example: `held.count([out]); held.dead([x])`.
    """

    def __init__(self, known: dict[Value, Any]) -> None:
        self._known, self._nbytes = known, 0
        self._dead: deque[Value] = deque()

    def count(self, values: Sequence[Value]) -> None:
        """Values that are known now."""
        self._nbytes += sum(getattr(self._known.get(value), "nbytes", 0) for value in values)

    def dead(self, values: Sequence[Value]) -> None:
        """Values that nothing needs any more."""
        self._dead += values
        while self._dead and self._nbytes > MOST_VALUES:
            self._nbytes -= getattr(self._known.pop(self._dead.popleft(), None), "nbytes", 0)


class KeptExecutors:
    """Closes the nodes that ran longest ago where those that are open take too much.

    Example: `kept.ran(single)`.
    """

    def __init__(self) -> None:
        self._open: dict[SingleNode, int] = {}  # bytes of each, that which ran last at the end

    def ran(self, single: SingleNode) -> None:
        """A node ran, and stays open."""
        self._open.pop(single, None)
        self._open[single] = single.nbytes
        while len(self._open) > 1 and sum(self._open.values()) > MOST_EXECUTORS:
            first = next(iter(self._open))
            del self._open[first]
            first.close()
