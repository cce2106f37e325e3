"""Products of floats with a constant matrix, however a file moves that first, as linears of it where it lies."""

from __future__ import annotations

from collections.abc import Sequence

from liveshape.formats.dtypes import ITEM_SIZES
from liveshape.formats.source import is_view
from liveshape.graph import Limits, Node, Tensor
from liveshape.graph.elements import prod
from liveshape.lower.def_use import DefUse
from liveshape.lower.index_maps import IndexMaps, elements_of, rows_of
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
        weight = _part(uses, layout.base, rows_of(layout)) if layout.base.dtype == x.dtype else None
        if weight is not None:
            moves = tuple(layouts.chain(other, node))
            made = () if weight is layout.base else (weight,)
            return [Replacement(node, _LINEAR, (node,), (x, weight, bias, out), made, moves)]
    return ()


def _part(uses: DefUse, whole: Tensor, part: tuple[int, int] | None) -> Tensor | None:
    """So many rows of a constant, from one on, as a constant of their own; itself where that is all of it."""
    data = whole.constant
    if part is None or data is None or uses.writes[whole]:
        return None
    first, count = part
    if (first, count) == (0, whole.max_shape[0]):
        return whole
    if not is_view(data):
        return None
    nbytes = ITEM_SIZES[whole.dtype] * prod(whole.max_shape[1:])
    piece = data[first * nbytes : (first + count) * nbytes]
    return Tensor(f"{whole.name}, {count} rows from {first}", whole.dtype, (count, *whole.max_shape[1:]), piece)


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
        layout = next(IndexMaps(uses).bases(bias, add), None)
        vector = None if layout is None else _part(uses, layout.base, elements_of(layout))
        if vector is None or vector.max_shape != rows.max_shape[-1:]:
            continue
        alike = alpha == 1 and uses.sizes.of(product) == uses.sizes.of(out) and product.rank == out.rank
        if not (private and alike and exact(rows, bias, out) and out.max_shape[-1:] == vector.max_shape):
            continue
        x, weight, *_ = layer.args
        made = () if vector is bias else (vector,)
        moves = () if vector is bias else tuple(IndexMaps(uses).chain(bias, add))
        if view is None:
            return [Replacement(layer, layer.name, nodes, (x, weight, vector, out), made, moves)]
        # Other contents are another tensor: what a file calls by its name stays what it is there.
        biased = Tensor(f"{rows.name} with its bias", rows.dtype, rows.max_shape)
        return [
            Replacement(layer, layer.name, nodes, (x, weight, vector, biased), (*made, biased), moves),
            Replacement(view, view.name, nodes, (biased, *view.args[1:-1], out)),
        ]
    return ()


PRODUCTS = (
    Fusion(
        "product with a transposed constant matrix, as a linear",
        MATRIX_PRODUCTS | ADDMM,
        _linear,
    ),
    Fusion(
        "linear and the bias that is added to it",
        frozenset({ADD}),
        _bias,
    ),
)
