"""Patterns of a 4-bit layer and its neighbours: what it is given and where its sums go become parts of its dispatch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from liveshape.graph import Limits, Node
from liveshape.lower.pattern import Replacement, exact, fit
from liveshape.lower.search import LINEAR_Q4, Search


def added_layer(search: Search, add: Node, limits: Limits) -> Sequence[Replacement]:
    """product = layer(x), viewed as it is; out = product + residual: at the place of the sum."""
    first, second, alpha, out = add.args
    for product, residual in ((second, first), (first, second)):
        source = search.viewed(product)
        layer = search.maker.get(source)
        if alpha != 1 or product is residual or layer is None or layer.name != LINEAR_Q4:
            continue
        nodes = (layer, add) if source is product else (layer, search.maker[product], add)
        private = all(search.only_reader(node.args[-1]) is after for node, after in pairwise(nodes))
        x, weight, scales, group, bias, _ = layer.args
        given = (x, weight, scales, x if bias is None else bias)
        steady = search.once(source, product, out) and all(search.unchanged(value, nodes) for value in given)
        alike = product.max_shape == residual.max_shape
        bound = (*given, residual, out)
        if private and steady and alike and exact(source, product, residual, out) and fit(bound, limits):
            args = (x, weight, scales, group, bias, residual, out)
            return [Replacement(add, "liveshape.added_linear_q4gsw", nodes, args)]
    return ()
