"""Chains and trees of pointwise operators as one expression each, and expressions as epilogues of what they read.

Both ask for traits: what declares `pointwise` is an expression of its arguments, and what declares `epilogues` stores
its result once. Values that others read too stay in memory, and so does what costs more to compute again than to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from liveshape import ops
from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Limits, Node, Tensor
from liveshape.graph.elements import by_itself, prod, stored_alike
from liveshape.graph.expression import Expression
from liveshape.graph.sources import united
from liveshape.lower.def_use import DefUse
from liveshape.lower.live_sizes import ONE, LiveSizes, Sizes
from liveshape.lower.pattern import fit
from liveshape.lower.pattern_operators import COMPOSED, POINTWISE
from liveshape.lower.rewriting import rewritten
from liveshape.ops.composed import Anchor, Composition, with_places
from liveshape.ops.pointwise import Pointwise, built

_FUSED, _COMPOSED = ops.OPS[POINTWISE], ops.OPS[COMPOSED]
_MAX_CALLS = 64  # of an expression: beyond, compilers take longer than memory costs
_MAX_REPEATED = 4  # times that a value may be computed again, where it is broadcast


class _Tree(NamedTuple):
    """A node of the graph to come: an expression, what it stands for, and the node that it takes the place of."""

    made: Pointwise
    nodes: tuple[Node, ...]


def fuse_pointwise(graph: Graph, limits: Limits) -> Graph:
    """The same program with its pointwise operators fused with each other, and with what computes their operands.

    Example: `fuse_pointwise(graph, device.limits)`.
    """
    return _with_epilogues(_with_expressions(graph, limits), limits)


def _with_expressions(graph: Graph, limits: Limits) -> Graph:
    """Trees of pointwise operators as one node each."""
    uses = DefUse(graph)
    trees: dict[Node, _Tree] = {}
    for node in graph.nodes:  # a tree has what it reads fused already
        made = _expression_of(node)
        if made is not None:
            trees[node] = _grown(_Tree(made, (node,)), node, uses, trees, limits)
    inner = {each for root, tree in trees.items() for each in tree.nodes if each is not root}
    replaced = {
        root: _node_of(_FUSED, root, tree.nodes, (*tree.made, root.args[-1]))
        for root, tree in trees.items()
        if root not in inner and len(tree.nodes) > 1
    }
    return _replaced(graph, replaced, inner) if replaced else graph


def _expression_of(node: Node) -> Pointwise | None:
    """The expression of a pointwise node; None where it is none at these arguments, or of other elements."""
    define, out = node.traits.pointwise, node.args[-1]
    if define is None or not isinstance(out, Tensor):
        return None
    try:
        made = built(define, node.args[:-1], out.dtype)
    except (UnsupportedError, TypeError):  # an operator that computes with a number which is live
        return None
    return made


def _grown(tree: _Tree, root: Node, uses: DefUse, trees: dict[Node, _Tree], limits: Limits) -> _Tree:
    """A tree with those of its operands inside that nothing else reads."""
    operand = 0
    while operand < len(tree.made.tensors):
        value = tree.made.tensors[operand]
        producer = uses.producer.get(value)
        inner = trees.get(producer) if producer is not None else None
        joined = None if inner is None else _joined(tree, operand, inner, root, uses, limits)
        if joined is None:
            operand += 1
        else:
            tree = joined
    return tree


def _joined(tree: _Tree, operand: int, inner: _Tree, root: Node, uses: DefUse, limits: Limits) -> _Tree | None:
    value = tree.made.tensors[operand]
    nodes = (*inner.nodes, *tree.nodes)
    out = root.args[-1]
    if not (uses.single_assignment(value) and uses.used_only_by(nodes, value) and uses.in_basic_block(nodes)):
        return None
    others = [each for each in tree.made.tensors if each is not value]
    if not inner.made.tensors and not any(_broadcasts(uses.sizes.of(value), uses.sizes.of(each)) for each in others):
        return None  # a tensor of one number may be what says the shape
    if inner.made.tensors and prod(out.max_shape) > _MAX_REPEATED * max(1, prod(value.max_shape)):
        return None
    if not all(uses.unchanged(each, nodes) for each in (*inner.made.tensors, *inner.made.numbers)):
        return None
    made = _after(tree.made, inner.made, operand)
    if out in made.tensors or len(made.expression.calls) > _MAX_CALLS or not fit((*made.tensors, out), limits):
        return None
    return _Tree(made, nodes)


def _after(outer: Pointwise, inner: Pointwise, operand: int) -> Pointwise:
    """An expression with another one in the place of an operand; what both read is one operand."""
    expression = outer.expression.after(inner.expression, operand)
    tensors = [*inner.tensors, *(each for place, each in enumerate(outer.tensors) if place != operand)]
    place = len(inner.tensors)
    while place < len(tensors):
        first = tensors.index(tensors[place])
        if first == place:
            place += 1
        else:
            expression = expression.merged(place, first)
            del tensors[place]
    return Pointwise(expression, tuple(tensors), (*inner.numbers, *outer.numbers))


def _with_epilogues(graph: Graph, limits: Limits) -> Graph:
    """Expressions in the epilogues of what computes one of their operands: of several, of the last one."""
    uses = DefUse(graph)
    sizes = LiveSizes(graph)
    replaced: dict[Node, Node] = {}
    gone: set[Node] = set()
    for node in graph.nodes:
        made = _expression_of(node)
        if made is None or _is_free(node):
            continue
        for operand in sorted(range(len(made.tensors)), key=lambda place: -_index(uses, made.tensors[place])):
            found = _epilogue(node, made, operand, uses, sizes, limits)
            if found is not None and gone.isdisjoint(found[1]) and replaced.keys().isdisjoint(found[1]):
                replaced[node] = found[0]
                gone |= found[1]
                break
    return _replaced(graph, replaced, gone) if replaced else graph


def _index(uses: DefUse, value: Any) -> int:
    producer = uses.producer.get(value)
    return -1 if producer is None else producer.index


def _epilogue(
    node: Node, made: Pointwise, operand: int, uses: DefUse, sizes: LiveSizes, limits: Limits
) -> tuple[Node, set[Node]] | None:
    """A node that stores an expression in the epilogue of what computes an operand, and the nodes that it replaces."""
    out = node.args[-1]
    value = made.tensors[operand]
    views: list[Node] = []
    producer = uses.producer.get(value)
    while producer is not None and _is_view(producer) and _is_private(uses, value, (*views, node)):
        views.insert(0, producer)
        value = producer.args[0]
        producer = uses.producer.get(value)
    if producer is None or not producer.traits.epilogues or not _is_private(uses, value, (*views, node)):
        return None
    between = (producer, *views, node)
    read = [each for each in (*producer.inputs, *(each for view in views for each in view.inputs)) if each is not value]
    hidden = {view.args[-1] for view in views}
    read = [each for each in read if each not in hidden]
    if not uses.in_basic_block(between) or not all(uses.unchanged(each, between) for each in read):
        return None
    result = made.tensors[operand]
    if result.max_shape != out.max_shape or value.dtype != made.expression.operands[operand]:
        return None
    others = tuple(each for place, each in enumerate(made.tensors) if place != operand)
    if not all(by_itself(each.dtype) for each in (value, *others, out)):
        return None
    if out in (*others, *read) or not fit((*others, out), limits):
        return None
    if not {value, *hidden}.isdisjoint(others):  # read beside a view of it: it must be there
        return None
    values: list[Any] = []
    anchor = Anchor(producer.name, with_places(producer.args[:-1], values), value.dtype, value.max_shape)
    viewed = tuple(
        Anchor(view.name, with_places(view.args[1:-1], values), value.dtype, view.args[-1].max_shape) for view in views
    )
    alike = all(_broadcasts(sizes.of(each), sizes.of(result)) for each in others)
    composition = Composition(anchor, viewed, _first(made.expression, operand), alike)
    args = (composition, tuple(values), others, made.numbers, out)
    return _node_of(_COMPOSED, node, between, args), {producer, *views}


def _is_free(node: Node) -> bool:
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


def _is_private(uses: DefUse, value: Any, nodes: Sequence[Node]) -> bool:
    return uses.single_assignment(value) and uses.used_only_by(nodes, value)


def _first(expression: Expression, operand: int) -> Expression:
    """An expression with one of its operands before all others."""
    order = [operand, *(place for place in range(len(expression.operands)) if place != operand)]
    return expression.reordered(order)


def _node_of(operator: Any, place: Node, nodes: Sequence[Node], args: tuple[Any, ...]) -> Node:
    ordered = sorted(nodes, key=lambda node: node.index)
    label = " + ".join(dict.fromkeys((ordered[0].label, ordered[-1].label)))
    sources = united(source for node in ordered for source in node.sources)
    made: Node = operator.bind(place.index, label, args, sources)
    return made


def _replaced(graph: Graph, replaced: dict[Node, Node], gone: set[Node]) -> Graph:
    rows = [(node.index, replaced.get(node, node)) for node in graph.nodes if node in replaced or node not in gone]
    return rewritten(graph, rows, ())
