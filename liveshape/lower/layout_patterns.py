"""Movements that are fewer, or none: what they give is the same at every live size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liveshape.graph import Limits, Node
from liveshape.lower.def_use import DefUse
from liveshape.lower.index_maps import IndexMaps
from liveshape.lower.pattern import Fusion, Replacement
from liveshape.lower.pattern_operators import CLONE, EXPANDS, PERMUTE, PERMUTED_VIEW, PERMUTES, SLICES, TRANSPOSES
from liveshape.ops.moved_rows import order_of


def _permuted(uses: DefUse, node: Node, limits: Limits) -> Sequence[Replacement]:
    """Permutes one after the other as one; one that leaves the order of all longer dimensions, as a view."""
    x, out = node.args[0], node.args[-1]
    order = _order(node)
    absorbed: list[Node] = []
    for before in IndexMaps(uses).chain(x, node):
        first = _order(before)
        if not first:
            break
        order = tuple(first[axis] for axis in order)
        absorbed.append(before)
        x = before.args[0]
    longer = [axis for axis in order if x.max_shape[axis] != 1]
    stays = longer == sorted(longer) and x.dtype == out.dtype
    if not absorbed and not stays:
        return ()
    operator = PERMUTED_VIEW if stays else PERMUTE
    return [Replacement(node, operator, (node,), (x, order, out), absorbed=tuple(absorbed))]


def _order(node: Node) -> tuple[Any, ...]:
    """The dimensions as a node permutes them; none where it does not."""
    return order_of(node) if node.name in PERMUTES | TRANSPOSES else ()


def _whole(uses: DefUse, node: Node, limits: Limits) -> Sequence[Replacement]:
    """A movement to the sizes that are there, of all elements in their order."""
    x, out = node.args[0], node.args[-1]
    maps = IndexMaps(uses)
    if x.dtype != out.dtype or maps.moved(maps.whole(x), node, out) != maps.whole(x):
        return ()
    return [Replacement(node, CLONE, (node,), (x, None, out))]


LAYOUTS = (
    Fusion("permutes as one, or as a view", PERMUTES | TRANSPOSES, _permuted),
    Fusion("expand or slice to the sizes that are there, as a view", EXPANDS | SLICES, _whole),
)
