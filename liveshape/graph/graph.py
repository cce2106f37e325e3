"""What a program is: tensors with a bound and a live shape, live scalars, and nodes in program order.

Values tell the graph when they move; the graph keeps, per node, whether it must be planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph.constants import Constant
from liveshape.graph.elements import padded, prod, storage_bytes
from liveshape.graph.limits import Limits

Shape = tuple[int, ...]


@dataclass(eq=False)
class Storage:
    """Memory that one or several aliased tensors share; `block` is its place in the memory plan."""

    nbytes: int
    block: int = -1
    persistent: bool = False


class Value:
    """A tensor or a live scalar; `consumers` are the nodes to plan again when it moves."""

    __slots__ = ("consumers", "name", "pending", "writers")

    def __init__(self, name: str) -> None:
        self.name = name
        self.consumers: tuple[int, ...] = ()
        self.writers: tuple[int, ...] = ()
        self.pending = bytearray()

    def touch(self) -> None:
        """Mark every consumer for planning."""
        pending = self.pending
        for consumer in self.consumers:
            pending[consumer] = 1


class Tensor(Value):
    """A contiguous tensor: `max_shape` is its allocation and never changes, `shape` is live."""

    __slots__ = ("_shape", "below", "constant", "dtype", "host", "kind", "max_shape", "mutable", "static", "storage")

    def __init__(
        self, name: str, dtype: str, max_shape: Shape, *, constant: Constant | None = None, half: bool = True
    ) -> None:
        super().__init__(name)
        self.dtype = dtype
        self.max_shape = max_shape
        self._shape = max_shape
        self.constant = constant
        self.host: Any = None  # the caller's array of a graph input, while a step runs
        self.kind = 0  # what a kernel's variant depends on, as a number; the planner gives it
        self.below: int | None = None  # for an input whose elements pick rows of a table: how many rows there are
        self.mutable = False
        self.static = False
        self.storage = Storage(padded(storage_bytes(dtype, prod(max_shape), half)))

    @property
    def shape(self) -> Shape:
        return self._shape

    @shape.setter
    def shape(self, shape: Shape) -> None:
        if shape == self._shape:
            return
        self.check(shape)
        self._shape = shape
        self.touch()

    def check(self, shape: Shape) -> None:
        """Raise unless `shape` fits the allocation in every dimension."""
        bound = self.max_shape
        if len(shape) == len(bound):
            for size, most in zip(shape, bound, strict=True):
                if size < 0 or size > most:
                    break
            else:
                return
        raise ShapeError(
            f"{self.name}: live shape {shape} does not fit the allocated {bound}; "
            "pass a smaller shape, or export with a larger bound"
        )

    @property
    def numel(self) -> int:
        return prod(self._shape)

    @property
    def rank(self) -> int:
        return len(self.max_shape)

    def __repr__(self) -> str:
        return f"Tensor({self.name}, {self.dtype}, {self._shape} of {self.max_shape})"


class SymInt(Value):
    """A live scalar: an int, or in outer programs a float or a bool."""

    __slots__ = ("_value",)

    def __init__(self, name: str, value: int | float | bool = 0) -> None:
        super().__init__(name)
        self._value = value

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        if value != self._value:
            self._value = value
            self.touch()

    def __repr__(self) -> str:
        return f"SymInt({self.name}={self._value})"


Argument = Any  # Tensor | SymInt | int | float | bool | str | None | tuple of these


@dataclass(eq=False)
class Node:
    """One operator call. `steps` is what its generator planned last; `scratch` what it asked for at build."""

    index: int
    label: str
    name: str
    run: Callable[..., Any]
    args: tuple[Argument, ...]
    live: tuple[int, ...] = ()  # positions in args that hold a SymInt to read at every planning
    alias: bool = False
    reads_data: bool = False
    control: bool = False
    mutates: tuple[int, ...] = ()
    picks: tuple[int, int] | None = None  # positions in args: elements of the one are rows of the other
    steps: tuple[Any, ...] = ()
    scratch: list[Tensor] = field(default_factory=list)
    twin: Any = None  # what the planner knows of nodes that plan alike

    def arguments(self) -> Sequence[Argument]:
        """The arguments of the generator at this moment: live scalars by value, outputs as objects."""
        if not self.live:
            return self.args
        args = list(self.args)
        for position in self.live:
            value = args[position]
            args[position] = (
                value.value
                if isinstance(value, SymInt)
                else tuple(item.value if isinstance(item, SymInt) else item for item in value)
            )
        return args

    @property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(_values(self.args[-1]))

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(value for argument in self.args[:-1] for value in _values(argument))

    @property
    def written(self) -> tuple[Value, ...]:
        """Every value whose contents this node changes: its outputs and what it mutates in place."""
        mutated = tuple(value for position in self.mutates for value in _values(self.args[position]))
        return self.outputs + mutated


def _values(argument: Argument) -> list[Value]:
    if isinstance(argument, Value):
        return [argument]
    if isinstance(argument, tuple):
        return [item for item in argument if isinstance(item, Value)]
    return []


def _is_volatile(node: Node) -> bool:
    return any(len(value.writers) > 1 or (isinstance(value, SymInt) and value in node.inputs) for value in node.written)


@dataclass(eq=False)
class Graph:
    """A program: nodes in order, its values, and which of them the caller gives and gets."""

    name: str
    nodes: list[Node]
    values: list[Value]
    inputs: list[Argument]
    outputs: list[Argument]
    limits: Limits = field(default_factory=Limits)
    file_bytes: int = 0  # what the file's own memory plan would take, in device bytes
    pending: bytearray = field(init=False)
    data_nodes: tuple[int, ...] = field(init=False)
    controls: tuple[int, ...] = field(init=False)
    volatile: tuple[int, ...] = field(init=False)  # planned whenever reached: another node undoes what they set
    carried: tuple[tuple[SymInt, Any], ...] = field(init=False)

    def __post_init__(self) -> None:
        self.pending = bytearray(b"\x01" * len(self.nodes))
        consumers: dict[Value, list[int]] = {}
        writers: dict[Value, list[int]] = {}
        for node in self.nodes:
            for value in node.inputs:
                consumers.setdefault(value, []).append(node.index)
            for value in node.written:
                writers.setdefault(value, []).append(node.index)
        for value in {*self.values, *consumers, *writers}:
            value.consumers = tuple(dict.fromkeys(consumers.get(value, ())))
            value.writers = tuple(dict.fromkeys(writers.get(value, ())))
            if isinstance(value, Tensor):
                value.mutable = bool(value.writers)
            value.pending = self.pending
        self.data_nodes = tuple(node.index for node in self.nodes if node.reads_data)
        self.controls = tuple(node.index for node in self.nodes if node.control)
        self.volatile = tuple(node.index for node in self.nodes if _is_volatile(node))
        self.carried = self._carried()

    def _carried(self) -> tuple[tuple[SymInt, Any], ...]:
        """Scalars that are read before they are written, as loop counters are, and what a call begins with."""
        known = {value for value in self.inputs if isinstance(value, SymInt)}
        found: dict[SymInt, Any] = {}
        for node in self.nodes:
            for value in node.inputs:
                if isinstance(value, SymInt) and value not in known and value.writers:
                    found.setdefault(value, value.value)
            known.update(value for value in node.written if isinstance(value, SymInt))
        return tuple(found.items())

    @property
    def tensors(self) -> list[Tensor]:
        return [value for value in self.values if isinstance(value, Tensor)]

    def invalidate(self) -> None:
        """Forget every plan: the next walk plans each node again."""
        self.pending[:] = b"\x01" * len(self.pending)
