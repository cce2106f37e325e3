"""Results that products of float16 alone read, stored as float16: where activations may be rounded, products round them
anyway, and nothing that the constants of a program permit is beyond the range of float16.

A conversion is put behind what gives such a result, which becomes part of its epilogue; products take the rows as they
are, and no dispatch makes halves of them.
"""

from __future__ import annotations

from dataclasses import replace

from liveshape import ops
from liveshape.graph import Graph, Limits, Node, Tensor, Value
from liveshape.graph.expression import Applied, Expression
from liveshape.lower.def_use import DefUse
from liveshape.lower.magnitudes import Magnitudes, Measure
from liveshape.lower.pattern_operators import LINEAR, POINTWISE, VIEWS
from liveshape.lower.rewriting import renamed, rewritten
from liveshape.ops.matrix_products import is_halves_alone

_LARGEST = 60000.0  # of float16 it is 65504: room for what rounding adds
_HALVED = Expression(("float32",), (), (Applied("copy", (0,), "float16"),))


def with_half_results(graph: Graph, limits: Limits, measure: Measure | None) -> Graph:
    """The graph with those of its results as float16 whose readers are products that round them anyway.

    Example: `with_half_results(graph, device.limits, measure)`.
    """
    if not (limits.half and limits.half_inputs) or measure is None:
        return graph
    uses = DefUse(graph)
    magnitudes = Magnitudes(uses, measure)
    halved: dict[Node, tuple[Tensor, Tensor]] = {}
    renames: dict[Value, Value] = {}
    for node in graph.nodes:
        out = node.args[-1]
        stores = node.traits.epilogues or node.traits.pointwise is not None
        if not stores or not isinstance(out, Tensor) or out.dtype != "float32" or not uses.single_assignment(out):
            continue
        views = _views_to_products(uses, out, limits)
        if views is not None and magnitudes.of(out).largest <= _LARGEST:
            halved[node] = out, replace(out, name=f"{out.name} in float16", dtype="float16")
            renames[out] = halved[node][1]
            renames |= {view: replace(view, name=f"{view.name} in float16", dtype="float16") for view in views}
    if not halved:
        return graph
    rows: list[tuple[int, Node]] = []
    for node in graph.nodes:
        if node in halved:
            out, half = halved[node]
            rows.append((node.index, replace(node, args=(*renamed(node.args[:-1], renames), out))))
            made = ops.OPS[POINTWISE].bind(node.index, node.label, (_HALVED, (out,), (), half), node.sources)
            rows.append((node.index, made))
        else:
            rows.append((node.index, replace(node, args=renamed(node.args, renames))))
    return rewritten(graph, rows, [value for value in renames.values() if value not in graph.values])


def _views_to_products(uses: DefUse, tensor: Tensor, limits: Limits) -> list[Tensor] | None:
    """The views of a tensor through which products read it; None where anything else does, or nobody."""
    found: list[Tensor] = []
    waiting = [tensor]
    while waiting:
        value = waiting.pop()
        readers = uses.consumers.get(value, [])
        if not readers or not uses.used_only_by(readers, value) or not uses.in_basic_block(readers):
            return None
        for reader in readers:
            if reader.name in VIEWS and uses.single_assignment(reader.args[-1]):
                found.append(reader.args[-1])
                waiting.append(reader.args[-1])
            elif not _rounds(reader, value, limits):
                return None
    return found


def _rounds(node: Node, x: Tensor, limits: Limits) -> bool:
    """Whether a node is a linear that makes float16 of its rows, and takes such as they are."""
    if node.name not in LINEAR or node.args[0] is not x or x in node.args[1:]:
        return False
    weight, out = node.args[1], node.args[-1]
    columns, depth = weight.max_shape
    alike = weight.dtype == out.dtype == "float32"
    return alike and is_halves_alone(x, weight, out, columns, depth, limits)
