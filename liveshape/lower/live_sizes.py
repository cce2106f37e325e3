"""Live sizes of a graph as products of what is not known before a call, so that equal ones are seen to be equal.

A size is a whole number times symbols. A symbol is a live scalar, or a dimension of a tensor of which nothing else is
known. What the program itself says is followed: sizes that it asks for, products of them, views to these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.elements import prod
from liveshape.graph.traits import Role
from liveshape.lower.image_sizes import image_sizes
from liveshape.lower.pattern_operators import (
    ADDED_PRODUCTS,
    ARANGE,
    CONCATENATIONS,
    LAYER_NORMS,
    MATRIX_PRODUCTS,
    OF_ONE_SHAPE,
    POINTWISE_RESULTS,
    REDUCTIONS,
    SCALAR_PRODUCTS,
    SCALAR_QUOTIENTS,
    SCALAR_SUMS,
    VIEWS,
)
from liveshape.ops.moved_rows import LiveNumber, axis_maps
from liveshape.ops.row_rules import axes_of
from liveshape.ops.shapes import axis_of


class LiveSize(NamedTuple):
    """A whole number times symbols, each by its number, in order.

    >>> rows = LiveSize(12, (1, 2))
    >>> rows.times(LiveSize(2)), rows.over(LiveSize(4, (2,))), rows.over(LiveSize(5))
    (LiveSize(factor=24, symbols=(1, 2)), LiveSize(factor=3, symbols=(1,)), None)
    """

    factor: int
    symbols: tuple[int, ...] = ()

    def times(self, other: LiveSize) -> LiveSize:
        if self.factor == 0 or other.factor == 0:
            return NOTHING
        return LiveSize(self.factor * other.factor, tuple(sorted(self.symbols + other.symbols)))

    def over(self, other: LiveSize) -> LiveSize | None:
        """The quotient, if it is a size."""
        left = list(self.symbols)
        for symbol in other.symbols:
            if symbol not in left:
                return None
            left.remove(symbol)
        if other.factor == 0 or self.factor % other.factor:
            return None
        return LiveSize(self.factor // other.factor, tuple(left))

    @property
    def fixed(self) -> int | None:
        """What it is at every call, if it is the same."""
        return None if self.symbols else self.factor


ONE, NOTHING = LiveSize(1), LiveSize(0)
Sizes = tuple[LiveSize, ...]


def product(sizes: Sizes) -> LiveSize:
    """
    >>> product((LiveSize(2), LiveSize(3, (1,))))
    LiveSize(factor=6, symbols=(1,))
    """
    return reduce(LiveSize.times, sizes, ONE)


class LiveSizes:
    """The sizes of the tensors and the live scalars of a graph.

    With `met`, sizes of one bound that meet in an operator are taken to be equal, as every call has them where none is
    one; that which the program asks for stands for them. What a kernel reads by them it must check at each call.

    Example: `LiveSizes(graph).of(tensor)`.
    """

    def __init__(self, graph: Graph, *, met: bool = False) -> None:
        self._graph, self._are_met = graph, met
        self._changing = {value for value, writers in graph.writers.items() if len(writers) > 1}
        self._symbols: dict[Any, int] = {}
        self._summands: dict[int, list[LiveSize]] = {}  # of symbols that are sums
        self._asked: set[int] = set()  # sizes that the program asks for
        self._sizes: dict[Tensor, Sizes | None] = {}  # None while it is being found
        self._scalars: dict[Value, LiveSize] = {}
        self._same: dict[int, int] = {}  # symbols that are equal at every call, by one of them
        self._read()
        if not graph.controls and (equal := self._equalities()):
            self._same = equal
            self._sizes, self._scalars, self._asked, self._summands = {}, {}, set(), {}
            self._read()

    def _read(self) -> None:
        """All sizes in program order, so that what one follows from is known already."""
        for values in (self._graph.given, *(node.outputs for node in self._graph.nodes)):
            for value in values:
                if isinstance(value, Tensor):
                    self.of(value)

    def _equalities(self) -> dict[int, int]:
        """Symbols that views say are equal: there are as many elements after as before."""
        found: dict[int, int] = {}
        for node in self._graph.nodes:
            if node.name not in VIEWS or -1 in node.args[1] or node.args[-1] in self._changing:
                continue
            before, after = product(self.of(node.args[0])), product(tuple(map(self.of_scalar, node.args[1])))
            if before == after:
                continue
            left = list((Counter(before.symbols) - Counter(after.symbols)).elements())
            right = list((Counter(after.symbols) - Counter(before.symbols)).elements())
            if before.factor == after.factor and len(left) == len(right) == 1:
                one, other = _first(left[0], found), _first(right[0], found)
                if one != other:
                    found[one] = other
        return found

    def of(self, tensor: Tensor) -> Sizes:
        """The live shape of a tensor that is written once, or never; of others only the rank is known."""
        if tensor in self._changing:
            return self._unknown(tensor)
        if tensor not in self._sizes:
            self._sizes[tensor] = None
            self._sizes[tensor] = self._known(tensor)
        found = self._sizes[tensor]
        return self._unknown(tensor) if found is None else found  # where a graph reads what it writes later

    def of_scalar(self, value: Any) -> LiveSize:
        """A live scalar or a number."""
        if isinstance(value, SymInt) and value not in self._changing:
            if value not in self._scalars:
                self._scalars[value] = self._symbol(value)
                self._scalars[value] = self._computed(value)
            return self._scalars[value]
        return LiveSize(value) if isinstance(value, int) and value >= 0 else self._symbol(object())

    def _producer(self, value: Value) -> Node | None:
        writers = self._graph.writers.get(value, ())
        return self._graph.nodes[writers[-1]] if writers else None

    def _consumers(self, value: Value) -> list[Node]:
        return [self._graph.nodes[index] for index in self._graph.consumers.get(value, ())]

    def _symbol(self, key: Any) -> LiveSize:
        return LiveSize(1, (_first(self._symbols.setdefault(key, len(self._symbols)), self._same),))

    def _unknown(self, tensor: Tensor) -> Sizes:
        """Symbols of its own; what changes while a program runs is a new one whenever somebody asks."""
        changes = tensor in self._changing
        return tuple(
            ONE if most == 1 else self._symbol(object() if changes else (tensor, axis))
            for axis, most in enumerate(tensor.max_shape)
        )

    def _known(self, tensor: Tensor) -> Sizes:
        node = self._producer(tensor)
        if tensor.constant is not None or (tensor.static and node is None) or self._viewed_at_bound(tensor):
            return tuple(map(LiveSize, tensor.max_shape))
        # The host's operators do not name their arguments.
        result = None if node is None or node.control or node.host else self._made(node, tensor)
        if result is None or len(result) != tensor.rank:
            return self._of_views(tensor)
        return tuple(ONE if most == 1 else size for size, most in zip(result, tensor.max_shape, strict=True))

    def _viewed_at_bound(self, tensor: Tensor) -> bool:
        """Whether a view to fixed sizes takes as many elements as there are at the bound, so that all must be live."""
        return any(
            node.name in VIEWS
            and all(isinstance(size, int) and size > 0 for size in node.args[1])
            and prod(node.args[1]) == prod(tensor.max_shape)
            for node in self._consumers(tensor)
        )

    def _of_views(self, tensor: Tensor) -> Sizes:
        """Symbols of its own, but for a dimension that a view leaves one size for, beside all the others."""
        sizes = self._unknown(tensor)
        for node in self._consumers(tensor):
            if node.name not in VIEWS or -1 in node.args[1]:
                continue
            whole = product(tuple(map(self.of_scalar, node.args[1])))
            for axis in range(tensor.rank):
                rest = whole.over(product(sizes[:axis] + sizes[axis + 1 :]))
                if rest is not None and rest.fixed == tensor.max_shape[axis]:
                    return (*sizes[:axis], rest, *sizes[axis + 1 :])
        return sizes

    def _made(self, node: Node, tensor: Tensor) -> Sizes | None:
        """The sizes of an output of a node, if it is one whose rule is known."""
        x = node.args[0]
        if node.name in VIEWS:
            return self._viewed(x, node.args[1])
        if node.traits.moves is not None:
            return self._moved(node, tensor)
        if node.name in CONCATENATIONS:
            return self._concatenated(node.args[0], node.args[1], tensor)
        if node.name in MATRIX_PRODUCTS | ADDED_PRODUCTS:
            return self._multiplied(node.named["x"], node.named["other"])
        if node.traits.product is not None and node.traits.product.linear:
            rows = self.of(node.named[node.traits.product.weight or ""])[:1]  # none of what a damaged file says
            return (*self.of(x)[:-1], *rows)
        if node.alias or (node.name in OF_ONE_SHAPE and node.outputs[0] is tensor):
            return self.of(x)
        if node.name in LAYER_NORMS:
            own = tuple(map(self.of_scalar, node.args[1]))
            return (*self.of(x)[: x.rank - len(own)], *own) if node.outputs[0] is tensor else None
        if node.traits.pointwise is not None or node.name == POINTWISE_RESULTS:
            operands = [each for each in node.inputs if isinstance(each, Tensor)]
            if operands:
                return self._met(operands, range(-tensor.rank, 0))
            return tuple(map(self.of_scalar, node.named["size"])) if "size" in node.named else None
        if node.name == ARANGE and (node.args[0], node.args[2]) == (0, 1):
            return (self.of_scalar(node.args[1]),)
        if node.name in REDUCTIONS and node.named.get("keepdim") is True:
            reduced = axes_of(node.named["dim"], x.rank)
            return tuple(ONE if axis in reduced else size for axis, size in enumerate(self.of(x))) if reduced else None
        found = image_sizes(node, tensor, self.of, self._symbol, LiveSize)
        return self._of_rows(node, tensor) if found is None else found

    def _of_rows(self, node: Node, tensor: Tensor) -> Sizes | None:
        """Those of what is row-wise along all that is live: as many rows, and all else at its bound."""
        rows: dict[LiveSize, dict[Tensor, int]] = {}
        for value in node.inputs:
            if isinstance(value, SymInt):
                return None
            assert isinstance(value, Tensor)
            for axis, (size, most) in enumerate(zip(self.of(value), value.max_shape, strict=True)):
                if size.fixed is None and value not in rows.setdefault(size, {}):
                    rows[size][value] = axis
                elif size.fixed != most:
                    return None
        result = [*map(LiveSize, tensor.max_shape)]
        for size, carrying in rows.items():
            carried = node.carried(carrying) or {}
            counts = {each.max_shape[axis] for each, axis in carrying.items()}
            if tensor not in carried or counts != {tensor.max_shape[carried[tensor]]}:
                return None
            result[carried[tensor]] = size
        return tuple(result) if node.traits.rows else None

    def _viewed(self, x: Tensor, sizes: tuple[Any, ...]) -> Sizes | None:
        rest = product(self.of(x)).over(product(tuple(self.of_scalar(size) for size in sizes if size != -1)))
        if rest is None and -1 in sizes:
            return None
        return tuple(rest if size == -1 and rest is not None else self.of_scalar(size) for size in sizes)

    def _moved(self, node: Node, tensor: Tensor) -> Sizes | None:
        """Sizes that a movement leaves as they are, and those that do not follow from live ones."""
        before = self.of(node.args[0])
        maps = axis_maps(node, [size.fixed for size in before])
        if maps is None:
            return None
        found, after = maps[node.outputs.index(tensor)], list[LiveSize]()
        for place, (size, steps) in enumerate(zip(found.sizes, found.steps, strict=True)):
            if isinstance(size, LiveNumber) and size.scalar is not None:
                after.append(self.of_scalar(size.scalar))
            elif (axis := found.whole(place)) is not None:
                after.append(before[axis])
            elif not isinstance(size, LiveNumber) and all(before[each].fixed is not None for each in steps):
                after.append(LiveSize(size))
            else:
                return None
        return tuple(after)

    def _concatenated(self, parts: tuple[Tensor, ...], dim: int, tensor: Tensor) -> Sizes | None:
        """Sizes that all parts have, and their sum along a dimension."""
        axis = axis_of(dim, tensor.rank)
        if any(part.rank != tensor.rank for part in parts):
            return None
        met = self._met(parts, (each - tensor.rank for each in range(tensor.rank) if each != axis))
        return None if met is None else (*met[:axis], self._sum([self.of(part)[axis] for part in parts]), *met[axis:])

    def _sum(self, sizes: list[LiveSize]) -> LiveSize:
        """A number where all are; else a symbol, the same one for the same summands in any order."""
        summands: list[LiveSize] = []
        for size in sizes:
            known = self._summands.get(size.symbols[0]) if size.factor == 1 and len(size.symbols) == 1 else None
            summands += known or [size]
        numbers = sum(size.factor for size in summands if not size.symbols)
        live = sorted(size for size in summands if size.symbols)
        if not live or (len(live) == 1 and not numbers):
            return live[0] if live else LiveSize(numbers)
        whole = [*live, LiveSize(numbers)] if numbers else live
        found = self._symbol(("sum", *whole))
        self._summands[found.symbols[0]] = whole
        return found

    def _multiplied(self, x: Tensor, other: Tensor) -> Sizes | None:
        """Matrices of both, in as many batches as both have."""
        if not x.rank == other.rank > 1:
            return None
        lead = self._met((x, other), range(-x.rank, -2))
        return None if lead is None else (*lead, self.of(x)[-2], self.of(other)[-1])

    def _met(self, operands: Sequence[Tensor], axes: Iterable[int]) -> Sizes | None:
        """One size for all operands along each of these dimensions, counted from the last, but for those of one."""
        found: list[LiveSize] = []
        for axis in axes:
            pairs = [(self.of(each)[axis], each.max_shape[axis]) for each in operands if each.rank >= -axis]
            longer = [(size, most) for size, most in pairs if size != ONE]
            numbers = [(size, most) for size, most in longer if size.fixed == most]
            if numbers and len({most for _, most in longer}) == 1:  # all others are that, or one
                longer = numbers
            if len({most for _, most in longer}) > 1 or not (self._are_met or len({size for size, _ in longer}) < 2):
                return None
            found.append(min((size for size, _ in longer), key=self._doubt, default=ONE))
        return tuple(found)

    def _doubt(self, size: LiveSize) -> int:
        """The less, the more the program says of a size."""
        return sum(symbol not in self._asked for symbol in size.symbols) * 2 + bool(size.symbols)

    def _computed(self, scalar: SymInt) -> LiveSize:
        """What a live scalar is computed from: sizes, and sums, products and quotients of scalars."""
        node = self._producer(scalar)
        if node is None or node.control:
            return self._symbol(scalar)
        if node.traits.role is Role.SIZE and isinstance(node.args[1], int):
            tensor = node.args[0]
            size = self.of(tensor)[axis_of(node.args[1], tensor.rank)]
            self._asked.update(size.symbols)
            return size
        if node.name in SCALAR_PRODUCTS | SCALAR_QUOTIENTS:
            left, right = (self.of_scalar(each) for each in node.args[:2])
            result = left.times(right) if node.name in SCALAR_PRODUCTS else left.over(right)
            return self._symbol(scalar) if result is None else result
        if node.name in SCALAR_SUMS:
            return self._sum([self.of_scalar(each) for each in node.args[:2]])
        return self._symbol(scalar)


def _first(symbol: int, same: dict[int, int]) -> int:
    """The symbol that stands for all that are equal to one."""
    while symbol in same:
        symbol = same[symbol]
    return symbol
