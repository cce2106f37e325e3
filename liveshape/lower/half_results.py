"""Results that products of float16 read, stored as float16: where activations may be rounded, products round them
anyway, and nothing that the constants of a program permit is beyond the range of float16.

A conversion is put behind what gives such a result, which becomes part of its epilogue; products take the rows as they
are, and no dispatch makes halves of them. What others read, too, is stored beside its halves. What is float32 of halves
was these before: products take those.
"""

from __future__ import annotations

from dataclasses import replace

from liveshape import ops
from liveshape.graph import Graph, Limits, Node, Tensor, Value
from liveshape.graph.expression import Applied, Expression
from liveshape.lower.def_use import DefUse
from liveshape.lower.magnitudes import Magnitudes, Measure
from liveshape.lower.pattern_operators import LINEAR, POINTWISE, VIEWS
from liveshape.lower.pointwise_fusion import expression_of
from liveshape.lower.rewriting import renamed, rewritten, without_orphans
from liveshape.ops.matrix_products import is_halves_alone

_LARGEST = 60000.0  # of float16 it is 65504: room for what rounding adds
_HALVED = Expression(("float32",), (), (Applied("copy", (0,), "float16"),))
WIDENED = Expression(("float16",), (), (Applied("copy", (0,), "float32"),))


def with_half_results(graph: Graph, limits: Limits, measure: Measure | None) -> Graph:
    """The graph with those of its results as float16 that products read which round them anyway.

    Example: `with_half_results(graph, device.limits, measure)`.
    """
    if not (limits.half and limits.half_inputs) or measure is None:
        return graph
    uses = DefUse(graph)
    magnitudes = Magnitudes(uses, measure)
    halves: dict[Value, Value] = {}  # of tensors that are stored by what computes them, and of views
    before: set[Value] = set()  # of which there are halves already
    views: set[Node] = set()
    products: set[Node] = set()
    for node in graph.nodes:
        out = node.args[-1]
        stores = node.traits.epilogues or node.traits.pointwise is not None
        if not stores or not isinstance(out, Tensor) or out.dtype != "float32" or not uses.single_assignment(out):
            continue
        reached = _views_to_products(uses, out, limits)
        there = _halves_of(uses, node)
        if any(reached.values()) and (there is not None or magnitudes.of(out).largest <= _LARGEST):
            read = [out, *(view.args[-1] for view in reached if view is not node)]
            halves |= {each: replace(each, name=f"{each.name} in float16", dtype="float16") for each in read}
            if there is not None:
                halves[out] = there
                before.add(out)
            views |= reached.keys() - {node}
            products.update(*reached.values())
    if not halves:
        return graph
    rows: list[tuple[int, Node]] = []
    for node in graph.nodes:
        out = node.args[-1]
        taken = replace(node, args=(*renamed(node.args[:-1], halves), out)) if node in products else node
        rows.append((node.index, taken))
        if node in views:
            rows.append((node.index, replace(node, args=renamed(node.args, halves))))
        elif isinstance(out, Tensor) and out in halves and out not in before:
            halved = ops.OPS[POINTWISE].bind(node.index, node.label, (_HALVED, (out,), (), halves[out]), node.sources)
            rows.append((node.index, halved))
    made = tuple(narrow for wide, narrow in halves.items() if wide not in before)
    return without_orphans(rewritten(graph, rows, made), products)


def _halves_of(uses: DefUse, node: Node) -> Tensor | None:
    """What a node makes floats of, where that is all it does: halves of the same shape, which nothing writes again."""
    made = expression_of(node)
    if made is None or made.expression != WIDENED:
        return None
    (x,) = made.tensors
    same = uses.sizes.of(x) == uses.sizes.of(node.args[-1])
    return x if same and uses.single_assignment(x) else None


def _views_to_products(uses: DefUse, tensor: Tensor, limits: Limits) -> dict[Node, list[Node]]:
    """The products that read a tensor and round it, by what they read: the node that gives it, or a view of it."""
    producer = uses.producer[tensor]
    found: dict[Node, list[Node]] = {}
    for reader in uses.consumers.get(tensor, []):
        if not uses.in_basic_block((producer, reader)):
            continue
        if reader.name in VIEWS and uses.single_assignment(reader.args[-1]):
            behind = _views_to_products(uses, reader.args[-1], limits)
            found |= behind if any(behind.values()) else {}
        elif _rounds(reader, tensor, limits):
            found.setdefault(producer, []).append(reader)
    return {producer: found.pop(producer, []), **found}


def _rounds(node: Node, x: Tensor, limits: Limits) -> bool:
    """Whether a node is a linear that makes float16 of its rows, and takes such as they are."""
    if node.name not in LINEAR or node.args[0] is not x or x in node.args[1:]:
        return False
    weight, out = node.args[1], node.args[-1]
    columns, depth = weight.max_shape
    alike = weight.dtype == out.dtype == "float32"
    return alike and is_halves_alone(x, weight, out, columns, depth, limits)
