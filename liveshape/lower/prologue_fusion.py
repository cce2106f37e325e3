"""Expressions as prologues: what nobody but a norm, a softmax or a reduction reads is computed where that loads it.

By traits and costs: an operator says which tensor it `loads`, and how often an element of it. An expression that the
epilogue of what computes one of its operands may store stays there, since it costs nothing at all in that place.
"""

from __future__ import annotations

from typing import Any

from liveshape import ops
from liveshape.graph import Graph, Limits, Node, Tensor
from liveshape.graph.elements import by_itself
from liveshape.kernels.roofline import Cost
from liveshape.lower.def_use import DefUse
from liveshape.lower.fusion_costs import FusionCosts
from liveshape.lower.pattern import fit
from liveshape.lower.pattern_operators import LOADED
from liveshape.lower.pointwise_fusion import expression_of, is_epilogue_of, is_free, is_private, node_of, with_nodes
from liveshape.ops.composed import Anchor, Loading, Place, with_places

_LOADED = ops.OPS[LOADED]


def with_prologues(graph: Graph, limits: Limits) -> Graph:
    """The same program with expressions in the loads of what reads them.

    Example: `with_prologues(graph, device.limits)`.
    """
    uses, costs = DefUse(graph), FusionCosts(limits)
    replaced: dict[Node, Node] = {}
    gone: set[Node] = set()
    for node in graph.nodes:
        value = node.named[node.traits.loads] if node.traits.loads else None
        producer = uses.producer.get(value) if isinstance(value, Tensor) else None
        if producer is not None and node.args.count(value) == 1:
            made = _prologue(node, value, producer, uses, limits, costs)
            if made is not None:
                replaced[node] = made
                gone.add(producer)
    return with_nodes(graph, replaced, gone, costs)


def _prologue(node: Node, value: Any, producer: Node, uses: DefUse, limits: Limits, costs: FusionCosts) -> Node | None:
    """A node that loads the expression of a value; None where it may not."""
    made = expression_of(producer)
    if made is None or not made.tensors or is_free(producer) or not is_private(uses, value, (node,)):
        return None
    if any(is_epilogue_of(uses, each, producer) for each in made.tensors):
        return None
    between = (producer, node)
    if not uses.may_move(between, *made.tensors, *made.numbers):
        return None
    out = node.args[-1]
    if not isinstance(out, Tensor) or not all(by_itself(each.dtype) for each in (*made.tensors, value)):
        return None
    if out in made.tensors or not fit((*made.tensors, out), limits):
        return None
    times = node.traits.load_times
    apart = (costs.evaluated(made, (value,)), Cost(costs.nbytes(value), costs.nbytes(out)))
    together = costs.evaluated(made, (value,), times, stored=False) + Cost(written=costs.nbytes(out))
    if not costs.pays("prologue", between, apart, (together,)):
        return None
    values: list[Any] = []
    rest = tuple(None if argument is value else argument for argument in node.args[:-1])
    placed = list(with_places(rest, values))
    placed[node.args.index(value)] = Place(len(values))
    loading = Loading(Anchor(node.name, tuple(placed), out.dtype, out.max_shape), made.expression, value.max_shape)
    return node_of(_LOADED, node, between, (loading, tuple(values), made.tensors, made.numbers, out))
