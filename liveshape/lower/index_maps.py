"""Index maps: how the elements of a tensor lie in another one, through views, permutes, expands, slices and copies.

An axis of a tensor is a few digits, from the slowest to the fastest; each has a size and a stride in the tensor that it
was made of, its base. Both are products of live sizes (`live_sizes.py`), so that a map holds at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from liveshape.graph import Node, Tensor
from liveshape.lower.def_use import DefUse
from liveshape.lower.live_sizes import NOTHING, ONE, LiveSize, LiveSizes, Sizes
from liveshape.ops.moved_rows import axis_maps


class Digit(NamedTuple):
    """Part of an axis: neighbours along it lie `stride` elements apart in the base."""

    size: LiveSize
    stride: LiveSize


Axis = tuple[Digit, ...]


class IndexMap(NamedTuple):
    """Where the elements of a tensor lie in a base: the digits of its axes, and the sum of `offset`."""

    base: Tensor
    axes: tuple[Axis, ...]
    offset: Sizes = ()

    @property
    def digits(self) -> Axis:
        """Of all axes, from the slowest to the fastest."""
        return tuple(digit for axis in self.axes for digit in axis)


def contiguous(base: Tensor, sizes: Sizes) -> IndexMap:
    """A tensor as it lies itself.

    >>> [axis[0].stride.factor for axis in contiguous(Tensor("x", "float32", (2, 3)), (LiveSize(2), LiveSize(3))).axes]
    [3, 1]
    """
    axes: list[Axis] = []
    stride = ONE
    for size in reversed(sizes):
        axes.append((Digit(size, stride),) if size != ONE else ())
        stride = stride.times(size)
    return IndexMap(base, tuple(reversed(axes)))


def regrouped(digits: Axis, sizes: Sizes) -> tuple[Axis, ...] | None:
    """The same elements in other axes: digits go together, or are taken apart where a size divides one.

    >>> digits = Digit(LiveSize(12), LiveSize(5)), Digit(LiveSize(4), LiveSize(1))
    >>> [len(axis) for axis in regrouped(digits, (LiveSize(3), LiveSize(16)))]
    [1, 2]
    """
    left = [digit for digit in digits if digit.size != ONE]
    axes: list[Axis] = []
    for size in reversed(sizes):
        axis: list[Digit] = []
        need = size
        while need != ONE:
            if not left:
                return None
            digit = left.pop()
            rest = need.over(digit.size)
            if rest is None:
                outer = digit.size.over(need)
                if outer is None or need.factor == 0:
                    return None
                left.append(Digit(outer, digit.stride.times(need)))
                digit, rest = Digit(need, digit.stride), ONE
            axis.append(digit)
            need = rest
        axes.append(tuple(reversed(axis)))
    return None if left else tuple(reversed(axes))


def joined(digits: Axis) -> Axis:
    """Neighbours that are one stride as one digit.

    >>> joined((Digit(LiveSize(3), LiveSize(4)), Digit(LiveSize(4), LiveSize(1))))
    (Digit(size=LiveSize(factor=12, symbols=()), stride=LiveSize(factor=1, symbols=())),)
    """
    result: list[Digit] = []
    for digit in digits:
        before = result[-1] if result else None
        if before is not None and before.stride == digit.stride.times(digit.size):
            result[-1] = Digit(before.size.times(digit.size), digit.stride)
        else:
            result.append(digit)
    return tuple(result)


class IndexMaps:
    """The index maps of a graph, for readers at a node: what a base holds must still be there.

    `through` says of which tensor each element of a node's result is made, if it moves none: they are followed, too.

    Example: `next(IndexMaps(uses).bases(tensor, reader))` has the farthest base.
    """

    def __init__(
        self, uses: DefUse, sizes: LiveSizes | None = None, through: Callable[[Node], Tensor | None] = lambda node: None
    ) -> None:
        self._uses, self._sizes, self._through = uses, sizes or uses.sizes, through

    def whole(self, tensor: Tensor) -> IndexMap:
        """A tensor as it lies itself."""
        return contiguous(tensor, self._sizes.of(tensor))

    def chain(self, tensor: Tensor, reader: Node) -> list[Node]:
        """The nodes that do nothing but move elements on their way to a tensor, from its own producer on."""
        nodes: list[Node] = []
        while (node := self._uses.producer.get(tensor)) is not None:
            source = self.source(node)
            if source is None or not self._uses.single_assignment(tensor):
                break
            if node.index >= reader.index or not self._uses.may_move((node, reader), source):
                break
            nodes.append(node)
            tensor = source
        return nodes

    def bases(self, tensor: Tensor, reader: Node) -> Iterator[IndexMap]:
        """A tensor in terms of every tensor that it may be read from instead, the farthest first, itself the last."""
        for layout, _ in self.numbered_bases(tensor, reader):
            yield layout

    def numbered_bases(self, tensor: Tensor, reader: Node) -> Iterator[tuple[IndexMap, int]]:
        """The same, each with how many nodes of its chain lie between."""
        nodes = self.chain(tensor, reader)
        passed = [tensor, *(source for node in nodes if (source := self.source(node)) is not None)]
        for count in range(len(nodes), -1, -1):
            found: IndexMap | None = contiguous(passed[count], self._sizes.of(passed[count]))
            for place in range(count - 1, -1, -1):
                found = None if found is None else self.moved(found, nodes[place], passed[place])
            if found is not None:
                yield found, count

    def source(self, node: Node) -> Tensor | None:
        """The tensor whose elements a node moves, or those that it is taken to leave where they are."""
        return node.args[0] if self._moves(node) else self._through(node)

    def moved(self, layout: IndexMap, node: Node, out: Tensor) -> IndexMap | None:
        """The map of what a node makes of a tensor with this one."""
        if node.traits.moves is None:
            regrown = regrouped(layout.digits, self._sizes.of(out))
            return None if regrown is None else layout._replace(axes=regrown)
        before, after = self._sizes.of(node.args[0]), self._sizes.of(out)
        maps = axis_maps(node, [size.fixed for size in before])
        found = None if maps is None else maps[node.outputs.index(out)]
        if found is None or not found.steady or len(found.steps) != out.rank:  # a damaged file has another rank
            return None
        offset, axes = [*layout.offset], list[Axis]()
        for axis, first in found.starts.items():
            if (start := _step(layout.axes[axis], first)) is None:
                return None
            offset.append(start)
        for size, steps in zip(after, found.steps, strict=True):
            axis, step = next(iter(steps.items()), (-1, 0))
            if step == 1 and len(steps) == 1 and axis not in found.starts and before[axis] == size:
                axes.append(layout.axes[axis])
                continue
            if len(steps) > 1 or (step and None in (size.fixed, before[axis].fixed)):
                return None
            stride = _step(layout.axes[axis], step) if step else NOTHING
            if stride is None:
                return None
            axes.append((Digit(size, stride),) if size != ONE else ())
        return layout._replace(axes=tuple(axes), offset=tuple(offset))

    def _moves(self, node: Node) -> bool:
        """Whether every element of what a node makes is one of its first argument, of the same dtype."""
        if not node.alias and node.traits.moves is None:
            return False
        outputs = [value for value in node.outputs if isinstance(value, Tensor)]
        alike = isinstance(node.args[0], Tensor) and all(each.dtype == node.args[0].dtype for each in outputs)
        return alike and bool(outputs) and not node.mutates


def _step(axis: Sequence[Digit], count: int) -> LiveSize | None:
    """How far so many steps along an axis of one digit lead."""
    return axis[0].stride.times(LiveSize(count)) if count > 0 and len(axis) == 1 else None


def rows_of(layout: IndexMap) -> tuple[int, int] | None:
    """The rows of its base that a map is, from the first one on, if it is these transposed, or a batch of them.

    Example: `(0, 16)` of `weight.t().expand(batch, depth, 16)`.
    """
    *batch, depth, wide = layout.axes
    if layout.base.rank != 2 or any(digit.stride != NOTHING for axis in batch for digit in axis):
        return None
    columns = LiveSize(layout.base.max_shape[1])
    count = joined(wide)[0].size if wide else ONE
    first = _times_of(layout, columns)
    lies = joined(depth) == _whole(columns, ONE) and joined(wide) == _whole(count, columns)
    return (first, count.fixed) if lies and first is not None and count.fixed else None


def elements_of(layout: IndexMap) -> tuple[int, int] | None:
    """The elements of its base, a vector, that a map of a vector is: the first one, and how many."""
    if layout.base.rank != 1 or len(layout.axes) != 1:
        return None
    whole, first = joined(layout.axes[0]), _times_of(layout, ONE)
    count = whole[0].size if whole else ONE
    return (first, count.fixed) if whole == _whole(count, ONE) and first is not None and count.fixed else None


def _times_of(layout: IndexMap, unit: LiveSize) -> int | None:
    """Where a map begins, as so many units."""
    found = [step.over(unit) for step in layout.offset]
    fixed = [step.fixed for step in found if step is not None and step.fixed is not None]
    return sum(fixed) if len(fixed) == len(found) else None


def _whole(size: LiveSize, stride: LiveSize) -> Axis:
    return (Digit(size, stride),) if size != ONE else ()
