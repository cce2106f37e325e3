"""Row-wise rules (`graph/traits.py`): whether and along which axis an operator is row-wise, declared by name.

A rule proves; where it is in doubt it says None. Axes are counted from the front, shapes are bounds. Parameters are
those of the operator; a tensor that a rule does not name must carry no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liveshape.graph import Node, Shape, Tensor
from liveshape.graph.elements import prod
from liveshape.graph.traits import Carried, RowRule
from liveshape.ops.shapes import axis_of


def outputs_along(node: Node, axis: int) -> Carried | None:
    """Every tensor of the output with rows along one axis."""
    found = {value: axis for value in node.outputs if isinstance(value, Tensor)}
    return found if all(axis < value.rank for value in found) else None


def nothing_but(node: Node, carried: Carried, *names: str) -> bool:
    """Whether no argument but these carries rows, not even a tensor that is given for one of these as well."""
    others = (argument for name, argument in zip(node.parameters, node.args[:-1], strict=False) if name not in names)
    given = (item for argument in others for item in (argument if isinstance(argument, tuple) else (argument,)))
    return not any(isinstance(item, Tensor) and item in carried for item in given)


def _broadcast(node: Node, carried: Carried, names: Sequence[str], tail: int = 0) -> int | None:
    """The axis of rows in what arguments broadcast to, but for the last `tail` dimensions; None where it is not one."""
    if not nothing_but(node, carried, *names):
        return None
    given = [tensor for name in names if isinstance(tensor := node.named[name], Tensor)]
    rank = max((tensor.rank for tensor in given), default=0)
    axes = {rank - tensor.rank + axis for tensor, axis in carried.items()}
    axis = axes.pop() if len(axes) == 1 else rank
    if axis >= rank - tail:
        return None
    # What has no rows is the same for all of them.
    places = [(tensor, axis - (rank - tensor.rank)) for tensor in given if tensor not in carried]
    return None if any(place >= 0 and tensor.max_shape[place] != 1 for tensor, place in places) else axis


def elementwise(*operands: str, tail: int = 0) -> RowRule:
    """Operands, all tensors where none are named, that broadcast together in all but the last `tail` dimensions.

    Example: `@op("aten.add.Tensor", rows=elementwise())`.
    """

    def rule(node: Node, carried: Carried) -> Carried | None:
        axis = _broadcast(node, carried, operands or node.parameters[:-1], tail)
        return None if axis is None else outputs_along(node, axis)

    return rule


def row_wise(x: str, *beside: str, tail: int = 1) -> RowRule:
    """Each row of x becomes a row, together with that of tensors `beside` it; the last `tail` dimensions are the row's.

    Example: `@op("aten.linear.default", rows=row_wise("x"))`.
    """
    broadcast = elementwise(x, *beside, tail=tail)

    def rule(node: Node, carried: Carried) -> Carried | None:
        return broadcast(node, carried) if node.named[x] in carried else None

    return rule


def but_dims(x: str, dims: str, *beside: str, keepdim: bool | str = True) -> RowRule:
    """Rows along any dimension but those of `dims`, which are one or several; unless `keepdim` these go.

    Tensors `beside` x have its rows, too, along the same axis.

    Example: `@op("aten._softmax.default", rows=but_dims("x", "dim"))`.
    """

    def rule(node: Node, carried: Carried) -> Carried | None:
        tensor, given = node.named[x], node.named[dims]
        axes = axes_of(given, tensor.rank)
        rows = axis_of_all(node, carried, x, *beside)
        if rows is None or not axes or rows in axes:
            return None
        kept = node.named[keepdim] if isinstance(keepdim, str) else keepdim
        return outputs_along(node, rows if kept else rows - sum(axis < rows for axis in axes))

    return rule


def axes_of(given: Any, rank: int) -> set[int]:
    """Dimensions that are told as one or several; none where they are live or missing, which means all."""
    listed = given if isinstance(given, tuple) else (given,)
    return {axis_of(dim, rank) for dim in listed} if all(isinstance(dim, int) for dim in listed) else set()


def axis_of_all(node: Node, carried: Carried, *names: str) -> int | None:
    """The axis along which all of these tensors, and nothing else, carry rows."""
    tensors = [node.named[name] for name in names if node.named[name] is not None]
    axes = {carried.get(tensor) for tensor in tensors}
    return axes.pop() if len(axes) == 1 and nothing_but(node, carried, *names) else None


def leading(x: str, *beside: str, own: int) -> RowRule:
    """Rows along a dimension before the last `own` ones of x, which are those of a picture.

    Example: `@op("aten.avg_pool2d.default", rows=leading("x", own=2))`.
    """

    def rule(node: Node, carried: Carried) -> Carried | None:
        rows = axis_of_all(node, carried, x, *beside)
        return outputs_along(node, rows) if rows is not None and rows < node.named[x].rank - own else None

    return rule


def first_axis(x: str, *beside: str, rank: str | None = None) -> RowRule:
    """Rows along the first dimension of x, which has the `rank` of another tensor: the members of a batch.

    Example: `@op("aten.convolution.default", rows=first_axis("x", rank="weight"))`.
    """

    def rule(node: Node, carried: Carried) -> Carried | None:
        alike = rank is None or node.named[x].rank == node.named[rank].rank
        return outputs_along(node, 0) if alike and axis_of_all(node, carried, x, *beside) == 0 else None

    return rule


def gathered_rows(ids: str) -> RowRule:
    """A row of a table for every id: the ids alone carry rows.

    Example: `@op("aten.embedding.default", rows=gathered_rows("indices"))`.
    """

    def rule(node: Node, carried: Carried) -> Carried | None:
        rows = axis_of_all(node, carried, ids)
        return None if rows is None else outputs_along(node, rows)

    return rule


def with_scales(x: str, *scales: str) -> RowRule:
    """Rows of x, each with a scale and a zero point of its own, which lie one behind the other in whatever shape.

    Example: `@op("liveshape.fake_quantize_rows", rows=with_scales("x", "scale", "zero_point"))`.
    """

    def rule(node: Node, carried: Carried) -> Carried | None:
        tensor = node.named[x]
        given = [node.named[name] for name in scales if node.named[name] is not None]
        if tensor not in carried or not nothing_but(node, carried, x, *scales) or carried[tensor] >= tensor.rank - 1:
            return None
        around = _around(tensor.max_shape[:-1], carried[tensor])
        return outputs_along(node, carried[tensor]) if _alike(carried, given, around) else None

    return rule


def _around(shape: Shape, axis: int) -> tuple[int, int, int]:
    """How many elements lie outside of an axis, along it, and inside of it."""
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _alike(carried: Carried, tensors: Sequence[Tensor], around: tuple[int, int, int]) -> bool:
    return all(tensor in carried and _around(tensor.max_shape, carried[tensor]) == around for tensor in tensors)


def block_wise(*scales: str) -> RowRule:
    """Blocks of x by their sizes, where those of different rows are different ones, as the scales of them are."""

    def rule(node: Node, carried: Carried) -> Carried | None:
        x, blocks = node.named["x"], node.named["block_size"]
        given = [node.named[name] for name in scales if node.named[name] is not None]
        axis = carried.get(x)
        if axis is None or not nothing_but(node, carried, "x", *scales) or not _by_rows(x, blocks, axis):
            return None
        counts = tuple(size // block for size, block in zip(x.max_shape, blocks, strict=True))
        return outputs_along(node, axis) if _alike(carried, given, _around(counts, axis)) else None

    return rule


def _by_rows(x: Tensor, blocks: Any, axis: int) -> bool:
    """Whether blocks of x are static, and no block spans two rows."""
    static = len(blocks) == x.rank and all(isinstance(block, int) and block > 0 for block in blocks)
    return static and blocks[axis] == 1


def qparams_of_blocks(node: Node, carried: Carried) -> Carried | None:
    """A scale and a zero point for each block of x: their dimensions are those that tell blocks apart."""
    x, blocks, keepdim = (node.named[name] for name in ("x", "block_size", "keepdim"))
    axis = carried.get(x)
    if axis is None or not _by_rows(x, blocks, axis):
        return None
    before = zip(x.max_shape[:axis], blocks, strict=False)
    place = axis if keepdim else sum(block == 1 or block != size for size, block in before)
    fits = all(place < out.rank and out.max_shape[place] == x.max_shape[axis] for out in node.args[-1])
    return outputs_along(node, place) if fits else None


def normalized(node: Node, carried: Carried) -> Carried | None:
    """A norm over as many of the last dimensions as `normalized_shape` names."""
    return row_wise("x", tail=len(node.named["normalized_shape"]))(node, carried)


def by_channel(node: Node, carried: Carried) -> Carried | None:
    """Statistics of each channel, which is dimension 1, for rows along any other one; what else is given is empty."""
    rows = axis_of_all(node, carried, "x")
    return None if rows is None or rows == 1 else {node.outputs[0]: rows}


def by_channels(node: Node, carried: Carried) -> Carried | None:
    """Scales of each channel, which is dimension `axis`."""
    x, axis = node.named["x"], node.named["axis"]
    rows = axis_of_all(node, carried, "x")
    return None if rows is None or rows == axis_of(axis, x.rank) else outputs_along(node, rows)


def multiplied(node: Node, carried: Carried) -> Carried | None:
    """x @ other: rows of x, all multiplied by one matrix; or a batched product of both."""
    x, other, addend = node.named["x"], node.named["other"], node.named.get("addend")
    if x not in carried or x.rank < 2:
        return None
    rows = carried[x] - x.rank
    out = node.args[-1]
    lead = out.rank - (2 if other.rank > 1 else 1)
    if rows == -2:
        place = lead if nothing_but(node, carried, "x", "addend") else None
    else:
        # A batched product, or one whose right operand is broadcast.
        paired = other in carried or other.rank == 2
        names = ("x", "other") if addend is None else ("x", "other", "addend")
        place = _broadcast(node, carried, names, 2) if rows < -2 and paired else None
    if place is None or (addend is not None and not _fits(carried, addend, out, place)):
        return None
    return outputs_along(node, place)


def _fits(carried: Carried, addend: Tensor, out: Any, axis: int) -> bool:
    """Whether what is added to rows along an axis has these rows, or is the same for all of them."""
    place = int(axis - (out.rank - addend.rank))
    return carried[addend] == place if addend in carried else place < 0 or addend.max_shape[place] == 1
