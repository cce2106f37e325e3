"""Products of floats with a constant matrix, however a file moves that first, as linears of it where it lies."""

from __future__ import annotations

from collections.abc import Sequence

from liveshape.graph import Limits, Node
from liveshape.lower.def_use import DefUse
from liveshape.lower.index_maps import IndexMaps, is_matrix
from liveshape.lower.pattern import Fusion, Replacement, exact
from liveshape.lower.pattern_operators import ADD, ADDMM, LINEAR, MATRIX_PRODUCTS, VIEWS

_LINEAR = next(iter(sorted(LINEAR)))


def _linear(uses: DefUse, node: Node, limits: Limits) -> Sequence[Replacement]:
    """x @ weight.t(), the weight perhaps expanded to the batch of x: a linear of all rows of x."""
    bias = None
    if node.name in ADDMM:
        bias, x, other, beta, alpha, out = node.args
        if (beta, alpha) != (1, 1) or bias.max_shape != out.max_shape[1:]:
            return ()
    else:
        x, other, out = node.args
    layouts = IndexMaps(uses)
    if x.rank < 2 or other.rank not in (2, x.rank) or out.rank != x.rank:
        return ()
    for layout in layouts.bases(other, node):
        weight = layout.base
        if weight.constant is None or uses.writes[weight] or weight.rank != 2 or weight.dtype != x.dtype:
            continue
        if is_matrix(layout, *uses.sizes.of(weight)):
            moves = tuple(layouts.chain(other, node))
            return [Replacement(node, _LINEAR, (node,), (x, weight, bias, out), absorbed=moves)]
    return ()


def _bias(uses: DefUse, add: Node, limits: Limits) -> Sequence[Replacement]:
    """A linear without a bias, perhaps viewed, and the vector that alone is added to it."""
    first, second, alpha, out = add.args
    for product, bias in ((first, second), (second, first)):
        views = [node for node in IndexMaps(uses).chain(product, add) if node.name in VIEWS]
        view = views[0] if views else None
        rows = product if view is None else view.args[0]
        layer = uses.producer.get(rows)
        if layer is None or layer.name not in LINEAR or layer.args[2] is not None or len(views) > 1:
            continue
        nodes = (layer, add) if view is None else (layer, view, add)
        private = all(uses.used_only_by(nodes, value) and uses.single_assignment(value) for value in (product, rows))
        vector = bias.constant is not None and not uses.writes[bias] and bias.max_shape == rows.max_shape[-1:]
        alike = alpha == 1 and uses.sizes.of(product) == uses.sizes.of(out) and product.rank == out.rank
        if not (private and vector and alike and exact(rows, bias, out) and out.max_shape[-1] == bias.max_shape[0]):
            continue
        x, weight, *_ = layer.args
        if view is None:
            return [Replacement(layer, layer.name, nodes, (x, weight, bias, out))]
        return [
            Replacement(layer, layer.name, nodes, (x, weight, bias, rows)),
            Replacement(view, view.name, nodes, (*view.args[:-1], out)),
        ]
    return ()


PRODUCTS = (
    Fusion(
        "product with a transposed constant matrix, as a linear",
        MATRIX_PRODUCTS | ADDMM,
        (_LINEAR,),
        _linear,
    ),
    Fusion(
        "linear and the bias that is added to it",
        frozenset({ADD}),
        (_LINEAR,),
        _bias,
    ),
)
