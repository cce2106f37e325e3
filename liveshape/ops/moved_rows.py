"""Row-wise rules (`row_rules.py`) of operators that only move elements: views, movements, concatenations.

A movement says how its results lie in its first argument (`movement.py`). Told of strides that tell axes apart, and of
live scalars as numbers that nothing is known of, it says what each dimension of a result is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from liveshape.errors import LiveshapeError
from liveshape.graph import Node, Shape, SymInt, Tensor
from liveshape.graph.elements import prod
from liveshape.graph.traits import Carried, Moves, RowRule
from liveshape.ops.row_rules import axis_of_all, outputs_along
from liveshape.ops.shapes import Strided, axis_of


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


class LiveNumber(int):
    """A live scalar where a movement is followed at no call in particular: a number beyond all sizes, of which no
    comparison holds. What is computed of it is another one; `scalar` is the one that it is itself."""

    scalar: SymInt | None = None
    __hash__ = int.__hash__


def _computed(name: str) -> Callable[..., LiveNumber]:
    whole = getattr(int, name)
    return lambda *numbers: LiveNumber(whole(*map(int, numbers)))


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod", "neg"):
    setattr(LiveNumber, f"__{_name}__", _computed(f"__{_name}__"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(LiveNumber, f"__{_name}__", lambda *_: False)


class AxisMap(NamedTuple):
    """A result of a movement by axes of x: the size of each dimension, and how far a step along it goes along which.

    `starts` is how far along axes of x it begins, `steady` whether no live scalar says that; `shape` is that of x.
    """

    sizes: Shape
    steps: tuple[Mapping[int, int], ...]
    starts: Mapping[int, int]
    steady: bool
    shape: Shape

    def whole(self, place: int) -> int | None:
        """The axis of x that a dimension alone is, all of it, or as much as a live scalar asks for."""
        axis = next(iter(self.steps[place]), -1)
        alone = self.steps[place] == {axis: 1} and sum(axis in steps for steps in self.steps) == 1
        size = self.sizes[place]
        asked = isinstance(size, LiveNumber) and size.scalar is not None
        return axis if alone and axis not in self.starts and (asked or size == self.shape[axis]) else None


_AXIS = 1 << 256  # steps along one axis of x, counted in those along the axis before


def axis_maps(node: Node, sizes: Sequence[int | None], define: Moves | None = None) -> list[AxisMap] | None:
    """Where the results of a movement lie in x of these sizes, None for a live one; None where no call is like that.

    A live size is taken to be one more than its bound: what is as long then is as long at every call, for no number of
    the program is that.

    Example: `axis_maps(node, node.args[0].max_shape)`.
    """
    x, out = node.args[0], node.args[-1]
    moves = define or node.traits.moves
    assert moves is not None
    shape = tuple(most + 1 if size is None else size for size, most in zip(sizes, x.max_shape, strict=True))
    given = Strided(shape, tuple(_AXIS**axis for axis in range(x.rank)), 0, x.max_shape)
    try:
        layouts = moves(given, *map(_numbered, node.args[1:]))
    except (LiveshapeError, LookupError):
        return None
    return [
        AxisMap(shape, tuple(map(_by_axis, strides)), _by_axis(start), not isinstance(start, LiveNumber), given.shape)
        for shape, strides, start, _ in (layouts if isinstance(out, tuple) else (layouts,))
    ]


def _numbered(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return tuple(map(_numbered, argument))
    if isinstance(argument, SymInt):
        number = LiveNumber(1 << 64)
        number.scalar = argument
        return number
    return argument


def _by_axis(number: int) -> dict[int, int]:
    steps, axis, rest = {}, 0, int(number)
    while rest:
        if step := (rest + _AXIS // 2) % _AXIS - _AXIS // 2:
            steps[axis] = step
        rest, axis = (rest - step) // _AXIS, axis + 1
    return steps


def rows_of(define: Moves) -> RowRule:
    """Rows along an axis that is a dimension of every result of a movement."""

    def rule(node: Node, carried: Carried) -> Carried | None:
        x = node.args[0]
        axis = carried[x]
        maps = axis_maps(node, [None if each == axis else size for each, size in enumerate(x.max_shape)], define) or ()
        axes = [[each.whole(place) for place in range(len(each.sizes))] for each in maps]
        if not axes or not all(axis in each for each in axes):
            return None
        return {out: each.index(axis) for out, each in zip(node.outputs, axes, strict=True)}

    return rule


def order_of(node: Node) -> tuple[int, ...]:
    """The axes of its first argument that the dimensions of a permute are."""
    return tuple(
        axis for each in axis_maps(node, node.args[0].max_shape) or () for steps in each.steps for axis in steps
    )


def repeated(node: Node, carried: Carried) -> Carried | None:
    """Copies behind each other, along other dimensions than that of rows."""
    x, repeats = node.named["x"], node.named["repeats"]
    axis = carried[x] + len(repeats) - x.rank
    return outputs_along(node, axis) if axis >= 0 and repeats[axis] == 1 else None


def concatenated(node: Node, carried: Carried) -> Carried | None:
    """Tensors behind each other along a dimension, or along a new one: all of them have the rows."""
    tensors, dim, out = node.args
    axes, ranks = {carried.get(tensor) for tensor in tensors}, {tensor.rank for tensor in tensors}
    if len(axes) != 1 or len(ranks) != 1 or None in axes or not isinstance(dim, int):
        return None
    axis, along = int(axes.pop() or 0), axis_of(dim, out.rank)
    if out.rank not in ranks:
        return outputs_along(node, axis + (along <= axis))
    return None if along == axis else outputs_along(node, axis)


def select_scattered(node: Node, carried: Carried) -> Carried | None:
    """x with what is given at one index of a dimension that is not that of rows; this has one dimension less."""
    x, source, dim = (node.named[name] for name in ("x", "source", "dim"))
    if x not in carried or source not in carried or not isinstance(dim, int):
        return None
    along, axis = axis_of(dim, x.rank), carried[x]
    return outputs_along(node, axis) if along != axis and carried[source] == axis - (along < axis) else None


def selected(node: Node, carried: Carried) -> Carried | None:
    """Elements of a dimension by a list of ids: rows of ids, or those of x along another dimension."""
    dim, index = node.named["dim"], node.named["index"]
    listed = isinstance(dim, int) and index.rank == 1
    return _picked(node, carried, axis_of(dim, node.named["x"].rank), index) if listed else None


def indexed(node: Node, carried: Carried) -> Carried | None:
    """x[:, ids]: one list of ids in the place of a dimension, which carries rows, or x does along another dimension."""
    given = [(place, each) for place, each in enumerate(node.named["indices"]) if each is not None]
    return _picked(node, carried, *given[0]) if len(given) == 1 and given[0][1].dtype != "bool" else None


def _picked(node: Node, carried: Carried, along: int, index: Tensor) -> Carried | None:
    x = node.named["x"]
    if x not in carried:
        return outputs_along(node, along + carried[index])
    axis = carried[x]
    if index in carried or axis == along:
        return None
    return outputs_along(node, axis if axis < along else axis + index.rank - 1)


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
