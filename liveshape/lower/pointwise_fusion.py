"""Chains and trees of pointwise operators as one expression each, by the trait `pointwise`: it is what a node computes.

Values that others read too are stored beside the result, and what costs more to compute again than to read stays in
memory: `fusion_costs.py` says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Limits, Node, Tensor
from liveshape.graph.elements import stored_alike
from liveshape.lower.def_use import DefUse
from liveshape.lower.fusion_costs import FusionCosts
from liveshape.lower.live_sizes import ONE, Sizes
from liveshape.lower.pattern import Replacement, fit, with_replacements
from liveshape.lower.pattern_operators import POINTWISE, POINTWISE_RESULTS
from liveshape.ops.pointwise import Build, Pointwise, built

_MAX_CALLS = 64  # of an expression: beyond, compilers take longer than memory costs
MAX_RESULTS = 4  # of an expression


class Fused(NamedTuple):
    """Pointwise nodes as one: their expression, the nodes in order, and what its results are stored in."""

    made: Pointwise
    nodes: tuple[Node, ...]
    outs: tuple[Tensor, ...]


def expression_of(node: Node) -> Pointwise | None:
    """The expression of a pointwise node of one result; None where it is none at these arguments.

    Example: `expression_of(uses.producer[value])`.
    """
    define, out = node.traits.pointwise, node.args[-1]
    if define is None or not isinstance(out, Tensor):
        return None
    try:
        return built(define, node.args[:-1], out.dtype)
    except (UnsupportedError, TypeError):  # an operator that computes with a number which is live
        return None


def fused_of(node: Node) -> Fused | None:
    """What a pointwise node of one result is alone.

    Example: `fused_of(uses.producer[value])`.
    """
    made = expression_of(node)
    return None if made is None else Fused(made, (node,), (node.args[-1],))


def fuse_pointwise(graph: Graph, limits: Limits) -> Graph:
    """The same program with its pointwise operators fused with each other.

    Example: `fuse_pointwise(graph, device.limits)`.
    """
    return _with_several_results(_with_expressions(graph, limits), limits)


def _with_expressions(graph: Graph, limits: Limits) -> Graph:
    """Trees of pointwise operators as one node each, in the place of the last one."""
    uses, costs = DefUse(graph), FusionCosts(limits)
    trees: dict[Node, Fused] = {}
    for node in graph.nodes:  # a tree has what it reads fused already
        tree, operand = fused_of(node), 0
        while tree is not None and operand < len(tree.made.tensors):
            producer = uses.producer.get(tree.made.tensors[operand])
            inner = trees.get(producer) if producer is not None else None
            grown = None if inner is None else _grown(tree, inner, uses, costs)
            tree, operand = (tree, operand + 1) if grown is None else (grown, operand)
        if tree is not None:
            trees[node] = tree
    inner_nodes = {each for root, tree in trees.items() for each in tree.nodes if each is not root}
    roots = [tree for root, tree in trees.items() if root not in inner_nodes]
    return _with_fused(graph, ((tree.nodes[-1], POINTWISE, tree, tree.outs[0]) for tree in roots), costs)


def _grown(tree: Fused, inner: Fused, uses: DefUse, costs: FusionCosts) -> Fused | None:
    """A tree with another one in the place of an operand that nothing else reads."""
    (value,) = inner.outs
    nodes = (*inner.nodes, *tree.nodes)
    if not is_private(uses, value, nodes) or not uses.may_move(nodes, *inner.made.tensors, *inner.made.numbers):
        return None
    others = [each for each in tree.made.tensors if each is not value]
    if _is_narrowed_before(inner.made, others, uses):
        return None
    if not inner.made.tensors and not any(broadcasts(uses.sizes.of(value), uses.sizes.of(each)) for each in others):
        return None  # a tensor of one number may be what says the shape
    return _joint("expression", inner, tree, tree.outs, costs)


def _is_narrowed_before(inner: Pointwise, others: Sequence[Tensor], uses: DefUse) -> bool:
    """Whether an expression rounds a result to fewer bytes in the epilogue of what computes it, while another operand
    is computed later, whose epilogue then reads these."""
    if inner.expression.dtype != "float16" or [each.dtype for each in inner.tensors] != ["float32"]:
        return False
    first, *later = (uses.producer.get(each) for each in (*inner.tensors, *others))
    if first is None or not first.traits.epilogues or len(uses.consumers.get(inner.tensors[0], [])) > 1:
        return False
    return any(each is not None and each.traits.epilogues and each.index > first.index for each in later)


def _with_several_results(graph: Graph, limits: Limits) -> Graph:
    """What pointwise nodes read in common, of one another or of others, is read once, by a node of several results, in
    the place of the first one."""
    uses, costs = DefUse(graph), FusionCosts(limits)
    found: dict[Node, Fused] = {}  # by the first of its nodes
    first_of: dict[Node, Node] = {}
    for node in graph.nodes:
        own = fused_of(node)
        if own is None or not own.made.tensors or is_free(node):  # a fill finds its shape elsewhere
            continue
        first_of[node], found[node] = node, own
        if any(is_epilogue_of(uses, value, node) for value in own.made.tensors):
            continue
        for first in dict.fromkeys(first_of[each] for each in _related(uses, own, first_of)):
            joint = _with_result(found[first], own, uses, costs)
            if joint is not None:
                first_of[node], found[first] = first, joint
                del found[node]
                break
    rows = ((first, POINTWISE_RESULTS, several, several.outs) for first, several in found.items())
    return _with_fused(graph, rows, costs)


def _related(uses: DefUse, own: Fused, known: Mapping[Node, Node]) -> list[Node]:
    """The known nodes that give what a node reads, or read it as well, the last first."""
    (node,) = own.nodes
    related = {uses.producer[value] for value in own.made.tensors if value in uses.producer}
    related |= {reader for value in own.made.tensors for reader in uses.consumers[value] if reader.index < node.index}
    return sorted((each for each in related if each in known), key=lambda each: -each.index)


def _with_result(several: Fused, own: Fused, uses: DefUse, costs: FusionCosts) -> Fused | None:
    """An expression that gives what a node does, too, at the place of its first node; None where it may not."""
    (node,), (out,) = own.nodes, own.outs
    whole = uses.sizes.of(out)
    known = {*several.made.tensors, *several.outs}
    shared = [value for value in own.made.tensors if value in known and uses.sizes.of(value) == whole]
    if not shared or any(uses.sizes.of(each) != whole for each in several.outs):
        return None
    rest = [value for value in own.made.tensors if value not in several.outs]
    moves = uses.may_move((several.nodes[0], node), *rest, *own.made.numbers)
    if not uses.single_assignment(out, *several.outs) or not moves:
        return None
    return _joint("results of one expression", several, own, (out, *several.outs), costs)


def _joint(fusion: str, inner: Fused, outer: Fused, outs: tuple[Tensor, ...], costs: FusionCosts) -> Fused | None:
    """One expression of two, the first of which may give what the other one reads; None where that does not pay.

    What is stored beside the last result are those of the first one.
    """
    build = Build(outer.made.expression.dtype)
    terms = build.whole(inner.made)
    given = {out: terms[place] for out, place in zip(inner.outs, inner.made.expression.results, strict=True)}
    build.whole(outer.made._replace(tensors=tuple(given.get(each, each) for each in outer.made.tensors)))
    made = build.made(given[out] for out in outs[1:])
    allowed = len(outs) <= MAX_RESULTS and len(made.expression.calls) <= _MAX_CALLS
    if not allowed or outs[0] in made.tensors or not fit((*made.tensors, *outs), costs.limits):
        return None
    apart = (costs.evaluated(inner.made, inner.outs), costs.evaluated(outer.made, outer.outs))
    nodes = (*inner.nodes, *outer.nodes)
    pays = costs.pays(fusion, nodes, apart, (costs.evaluated(made, outs),))
    return Fused(made, nodes, outs) if pays else None


def _with_fused(graph: Graph, rows: Iterable[tuple[Node, str, Fused, Any]], costs: FusionCosts) -> Graph:
    """The graph with what is made of several nodes: at which place, by which operator, and its output."""
    found = [
        Replacement(place, operator, tuple(sorted(fused.nodes, key=lambda node: node.index)), (*fused.made, out))
        for place, operator, fused, out in rows
        if len(fused.nodes) > 1
    ]
    return costs.noted_on(with_replacements(graph, found))


def is_epilogue_of(uses: DefUse, value: Tensor, node: Node) -> bool:
    """Whether what computes a value may store an expression of it instead: nothing else reads it."""
    producer, result, readers = computed(uses, value, node)
    return producer is not None and producer.traits.epilogues and is_private(uses, result, readers[:1])


def computed(uses: DefUse, value: Any, node: Node) -> tuple[Node | None, Any, list[Node]]:
    """What computes a value that a node reads, or what it is a view of; its result, and who reads it, one the other."""
    readers = [node]
    producer = uses.producer.get(value)
    while producer is not None and is_free(producer) and is_private(uses, value, readers[:1]):
        if producer.args[0].dtype != value.dtype:
            break  # a cast, and no view
        readers.insert(0, producer)
        value = producer.args[0]
        producer = uses.producer.get(value)
    return producer, value, readers


def is_free(node: Node) -> bool:
    """Whether a node gives the memory of what it reads, as casts between types that are stored alike do."""
    source, target = node.args[0], node.args[-1]
    both = isinstance(source, Tensor) and isinstance(target, Tensor)
    return node.alias and both and stored_alike(source.dtype, target.dtype)


def broadcasts(sizes: Sizes, target: Sizes) -> bool:
    """Whether a tensor broadcasts to the shape of another one, which stays as it is, at every live size."""
    pairs = zip(reversed(sizes), reversed(target), strict=False)
    return len(sizes) <= len(target) and all(size in (ONE, whole) for size, whole in pairs)


def is_private(uses: DefUse, value: Any, nodes: Sequence[Node]) -> bool:
    return uses.single_assignment(value) and uses.used_only_by(nodes, value)
