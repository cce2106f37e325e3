"""Expressions inside of other operators: in the epilogue of what computes one of their operands, or in the prologue of
what alone reads their result.

By traits and costs: what declares `epilogues` stores its result once; what `loads` a tensor says so, and how often an
element of it. An expression that an epilogue may store is no prologue, since there it costs nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from liveshape.graph import Graph, Limits, Node, Tensor
from liveshape.graph.elements import by_itself
from liveshape.graph.traits import Product
from liveshape.kernels.roofline import Cost
from liveshape.lower.def_use import DefUse
from liveshape.lower.fusion_costs import FusionCosts
from liveshape.lower.pattern import Replacement, fit, with_replacements
from liveshape.lower.pattern_operators import COMPOSED, LOADED, POINTWISE_RESULTS
from liveshape.lower.pointwise_fusion import (
    MAX_RESULTS,
    Fused,
    broadcasts,
    computed,
    fused_of,
    is_epilogue_of,
    is_free,
    is_private,
)
from liveshape.ops.composed import Anchor, Composition, Loading, Place, anchored_operations, with_places
from liveshape.ops.pointwise import Pointwise, with_operands


class _Epilogue(Replacement):
    """A node that multiplies and gathers as what computes its operand does: the ids of the caller are checked."""

    def node(self) -> Node:
        made, anchor = super().node(), self.nodes[0]
        if anchor.traits.product is not None:
            made = replace(made, traits=replace(made.traits, product=Product(anchored_operations)))
        if anchor.gathers is None:
            return made
        ids, table = ((1, made.args[0].anchor.arguments[path[0]].index) for path in anchor.gathers)
        return replace(made, gathers=(ids, table))


def with_prologues(graph: Graph, limits: Limits) -> Graph:
    """The same program with expressions in the loads of what reads them.

    Example: `with_prologues(graph, device.limits)`.
    """
    uses, costs = DefUse(graph), FusionCosts(limits)
    found: list[Replacement] = []
    for node in graph.nodes:
        value = node.named[node.traits.loads] if node.traits.loads else None
        producer = uses.producer.get(value) if isinstance(value, Tensor) else None
        own = None if producer is None or is_free(producer) else fused_of(producer)
        if own is not None and own.outs == (value,) and node.args.count(value) == 1:
            found += _prologue(node, own, uses, costs)
    return costs.noted_on(with_replacements(graph, found))


def _prologue(node: Node, own: Fused, uses: DefUse, costs: FusionCosts) -> Sequence[Replacement]:
    """A node that loads an expression, where nobody else reads its result; nothing where it may not."""
    made, (producer,), (value,), out = own.made, own.nodes, own.outs, node.args[-1]
    between = (producer, node)
    if (
        not made.tensors
        or not is_private(uses, value, (node,))
        or any(is_epilogue_of(uses, each, producer) for each in made.tensors)
        or not uses.may_move(between, *made.tensors, *made.numbers)
        or not isinstance(out, Tensor)
        or not all(by_itself(each.dtype) for each in (*made.tensors, value))
        or out in made.tensors
        or not fit((*made.tensors, out), costs.limits)
    ):
        return ()
    apart = (costs.evaluated(made, (value,)), Cost(costs.nbytes(value), costs.nbytes(out)))
    together = costs.evaluated(made, (value,), node.traits.load_times, stored=False) + Cost(written=costs.nbytes(out))
    if not costs.pays("prologue", between, apart, (together,)):
        return ()
    values: list[Any] = []
    placed = list(with_places(tuple(None if each is value else each for each in node.args[:-1]), values))
    placed[node.args.index(value)] = Place(len(values))
    loading = Loading(Anchor(node.name, tuple(placed), out.dtype, out.max_shape), made.expression, value.max_shape)
    return [Replacement(node, LOADED, between, (loading, tuple(values), made.tensors, made.numbers, out))]


def with_epilogues(graph: Graph, limits: Limits) -> Graph:
    """The same program with expressions in the epilogues of what computes an operand of them: the last of several.

    Example: `with_epilogues(graph, device.limits)`.
    """
    uses, costs = DefUse(graph), FusionCosts(limits)
    taken: list[Replacement] = []
    gone: set[Node] = set()
    for node in graph.nodes:
        several = node.name == POINTWISE_RESULTS
        own = Fused(Pointwise(*node.args[:3]), (node,), node.args[-1]) if several else fused_of(node)
        if own is None or is_free(node):
            continue
        producers = {each: uses.producer[each].index for each in own.made.tensors if each in uses.producer}
        for operand in sorted(own.made.tensors, key=lambda each: -producers.get(each, -1)):
            ways = (_epilogue(own, operand, uses, costs, beside=beside) for beside in (False, True))
            found = next((way for way in ways if way is not None), None)
            if found is not None and gone.isdisjoint(found.nodes) and _pays(found, own, operand, costs):
                taken.append(found)
                gone.update(found.nodes)
                break
    return costs.noted_on(with_replacements(graph, taken))


def _epilogue(own: Fused, operand: Tensor, uses: DefUse, costs: FusionCosts, *, beside: bool) -> Replacement | None:
    """A node that stores an expression in the epilogue of what computes an operand; None where it may not.

    It is in the place of the expression, and behind views, if nothing else reads the operand; one that stores it
    `beside` the operand is in the place of what computed that.
    """
    made, (node,), outs = own
    others = tuple(each for each in made.tensors if each is not operand)
    found = (uses.producer.get(operand), operand, [node]) if beside else computed(uses, operand, node)
    producer, value, readers = found
    dtype = made.expression.operands[made.tensors.index(operand)]
    if producer is None or not producer.traits.epilogues or value.dtype != dtype:
        return None
    between, views = (producer, *readers), readers[:-1]
    hidden = {value, *(view.args[-1] for view in views)}
    inputs = [each for reads in between[:-1] for each in reads.inputs if each not in hidden]
    sizes = uses.sizes.of(operand)
    stored = (*outs, value) if beside else outs
    if beside:
        alike = all(uses.sizes.of(each) == sizes for each in outs)
        allowed = alike and uses.single_assignment(value, *outs) and len(stored) <= MAX_RESULTS
    else:
        alike = all(broadcasts(uses.sizes.of(each), sizes) for each in others)
        # What is read beside a view of it must be there.
        allowed = is_private(uses, value, readers[:1]) and hidden.isdisjoint(others)
        allowed = allowed and operand.max_shape == outs[0].max_shape and (alike or len(outs) == 1)
    moved = (*others, *made.numbers) if beside else inputs
    if not allowed or not uses.may_move(between, *moved) or not {*others, *inputs}.isdisjoint(stored):
        return None
    if not all(by_itself(each.dtype) for each in (value, *others, *outs)) or not fit((*others, *stored), costs.limits):
        return None
    values: list[Any] = []
    anchor, *viewed = (
        Anchor(each.name, with_places(arguments, values), value.dtype, each.args[-1].max_shape)
        for each, arguments in ((producer, producer.args[:-1]), *((view, view.args[1:-1]) for view in views))
    )
    expression = with_operands(made, (operand, *others)).expression
    if beside:
        expression = replace(expression, kept=(*expression.kept, 0))
    args = (Composition(anchor, tuple(viewed), expression, alike), tuple(values), others, made.numbers, stored)
    return _Epilogue(producer if beside else node, COMPOSED, between, args)


def _pays(found: Replacement, own: Fused, operand: Tensor, costs: FusionCosts) -> bool:
    """Whether an epilogue takes no longer than what computes the operand, and then the expression."""
    alone, kept = costs.evaluated(own.made, own.outs), found.place not in own.nodes
    others = [tensor for tensor in own.made.tensors if tensor is not operand]
    together = Cost(costs.nbytes(*others), costs.nbytes(*own.outs, operand if kept else None), alone.operations)
    fusion = "epilogue beside its operand" if kept else "epilogue"
    return costs.pays(fusion, found.nodes, (Cost(written=costs.nbytes(operand)), alone), (together,))
