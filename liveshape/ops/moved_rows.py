"""Row-wise rules (`row_rules.py`) of operators that only move elements: views, permutations, slices, concatenations."""

from __future__ import annotations

from typing import Any

from liveshape.graph import Node, Shape, SymInt
from liveshape.graph.elements import prod
from liveshape.graph.traits import Axes, Carried, RowRule
from liveshape.ops.row_rules import axes_of, axis_of_all, nothing_but, outputs_along
from liveshape.ops.shapes import axis_of, without


def viewed(node: Node, carried: Carried) -> Carried | None:
    """The same elements in other sizes: rows stay where as much lies outside and inside of them as before.

    Their size must be the one that is inferred or live, and all others static: then it is that of the source.
    """
    x, sizes, out = node.named["x"], node.named["size"], node.args[-1]
    axis = carried[x]
    free = [place for place, size in enumerate(sizes) if isinstance(size, SymInt) or size == -1]
    if len(free) != 1 or len(sizes) != out.rank or 0 in x.max_shape:
        return None
    (place,) = free
    outside = prod(x.max_shape[:axis]) == prod(out.max_shape[:place])
    inside = prod(x.max_shape[axis + 1 :]) == prod(out.max_shape[place + 1 :])
    fixed = all(
        size == most for size, most in zip(sizes, out.max_shape, strict=True) if isinstance(size, int) and size >= 0
    )
    return {out: place} if outside and inside and fixed else None


def keeping(axes: Axes) -> dict[str, Any]:
    """The traits of an operator that keeps axes whole: these, and rows along any of them."""

    def rule(node: Node, carried: Carried) -> Carried | None:
        order, axis = axes(node), carried[node.named["x"]]
        return outputs_along(node, order.index(axis)) if order is not None and axis in order else None

    return {"axes": axes, "rows": rule}


def squeezed(node: Node) -> tuple[int | None, ...] | None:
    """Without dimensions of 1, as the bound has them."""
    x, out = node.named["x"], node.args[-1]
    given = node.named.get("dims", node.named.get("dim"))
    axes = set(range(x.rank)) if given is None else axes_of(given, x.rank)
    kept = tuple(axis for axis in range(x.rank) if axis not in axes or x.max_shape[axis] != 1)
    return kept if len(kept) == out.rank else None


def unsqueezed(node: Node) -> tuple[int | None, ...] | None:
    """With one dimension more."""
    rank, dim = node.named["x"].rank, node.named["dim"]
    if not isinstance(dim, int):
        return None
    axis = axis_of(dim, rank + 1)
    return (*range(axis), None, *range(axis, rank))


def permuted(node: Node) -> tuple[int | None, ...] | None:
    """Dimensions in another order."""
    x, dims = node.named["x"], node.named["dims"]
    order = tuple(axis_of(dim, x.rank) for dim in dims) if all(isinstance(dim, int) for dim in dims) else ()
    return order if sorted(order) == [*range(x.rank)] else None


def transposed(node: Node) -> tuple[int | None, ...] | None:
    """Two dimensions swapped: those of a matrix where none are named."""
    rank = node.named["x"].rank
    dims = [node.named.get(name, default) for name, default in (("dim0", 0), ("dim1", rank - 1))]
    return swapped(rank, *dims) if all(isinstance(dim, int) for dim in dims) else None


def swapped(rank: int, one: int, other: int) -> Shape:
    """The axes of a tensor, two of them swapped.

    >>> swapped(3, 0, -1), swapped(0, 0, -1)
    ((2, 1, 0), ())
    """
    order = [*range(rank)]
    if order:
        order[one], order[other] = order[other], order[one]
    return tuple(order)


def selected_from(node: Node) -> tuple[int | None, ...] | None:
    """Without the dimension of which one index is taken."""
    rank, dim = node.named["x"].rank, node.named["dim"]
    return without(tuple(range(rank)), axis_of(dim, rank)) if isinstance(dim, int) else None


def expanded(node: Node, carried: Carried) -> Carried | None:
    """Dimensions of 1 repeated, others kept: the size of rows is not static, which would be that of the bound."""
    x, sizes = node.named["x"], node.named["size"]
    axis = carried[x] + len(sizes) - x.rank
    live = axis >= 0 and (isinstance(sizes[axis], SymInt) or sizes[axis] == -1)
    return outputs_along(node, axis) if live else None


def repeated(node: Node, carried: Carried) -> Carried | None:
    """Copies behind each other, along other dimensions than that of rows."""
    x, repeats = node.named["x"], node.named["repeats"]
    axis = carried[x] + len(repeats) - x.rank
    return outputs_along(node, axis) if axis >= 0 and repeats[axis] == 1 else None


def on_diagonals(node: Node, carried: Carried) -> Carried | None:
    """The diagonals between two dimensions, behind all others."""
    x = node.named["x"]
    axes = axes_of((node.named["dim1"], node.named["dim2"]), x.rank)
    axis = carried[x]
    return None if axis in axes or len(axes) != 2 else outputs_along(node, axis - sum(each < axis for each in axes))


def concatenated(new_dim: bool) -> RowRule:
    """Tensors behind each other along a dimension, or along a new one: all of them have the rows."""

    def rule(node: Node, carried: Carried) -> Carried | None:
        tensors, dim = node.named["tensors"], node.named["dim"]
        axes = {carried.get(tensor) for tensor in tensors}
        ranks = {tensor.rank for tensor in tensors}
        if len(axes) != 1 or len(ranks) != 1 or None in axes or not isinstance(dim, int):
            return None
        axis, rank = int(axes.pop() or 0), ranks.pop()
        along = axis_of(dim, rank + new_dim)
        if new_dim:
            return outputs_along(node, axis + (along <= axis))
        return None if along == axis else outputs_along(node, axis)

    return rule


def select_scattered(node: Node, carried: Carried) -> Carried | None:
    """x with what is given at one index of a dimension that is not that of rows; this has one dimension less."""
    x, source, dim = (node.named[name] for name in ("x", "source", "dim"))
    if x not in carried or source not in carried or not isinstance(dim, int):
        return None
    along, axis = axis_of(dim, x.rank), carried[x]
    return outputs_along(node, axis) if along != axis and carried[source] == axis - (along < axis) else None


def padded(own: int | None = None) -> RowRule:
    """More or less at both ends of dimensions, but nothing at those of rows; pads of the last dimension come first."""

    def rule(node: Node, carried: Carried) -> Carried | None:
        x, pad = node.named["x"], node.named["pad"]
        axis = carried[x]
        place = x.rank - 1 - axis
        untouched = place >= own if own is not None else tuple(pad[2 * place : 2 * place + 2]) in ((), (0, 0))
        return outputs_along(node, axis) if untouched else None

    return rule


def selected(node: Node, carried: Carried) -> Carried | None:
    """Elements of a dimension by a list of ids: rows of ids, or those of x along another dimension."""
    x, dim, index = (node.named[name] for name in ("x", "dim", "index"))
    if not isinstance(dim, int) or index.rank != 1:
        return None
    along = axis_of(dim, x.rank)
    if x not in carried:
        return outputs_along(node, along)
    return outputs_along(node, carried[x]) if nothing_but(node, carried, "x") and carried[x] != along else None


def gathered(node: Node, carried: Carried) -> Carried | None:
    """One element for each id, from its line along a dimension: rows of ids along this, or of both along another."""
    x, dim, index = (node.named[name] for name in ("x", "dim", "index"))
    if not isinstance(dim, int) or index not in carried:
        return None
    along = axis_of(dim, x.rank)
    if x not in carried:
        return outputs_along(node, along) if carried[index] == along else None
    axis = axis_of_all(node, carried, "x", "index")
    return None if axis is None or axis == along else outputs_along(node, axis)


def indexed(node: Node, carried: Carried) -> Carried | None:
    """x[:, ids]: one list of ids in the place of a dimension, which carries rows, or x does along another dimension."""
    x, indices = node.named["x"], node.named["indices"]
    given = [(place, each) for place, each in enumerate(indices) if each is not None]
    if len(given) != 1 or given[0][1].dtype == "bool":
        return None
    ((along, index),) = given
    if x not in carried:
        return outputs_along(node, along + carried[index])
    axis = carried[x]
    if index in carried or axis == along:
        return None
    return outputs_along(node, axis if axis < along else axis + index.rank - 1)
