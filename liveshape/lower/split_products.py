"""Products whose columns a program splits, as a product of each part: of a gated unit (GEGLU) the second one then takes
the first in its epilogue, and nothing copies columns.

Parts that attention reads are gone before: it finds the columns of one product along strides.
"""

from __future__ import annotations

from typing import NamedTuple

from liveshape import ops
from liveshape.formats.source import is_view
from liveshape.graph import Graph, Node, Tensor
from liveshape.graph.sources import united
from liveshape.lower.def_use import DefUse
from liveshape.lower.pattern_operators import LINEAR, SPLITS, VIEWS
from liveshape.lower.rewriting import rewritten
from liveshape.ops.shapes import axis_of


class _Split(NamedTuple):
    """A product of a constant weight, the view of it, if there is one, and the parts of its columns."""

    layer: Node
    view: Node | None
    node: Node
    parts: tuple[Tensor, ...]


def with_products_apart(graph: Graph) -> Graph:
    """The graph with products in the place of those whose columns are split.

    Example: `with_products_apart(graph)`.
    """
    if not any(node.name in SPLITS for node in graph.nodes):
        return graph
    uses = DefUse(graph)
    places: dict[Node, list[Node]] = {}
    made: list[Tensor] = []
    for node in graph.nodes:
        split = _split(uses, node) if node.name in SPLITS else None
        if split is not None:
            places |= _products(split, made)
    rows = [(node.index, each) for node in graph.nodes for each in places.get(node, [node])]
    return rewritten(graph, rows, made) if places else graph


def _split(uses: DefUse, node: Node) -> _Split | None:
    x = node.args[0]
    parts = tuple(part for part in node.outputs if isinstance(part, Tensor))
    producer = uses.producer.get(x)
    view = producer if producer is not None and producer.name in VIEWS else None
    layer = uses.producer.get(view.args[0]) if view is not None else producer
    if layer is None or layer.name not in LINEAR:
        return None
    _, weight, bias, out = layer.args
    nodes = (layer, node) if view is None else (layer, view, node)
    read = (out,) if view is None else (out, x)
    if not uses.in_basic_block(nodes) or not uses.single_assignment(*read, *parts):
        return None
    if not all(uses.used_only_by((reader,), each) for each, reader in zip(read, nodes[1:], strict=True)):
        return None
    columns = weight.max_shape[0]
    if view is not None and view.args[1][-1] != columns:
        return None
    along = isinstance(node.named["dim"], int) and axis_of(node.named["dim"], x.rank) == x.rank - 1
    whole = sum(part.max_shape[-1] for part in parts if part.rank == x.rank) == columns == x.max_shape[-1]
    constants = [each for each in (weight, bias) if each is not None]
    if not along or not whole or not all(each.dtype == "float32" for each in (*constants, out, *parts)):
        return None
    if not all(uses.private_constant(layer, each) and is_view(each.constant) for each in constants):
        return None
    return _Split(layer, view, node, parts)


def _products(split: _Split, made: list[Tensor]) -> dict[Node, list[Node]]:
    """What stands in the place of each node of a split; `made` gets the tensors."""
    layer, view, node, parts = split
    x, weight, bias, out = layer.args
    sources = united(source for each in (layer, node) for source in each.sources)
    label = f"{layer.label} + {node.label}"
    products, views, first = list[Node](), list[Node](), 0
    for part in parts:
        last = first + part.max_shape[-1]
        constants = [None if each is None else _rows(each, first, last) for each in (weight, bias)]
        own = part
        if view is not None:
            own = Tensor(f"{out.name}, columns from {first}", out.dtype, (*out.max_shape[:-1], last - first))
            made.append(own)
            args = (own, (*view.args[1][:-1], last - first), part)
            views.append(ops.OPS[view.name].bind(node.index, label, args, view.sources))
        made += [each for each in constants if each is not None]
        products.append(ops.OPS[layer.name].bind(layer.index, label, (x, *constants, own), sources))
        first = last
    return {layer: products, node: views} | ({} if view is None else {view: []})


def _rows(constant: Tensor, first: int, last: int) -> Tensor:
    """Some rows of a constant, of its own bytes."""
    data = constant.constant
    assert data is not None
    rows, *rest = constant.max_shape
    run = len(data) // rows
    name = f"{constant.name}, rows from {first}"
    return Tensor(name, constant.dtype, (last - first, *rest), constant=data[first * run : last * run])
