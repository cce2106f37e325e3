"""Chains and trees of pointwise operators as one expression each, and expressions as epilogues of what they read.

Both ask for traits: what declares `pointwise` is an expression of its arguments, and what declares `epilogues` stores
its result once. Values that others read too are stored beside the result, and what costs more to compute again than to
read stays in memory: `fusion_costs.py` says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from liveshape import ops
from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Limits, Node, Tensor
from liveshape.graph.elements import by_itself, stored_alike
from liveshape.graph.expression import Expression
from liveshape.graph.sources import united
from liveshape.graph.traits import Product
from liveshape.kernels.roofline import Cost
from liveshape.lower.def_use import DefUse
from liveshape.lower.fusion_costs import FusionCosts
from liveshape.lower.live_sizes import ONE, Sizes
from liveshape.lower.pattern import fit
from liveshape.lower.pattern_operators import COMPOSED, POINTWISE, POINTWISE_RESULTS
from liveshape.lower.rewriting import rewritten
from liveshape.ops.composed import Anchor, Composition, anchored_operations, with_places
from liveshape.ops.pointwise import Pointwise, built

_FUSED, _SEVERAL, _COMPOSED = (ops.OPS[name] for name in (POINTWISE, POINTWISE_RESULTS, COMPOSED))
_MAX_CALLS = 64  # of an expression: beyond, compilers take longer than memory costs
_MAX_RESULTS = 4  # of an expression


class _Tree(NamedTuple):
    """A node of the graph to come: an expression, what it stands for, and the node that it takes the place of."""

    made: Pointwise
    nodes: tuple[Node, ...]


class _Several(NamedTuple):
    """An expression of several results, and the nodes that gave them: it takes the place of the first one."""

    made: Pointwise
    nodes: tuple[Node, ...]
    outs: tuple[Tensor, ...]

    def places(self) -> dict[Tensor, int]:
        """Where the expression has the tensors that it reads and gives."""
        return dict(zip((*self.made.tensors, *self.outs), self._all(), strict=True))

    def _all(self) -> tuple[int, ...]:
        return (*range(len(self.made.tensors)), *self.made.expression.results)


def fuse_pointwise(graph: Graph, limits: Limits) -> Graph:
    """The same program with its pointwise operators fused with each other.

    Example: `fuse_pointwise(graph, device.limits)`.
    """
    return _with_several_results(_with_expressions(graph, limits), limits)


def _with_expressions(graph: Graph, limits: Limits) -> Graph:
    """Trees of pointwise operators as one node each."""
    uses, costs = DefUse(graph), FusionCosts(limits)
    trees: dict[Node, _Tree] = {}
    for node in graph.nodes:  # a tree has what it reads fused already
        made = expression_of(node)
        if made is not None:
            trees[node] = _grown(_Tree(made, (node,)), node, uses, trees, limits, costs)
    inner = {each for root, tree in trees.items() for each in tree.nodes if each is not root}
    replaced = {
        root: node_of(_FUSED, root, tree.nodes, (*tree.made, root.args[-1]))
        for root, tree in trees.items()
        if root not in inner and len(tree.nodes) > 1
    }
    return with_nodes(graph, replaced, inner, costs)


def expression_of(node: Node) -> Pointwise | None:
    """The expression of a pointwise node; None where it is none at these arguments.

    Example: `expression_of(uses.producer[value])`.
    """
    define, out = node.traits.pointwise, node.args[-1]
    if define is None or not isinstance(out, Tensor):
        return None
    try:
        made = built(define, node.args[:-1], out.dtype)
    except (UnsupportedError, TypeError):  # an operator that computes with a number which is live
        return None
    return made


def _grown(
    tree: _Tree, root: Node, uses: DefUse, trees: dict[Node, _Tree], limits: Limits, costs: FusionCosts
) -> _Tree:
    """A tree with those of its operands inside that nothing else reads."""
    operand = 0
    while operand < len(tree.made.tensors):
        value = tree.made.tensors[operand]
        producer = uses.producer.get(value)
        inner = trees.get(producer) if producer is not None else None
        joined = None if inner is None else _joined(tree, operand, inner, root, uses, limits, costs)
        if joined is None:
            operand += 1
        else:
            tree = joined
    return tree


def _joined(
    tree: _Tree, operand: int, inner: _Tree, root: Node, uses: DefUse, limits: Limits, costs: FusionCosts
) -> _Tree | None:
    value = tree.made.tensors[operand]
    nodes = (*inner.nodes, *tree.nodes)
    out = root.args[-1]
    if not is_private(uses, value, nodes) or not uses.may_move(nodes, *inner.made.tensors, *inner.made.numbers):
        return None
    others = [each for each in tree.made.tensors if each is not value]
    if _is_narrowed_before(inner.made, others, uses):
        return None
    if not inner.made.tensors and not any(_broadcasts(uses.sizes.of(value), uses.sizes.of(each)) for each in others):
        return None  # a tensor of one number may be what says the shape
    made = _after(tree.made, inner.made, operand)
    if out in made.tensors or len(made.expression.calls) > _MAX_CALLS or not fit((*made.tensors, out), limits):
        return None
    apart = (costs.evaluated(inner.made, (value,)), costs.evaluated(tree.made, (out,)))
    return _Tree(made, nodes) if costs.pays("expression", nodes, apart, (costs.evaluated(made, (out,)),)) else None


def _is_narrowed_before(inner: Pointwise, others: Sequence[Tensor], uses: DefUse) -> bool:
    """Whether an expression rounds a result to fewer bytes in the epilogue of what computes it, while another operand
    is computed later, whose epilogue then reads these."""
    if inner.expression.dtype != "float16" or [each.dtype for each in inner.tensors] != ["float32"]:
        return False
    first, *later = (uses.producer.get(each) for each in (*inner.tensors, *others))
    if first is None or not first.traits.epilogues or len(uses.consumers.get(inner.tensors[0], [])) > 1:
        return False
    return any(each is not None and each.traits.epilogues and each.index > first.index for each in later)


def _after(outer: Pointwise, inner: Pointwise, operand: int) -> Pointwise:
    """An expression with another one in the place of an operand; what both read is one operand."""
    values = {outer.tensors[operand]: inner.expression.results[0]}
    return _joint(outer, inner, {tensor: place for place, tensor in enumerate(inner.tensors)} | values)


def _joint(outer: Pointwise, inner: Pointwise, values: Mapping[Tensor, int], *, keeps: bool = False) -> Pointwise:
    """An expression behind another one, which has some of the tensors that it reads: each with its place there."""
    found = {place: values[tensor] for place, tensor in enumerate(outer.tensors) if tensor in values}
    expression = outer.expression.after(inner.expression, found, keeps=keeps)
    own = (tensor for tensor in outer.tensors if tensor not in values)
    return Pointwise(expression, (*inner.tensors, *own), (*inner.numbers, *outer.numbers))


def _with_several_results(graph: Graph, limits: Limits) -> Graph:
    """What pointwise nodes read in common, of one another or of others, is read once, by a node of several results."""
    uses, costs = DefUse(graph), FusionCosts(limits)
    found: dict[Node, _Several] = {}  # by the first of its nodes
    first_of: dict[Node, Node] = {}
    for node in graph.nodes:
        made = expression_of(node)
        if made is None or not made.tensors or is_free(node):  # a fill finds its shape elsewhere
            continue
        own = _Several(made, (node,), (node.args[-1],))
        first_of[node], found[node] = node, own
        if any(is_epilogue_of(uses, value, node) for value in made.tensors):
            continue
        for first in dict.fromkeys(first_of[each] for each in _related(uses, own, first_of)):
            joint = _with_result(found[first], own, uses, limits, costs)
            if joint is not None:
                first_of[node], found[first] = first, joint
                del found[node]
                break
    replaced = {
        first: node_of(_SEVERAL, first, several.nodes, (*several.made, several.outs))
        for first, several in found.items()
        if len(several.outs) > 1
    }
    gone = {node for node, first in first_of.items() if node is not first}
    return with_nodes(graph, replaced, gone, costs)


def _related(uses: DefUse, own: _Several, known: Mapping[Node, Node]) -> list[Node]:
    """The known nodes that give what a node reads, or read it as well, the last first."""
    (node,) = own.nodes
    related = {uses.producer[value] for value in own.made.tensors if value in uses.producer}
    related |= {reader for value in own.made.tensors for reader in uses.consumers[value] if reader.index < node.index}
    return sorted((each for each in related if each in known), key=lambda each: -each.index)


def _with_result(several: _Several, own: _Several, uses: DefUse, limits: Limits, costs: FusionCosts) -> _Several | None:
    """An expression that gives what a node does, too, at the place of its first node; None where it may not."""
    (node,), (out,) = own.nodes, own.outs
    values = several.places()
    whole = uses.sizes.of(out)
    shared = [value for value in own.made.tensors if value in values and uses.sizes.of(value) == whole]
    if not shared or any(uses.sizes.of(each) != whole for each in several.outs):
        return None
    between = (several.nodes[0], node)
    rest = [value for value in own.made.tensors if value not in several.outs]
    if not uses.single_assignment(out, *several.outs) or not uses.may_move(between, *rest, *own.made.numbers):
        return None
    made = _joint(own.made, several.made, values, keeps=True)
    outs = (out, *several.outs)
    allowed = len(outs) <= _MAX_RESULTS and len(made.expression.calls) <= _MAX_CALLS
    if not allowed or out in made.tensors or not fit((*made.tensors, *outs), limits):
        return None
    apart = (costs.evaluated(several.made, several.outs), costs.evaluated(own.made, own.outs))
    nodes = (*several.nodes, node)
    pays = costs.pays("results of one expression", nodes, apart, (costs.evaluated(made, outs),))
    return _Several(made, nodes, outs) if pays else None


def is_epilogue_of(uses: DefUse, value: Tensor, node: Node) -> bool:
    """Whether what computes a value may store an expression of it instead: nothing else reads it."""
    producer, computed, readers = _computed(uses, value, node)
    return producer is not None and producer.traits.epilogues and is_private(uses, computed, readers[:1])


def _computed(uses: DefUse, value: Any, node: Node) -> tuple[Node | None, Any, list[Node]]:
    """What computes a value that a node reads, or what it is a view of; its result, and who reads it, one the other."""
    readers = [node]
    producer = uses.producer.get(value)
    while producer is not None and _is_view(producer) and is_private(uses, value, readers[:1]):
        readers.insert(0, producer)
        value = producer.args[0]
        producer = uses.producer.get(value)
    return producer, value, readers


def with_epilogues(graph: Graph, limits: Limits) -> Graph:
    """The same program with expressions in the epilogues of what computes an operand of them: the last of several.

    Example: `with_epilogues(graph, device.limits)`.
    """
    uses, costs = DefUse(graph), FusionCosts(limits)
    replaced: dict[Node, Node] = {}
    gone: set[Node] = set()
    for node in graph.nodes:
        made = _results_of(node)
        if made is None or is_free(node):
            continue
        for operand in sorted(range(len(made.tensors)), key=lambda place: -_index(uses, made.tensors[place])):
            ways = (_epilogue(node, made, operand, uses, limits, beside=beside) for beside in (False, True))
            found = next((way for way in ways if way is not None), None)
            if found is None or not gone.isdisjoint((found.place, *found.gone)):
                continue
            if replaced.keys().isdisjoint((found.place, *found.gone)) and _pays(found, node, made, operand, costs):
                replaced[found.place] = found.composed
                gone |= found.gone
                break
    return with_nodes(graph, replaced, gone, costs)


class _Epilogue(NamedTuple):
    """A node that stores an expression in an epilogue, the node in whose place it is, and others that it replaces."""

    place: Node
    composed: Node
    gone: set[Node]


def _pays(found: _Epilogue, node: Node, made: Pointwise, operand: int, costs: FusionCosts) -> bool:
    """Whether an epilogue takes no longer than what computes the operand, and then the expression."""
    outs, value = _outs_of(node), made.tensors[operand]
    alone = costs.evaluated(made, outs)
    kept = found.place is not node
    others = [tensor for tensor in made.tensors if tensor is not value]
    together = Cost(costs.nbytes(*others), costs.nbytes(*outs, value if kept else None), alone.operations)
    nodes = sorted({found.place, *found.gone, node}, key=lambda each: each.index)
    fusion = "epilogue beside its operand" if kept else "epilogue"
    return costs.pays(fusion, nodes, (Cost(written=costs.nbytes(value)), alone), (together,))


def _results_of(node: Node) -> Pointwise | None:
    """The expression of a node, of one result or of several."""
    return Pointwise(*node.args[:3]) if node.name == POINTWISE_RESULTS else expression_of(node)


def _outs_of(node: Node) -> tuple[Tensor, ...]:
    out = node.args[-1]
    return out if isinstance(out, tuple) else (out,)


def _composed(producer: Node, place: Node, nodes: Sequence[Node], args: tuple[Any, ...]) -> Node:
    """A node with an epilogue, which multiplies and gathers as its producer does: the ids of the caller are checked."""
    made = node_of(_COMPOSED, place, nodes, args)
    if producer.traits.product is not None:
        made = replace(made, traits=replace(made.traits, product=Product(anchored_operations)))
    if producer.gathers is None:
        return made
    ids, table = ((1, args[0].anchor.arguments[path[0]].index) for path in producer.gathers)
    return replace(made, gathers=(ids, table))


def _index(uses: DefUse, value: Any) -> int:
    producer = uses.producer.get(value)
    return -1 if producer is None else producer.index


def _epilogue(
    node: Node, made: Pointwise, operand: int, uses: DefUse, limits: Limits, *, beside: bool
) -> _Epilogue | None:
    """A node that stores an expression in the epilogue of what computes an operand.

    It is in the place of the expression, and behind views, if nothing else reads the operand; one that stores it
    `beside` the operand is in the place of what computed that.
    """
    outs, result = _outs_of(node), made.tensors[operand]
    others = tuple(each for place, each in enumerate(made.tensors) if place != operand)
    found = (uses.producer.get(result), result, [node]) if beside else _computed(uses, result, node)
    producer, value, readers = found
    if producer is None or not producer.traits.epilogues or value.dtype != made.expression.operands[operand]:
        return None
    between, views = (producer, *readers), readers[:-1]
    hidden = {value, *(view.args[-1] for view in views)}
    inputs = [each for reads in between[:-1] for each in reads.inputs if each not in hidden]
    sizes = uses.sizes.of(result)
    if beside:
        stored, moved = (*outs, value), (*others, *made.numbers)
        alike = all(uses.sizes.of(each) == sizes for each in outs)
        allowed = alike and uses.single_assignment(value, *outs) and len(stored) <= _MAX_RESULTS
    else:
        stored, moved = outs, tuple(inputs)
        alike = all(_broadcasts(uses.sizes.of(each), sizes) for each in others)
        # What is read beside a view of it must be there.
        allowed = is_private(uses, value, readers[:1]) and hidden.isdisjoint(others)
        allowed = allowed and result.max_shape == outs[0].max_shape and (alike or len(outs) == 1)
    if not allowed or not uses.may_move(between, *moved) or not {*others, *inputs}.isdisjoint(stored):
        return None
    if not all(by_itself(each.dtype) for each in (value, *others, *outs)) or not fit((*others, *stored), limits):
        return None
    values: list[Any] = []
    anchor = Anchor(producer.name, with_places(producer.args[:-1], values), value.dtype, value.max_shape)
    viewed = tuple(
        Anchor(view.name, with_places(view.args[1:-1], values), value.dtype, view.args[-1].max_shape) for view in views
    )
    expression = _first(made.expression, operand)
    if beside:
        expression = replace(expression, kept=(*expression.kept, 0))
    args = (Composition(anchor, viewed, expression, alike), tuple(values), others, made.numbers, stored)
    place = producer if beside else node
    return _Epilogue(place, _composed(producer, place, between, args), {*between} - {place})


def is_free(node: Node) -> bool:
    """Whether a node gives the memory of what it reads, as casts between types that are stored alike do."""
    return node.alias and isinstance(node.args[0], Tensor) and stored_alike(node.args[0].dtype, node.args[-1].dtype)


def _broadcasts(sizes: Sizes, target: Sizes) -> bool:
    """Whether a tensor broadcasts to the shape of another one, which stays as it is, at every live size."""
    pairs = zip(reversed(sizes), reversed(target), strict=False)
    return len(sizes) <= len(target) and all(size in (ONE, whole) for size, whole in pairs)


def _is_view(node: Node) -> bool:
    """Whether a node gives the same elements in the same order, under another shape."""
    target, source = node.args[-1], node.args[0]
    return node.alias and isinstance(source, Tensor) and isinstance(target, Tensor) and target.dtype == source.dtype


def is_private(uses: DefUse, value: Any, nodes: Sequence[Node]) -> bool:
    return uses.single_assignment(value) and uses.used_only_by(nodes, value)


def _first(expression: Expression, operand: int) -> Expression:
    """An expression with one of its operands before all others."""
    order = [operand, *(place for place in range(len(expression.operands)) if place != operand)]
    return expression.reordered(order)


def node_of(operator: Any, place: Node, nodes: Sequence[Node], args: tuple[Any, ...]) -> Node:
    ordered = sorted(nodes, key=lambda node: node.index)
    label = " + ".join(dict.fromkeys((ordered[0].label, ordered[-1].label)))
    sources = united(source for node in ordered for source in node.sources)
    made: Node = operator.bind(place.index, label, args, sources)
    return made


def with_nodes(graph: Graph, replaced: dict[Node, Node], gone: set[Node], costs: FusionCosts) -> Graph:
    """A graph with other nodes, and with what was decided for it."""
    rows = [(node.index, replaced.get(node, node)) for node in graph.nodes if node in replaced or node not in gone]
    return costs.noted_on(rewritten(graph, rows, ()) if replaced else graph)
