"""Linears of rows in another order, as rows in another order of a linear: who reads or writes heads follows it anyway.

torch.nn.MultiheadAttention puts rows before batches around its projections. Behind the first projection, and before the
last one, these permutes are part of how attention reads and writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liveshape.graph import Limits, Node, Tensor
from liveshape.lower.def_use import DefUse
from liveshape.lower.index_maps import IndexMaps, joined
from liveshape.lower.pattern import Fusion, Replacement
from liveshape.lower.pattern_operators import (
    LINEAR,
    MATRIX_PRODUCTS,
    PERMUTE,
    PERMUTES,
    SELECTS,
    SLICES,
    SPLITS,
    TRANSPOSES,
    VIEWS,
)
from liveshape.ops.shapes import axis_of

_MOVES = VIEWS | PERMUTES | TRANSPOSES | SELECTS | SLICES | SPLITS


def _behind(uses: DefUse, layer: Node, limits: Limits) -> Sequence[Replacement]:
    """linear(permute(x)), whose result is moved on: permute(linear(x)), the linear at the place of the permute."""
    rows, weight, bias, out = layer.args
    maps = IndexMaps(uses)
    moves = maps.chain(rows, layer)
    readers = uses.consumers.get(out, [])
    moved_on = bool(readers) and all(node.name in _MOVES or node.alias for node in readers)
    if not moves or not moved_on or not _steady(uses, weight, bias) or not uses.single_assignment(out):
        return ()
    private = all(uses.used_only_by((*moves, layer), value) for node in moves for value in node.outputs)
    for layout in maps.bases(rows, layer):
        x = layout.base
        if x is rows or x.rank != rows.rank or layout.offset or not private:
            return ()
        strides = [joined(axis) for axis in layout.axes]
        own = [joined(axis) for axis in maps.whole(x).axes]
        order = tuple(own.index(axis) if own.count(axis) == 1 else -1 for axis in strides)
        if sorted(order) != [*range(x.rank)] or order[-1] != x.rank - 1 or order == tuple(range(x.rank)):
            continue
        made = Tensor(f"{out.name} in the order of its rows", out.dtype, (*x.max_shape[:-1], out.max_shape[-1]))
        nodes = (*moves, layer)
        first = moves[-1]
        return [
            Replacement(first, layer.name, nodes, (x, weight, bias, made), (made,)),
            Replacement(layer, PERMUTE, nodes, (made, order, out)),
        ]
    return ()


def _before(uses: DefUse, permute: Node, limits: Limits) -> Sequence[Replacement]:
    """permute(view(linear(x))) of rows that were moved: linear(permute(view(x))), each at the place of another one."""
    x, dims, out = permute.args
    view = uses.producer.get(x)
    views = (view,) if view is not None and view.name in VIEWS else ()
    product = views[0].args[0] if views else x
    layer = uses.producer.get(product)
    order = tuple(axis_of(dim, x.rank) for dim in dims)
    if layer is None or layer.name not in LINEAR or x.rank < 2 or order[-1] != x.rank - 1:
        return ()
    rows, weight, bias, _ = layer.args
    columns, depth = weight.max_shape
    maker = uses.producer.get(rows)
    nodes = (layer, *views, permute)
    moved = maker is not None and (maker.alias or maker.name in _MOVES | MATRIX_PRODUCTS) and depth <= columns
    if not (moved and _steady(uses, weight, bias) and uses.unchanged(rows, nodes)):
        return ()
    private = all(uses.used_only_by(nodes, value) and uses.single_assignment(value) for value in (product, x))
    if not private or not uses.single_assignment(out):
        return ()
    sizes: tuple[Any, ...] = views[0].args[1] if views else ()
    if views and (sizes[-1] != columns or len(sizes) != x.rank):
        return ()
    shaped = Tensor(f"{rows.name} before its order", rows.dtype, (*x.max_shape[:-1], depth)) if views else rows
    if not views and rows.rank != x.rank:
        return ()
    ordered = Tensor(f"{rows.name} in order", rows.dtype, (*out.max_shape[:-1], depth))
    found = [
        Replacement(views[0] if views else layer, PERMUTE, nodes, (shaped, order, ordered), (ordered,)),
        Replacement(permute, layer.name, nodes, (ordered, weight, bias, out)),
    ]
    if views:
        found.append(Replacement(layer, views[0].name, nodes, (rows, (*sizes[:-1], depth), shaped), (shaped,)))
    return found


def _steady(uses: DefUse, *constants: Tensor | None) -> bool:
    return all(each is None or (each.constant is not None and not uses.writes[each]) for each in constants)


ROW_ORDERS = (
    Fusion(
        "linear of permuted rows that are moved on, as a permute of the linear",
        LINEAR,
        _behind,
    ),
    Fusion(
        "permute of the rows of a linear, as a linear of permuted rows",
        PERMUTES,
        _before,
    ),
)
