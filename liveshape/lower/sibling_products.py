"""Linears of one input that attention reads, as one linear of all their columns: QKV projections of floats.

The attention reads its queries, keys and values along strides, so that the columns of each stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.graph import Limits, Node, Tensor
from liveshape.graph.elements import prod
from liveshape.lower.def_use import DefUse
from liveshape.lower.pattern import Fusion, Replacement, fit, merged_constant
from liveshape.lower.pattern_operators import LINEAR, SPELLED_ATTENTION, VIEWS
from liveshape.ops.strided_attention import Extent, Stride, encoded

_OPERANDS = 3  # queries, keys and values are the first arguments; their strides lie STRIDES behind
_SIZES, _STRIDES = 8, 9


@dataclass(frozen=True)
class _Projection:
    """An operand of attention that is a linear, perhaps viewed, its columns as the dimensions from `axis` on."""

    operand: int
    layer: Node
    views: tuple[Node, ...]  # one or none
    axis: int

    @property
    def tensor(self) -> Tensor:
        """What attention reads."""
        read: Tensor = (self.layer, *self.views)[-1].args[-1]
        return read

    @property
    def columns(self) -> int:
        """Of the dimension that columns begin with."""
        return self.tensor.max_shape[self.axis]

    def goes_with(self, other: _Projection, uses: DefUse) -> bool:
        """Whether both are columns of one product."""
        layer, before = self.layer, other.layer
        sizes, others = (list(uses.sizes.of(each.tensor)) for each in (self, other))
        del sizes[self.axis], others[other.axis]
        same = sizes == others and self.axis == other.axis and len(self.views) == len(other.views)
        alike = self.layer.args[1].dtype == before.args[1].dtype and layer.args[-1].dtype == before.args[-1].dtype
        biased = (layer.args[2] is None) == (before.args[2] is None)
        return same and alike and biased and _origin(uses, layer.args[0]) == _origin(uses, before.args[0])


def _siblings(uses: DefUse, attention: Node, limits: Limits) -> Sequence[Replacement]:
    found = [each for place in range(_OPERANDS) if (each := _projection(uses, attention, place)) is not None]
    if len(found) == _OPERANDS and not found[0].goes_with(found[1], uses):
        found = found[1:]  # queries of another input
    elif len(found) == _OPERANDS and not found[0].goes_with(found[2], uses):
        found = found[:2]  # values of another one, as where positions are added to queries and keys
    first = found[0] if found else None
    if first is None or len(found) < 2 or not all(each.goes_with(first, uses) for each in found[1:]):
        return ()
    layers = [each.layer for each in found]
    x = first.layer.args[0]
    if len(set(layers)) < len(layers) or not uses.in_basic_block([*layers, attention]):
        return ()
    # All of them read what the first one does: nothing writes it in between, be it before a view of it or behind.
    before = [view for layer in layers if (view := _view_of(uses, layer.args[0])) is not None]
    if not uses.unchanged(_origin(uses, x)[0], [*layers, *before]):
        return ()
    weights = [layer.args[1] for layer in layers]
    terms = [layer.args[2] for layer in layers if layer.args[2] is not None]
    rows = sum(weight.max_shape[0] for weight in weights)
    weight = merged_constant(weights, (rows, weights[0].max_shape[1]), 0, interleaved=False)
    bias = merged_constant(terms, (rows,), 0, interleaved=False) if terms else None
    made = Tensor(f"{first.layer.args[-1].name} and siblings", first.layer.args[-1].dtype, (*x.max_shape[:-1], rows))
    columns = sum(each.columns for each in found)
    if not fit((weight, made), limits):
        return ()
    views = [view for each in found for view in each.views]
    gone = (*layers, *views, attention)
    place = min(layers, key=lambda layer: layer.index)
    constants = (weight,) if bias is None else (weight, bias)
    merged = [
        Replacement(place, place.name, gone, (place.args[0], weight, bias, made), (*constants, made), tuple(before))
    ]
    read = made
    if views:
        axis, shape, sizes = first.axis, first.tensor.max_shape, first.views[0].args[1]
        read = Tensor(f"{made.name}, viewed", made.dtype, (*shape[:axis], columns, *shape[axis + 1 :]))
        behind = max(views, key=lambda view: view.index)
        size = (*sizes[:axis], columns, *sizes[axis + 1 :])
        merged.append(Replacement(behind, behind.name, gone, (made, size, read), (read,)))
    return [*merged, Replacement(attention, attention.name, gone, _reading(attention, found, read))]


def _projection(uses: DefUse, attention: Node, operand: int) -> _Projection | None:
    value = attention.args[operand]
    layer = uses.producer.get(value)
    views: tuple[Node, ...] = ()
    if layer is not None and layer.name in VIEWS:
        views = (layer,)
        layer = uses.producer.get(layer.args[0])
    readers = (*views, attention)
    if layer is None or layer.name not in LINEAR or not _private(uses, readers[0], layer.args[-1]):
        return None
    if views and not _private(uses, attention, value):
        return None
    constants = [each for each in layer.args[1:3] if each is not None]
    if not all(isinstance(each, Tensor) and uses.private_constant(layer, each) for each in constants):
        return None
    width = layer.args[1].max_shape[0]
    sizes: tuple[Any, ...] = views[0].args[1] if views else (*layer.args[-1].max_shape[:-1], width)
    for axis in reversed(range(len(sizes))):
        if not isinstance(sizes[axis], int) or sizes[axis] < 1:
            return None
        if prod(sizes[axis:]) == width:
            at, times = attention.args[_STRIDES + operand][:2]
            return _Projection(operand, layer, views, axis) if at >= axis or times == 0 else None
    return None


def _private(uses: DefUse, reader: Node, value: Any) -> bool:
    """Whether a value is written once and read by one node, as one argument."""
    once = sum(argument is value for argument in reader.args) == 1
    return once and uses.single_assignment(value) and uses.used_only_by((reader,), value)


def _origin(uses: DefUse, x: Tensor) -> tuple[Any, ...]:
    """What a tensor is: itself, or a view to some sizes of another one, which files write again for every reader."""
    view = _view_of(uses, x)
    return (x if view is None else view.args[0], uses.sizes.of(x))


def _view_of(uses: DefUse, x: Tensor) -> Node | None:
    """The node that gives a tensor as a view, if one does."""
    view = uses.producer.get(x)
    return view if view is not None and view.name in VIEWS and uses.single_assignment(x) else None


def _reading(attention: Node, found: Sequence[_Projection], viewed: Tensor) -> tuple[Any, ...]:
    """The arguments of attention that reads its operands from the columns of one tensor."""
    args = list(attention.args)
    sizes = list(args[_SIZES])
    begin = 0
    for each in found:
        shape = args[each.operand].max_shape
        for place in range(0, len(sizes), 3):
            operand, axis, divisor = sizes[place : place + 3]
            if (operand, axis) == (each.operand, each.axis):
                sizes[place : place + 3] = Extent.literal(shape[axis] // divisor)
        numbers = list(args[_STRIDES + each.operand])
        start = Stride(each.axis, begin + _whole(numbers[:2], each.axis, shape))
        args[_STRIDES + each.operand] = (*encoded([start]), *numbers[2:])
        args[each.operand] = viewed
        begin += each.columns
    args[_SIZES] = tuple(sizes)
    return tuple(args)


def _whole(start: Sequence[int], axis: int, shape: Sequence[int]) -> int:
    """A start as so many elements of an axis."""
    at, times = start
    return 0 if times == 0 else times if at == axis else times * prod(shape[at + 1 :]) // prod(shape[axis + 1 :])


SIBLINGS = Fusion(
    "QKV projection of floats: linears of one input that attention reads",
    frozenset({SPELLED_ATTENTION}),
    _siblings,
)
