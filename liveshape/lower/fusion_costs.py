"""Which fusions pay: passes say what would be dispatched both ways, `kernels/roofline.py` how long that takes.

Tensors count at their bounds, where what is computed again weighs most: then a graph is the same for all calls. What
both ways have in common may be left out, but for what hides the arithmetic of an expression behind its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from liveshape.graph import Graph, Limits, Node, Tensor
from liveshape.graph.decisions import Decision
from liveshape.graph.elements import prod, storage_bytes
from liveshape.graph.sources import operators_of
from liveshape.kernels.roofline import Cost, operations_of, peaks_of, seconds
from liveshape.ops.pointwise import Pointwise


class FusionCosts:
    """Asked by one pass over a graph for one device; what it said is kept.

    Example: `FusionCosts(device.limits).pays("prologue", nodes, apart, together)`.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self._peaks = limits, peaks_of(limits)
        self._decisions: dict[tuple[Any, ...], Decision] = {}

    def pays(self, fusion: str, nodes: Sequence[Node], apart: Iterable[Cost], together: Iterable[Cost]) -> bool:
        """Whether dispatches `together` take no longer than `apart`."""
        operators = tuple(name for node in nodes for name in operators_of(node))
        decision = Decision(fusion, operators, seconds(apart, self._peaks), seconds(together, self._peaks))
        self._decisions[fusion, *nodes] = decision
        return decision.pays

    def nbytes(self, *values: Any) -> int:
        """Of tensors, at their bounds; each counts once, and other values not at all."""
        tensors = [value for value in dict.fromkeys(values) if isinstance(value, Tensor)]
        return sum(storage_bytes(each.dtype, prod(each.max_shape), self.limits.half) for each in tensors)

    def evaluated(self, made: Pointwise, outs: Sequence[Tensor], times: int = 1, *, stored: bool = True) -> Cost:
        """A dispatch that reads the operands of an expression and computes it for all elements of a result, some
        `times`; the results are `stored` or not."""
        operations = times * operations_of(made.expression) * prod(outs[0].max_shape)
        return Cost(self.nbytes(*made.tensors), self.nbytes(*outs) if stored else 0, operations)

    def noted_on(self, graph: Graph) -> Graph:
        """A graph with what was decided for it."""
        found = tuple(self._decisions.values())
        return replace(graph, decisions=(*graph.decisions, *found)) if found else graph
