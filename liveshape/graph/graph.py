"""What a program is: tensors with a bound, live scalars, and nodes in program order. Nothing here ever changes.

What moves while a program runs, shapes and scalars, is kept in an object of its own (`plan/plan_state.py`), so that one
graph can be planned in several ways and run by several users at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph.constants import Constant
from liveshape.graph.decisions import Decision
from liveshape.graph.elements import padded, storage_bytes
from liveshape.graph.sources import NodeSource
from liveshape.graph.traits import NOTHING_KNOWN, Traits

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor or a live scalar."""

    name: str


@dataclass(frozen=True, eq=False)
class Tensor(Value):
    """A contiguous tensor: `max_shape` is its allocation; a live shape is at most that in every dimension."""

    dtype: str
    max_shape: Shape
    constant: Constant | None = None  # what it holds when a program is loaded
    static: bool = False  # an input that always has its bound

    def check(self, shape: Shape) -> None:
        """Raise unless `shape` fits the allocation in every dimension."""
        bound = self.max_shape
        if len(shape) == len(bound):
            for size, most in zip(shape, bound, strict=True):
                if size < 0 or size > most:
                    break
            else:
                return
        else:
            raise ShapeError(
                f"{self.name}: rank {len(shape)} was given, {len(bound)} is needed: {shape} for up to {bound}; "
                "add or drop dimensions of size 1"
            )
        raise ShapeError(
            f"{self.name}: live shape {shape} does not fit the allocated {bound}; "
            "pass a smaller shape, or export with a larger bound"
        )

    @property
    def rank(self) -> int:
        return len(self.max_shape)

    def __repr__(self) -> str:
        return f"Tensor({self.name}, {self.dtype}, {self.max_shape})"


@dataclass(frozen=True, eq=False)
class SymInt(Value):
    """A live scalar: an int, or in outer programs a float or a bool. A call begins with `initial` if none is set."""

    initial: int | float | bool = 0

    @property
    def kind(self) -> type:
        """Which of the three it is."""
        return type(self.initial)

    def __repr__(self) -> str:
        return f"SymInt({self.name})"


Place = tuple[int, ...]  # of an argument, or of an item of it
Argument = Any  # Tensor | SymInt | int | float | bool | str | None | tuple of these


@dataclass(frozen=True, eq=False)
class Node:
    """One operator call: the last argument is what it gives."""

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
    gathers: tuple[Place, Place] | None = None  # in args: elements of the one tensor are rows of the other
    host: bool = False  # the host fallback computes it, from all that it reads
    parameters: tuple[str, ...] = ()  # the names of its arguments; none where the host computes it
    traits: Traits = NOTHING_KNOWN
    sources: tuple[NodeSource, ...] = ()  # the nodes of the file that it stands for

    def at(self, index: int) -> Node:
        """The same call at another index, with what was derived from its arguments.

        Example: `[node.at(index) for index, node in enumerate(kept)]`.
        """
        if index == self.index:
            return self
        made = object.__new__(Node)
        made.__dict__.update(self.__dict__, index=index)
        return made

    @cached_property
    def named(self) -> Mapping[str, Argument]:
        """Its arguments by the operator's parameters."""
        return dict(zip(self.parameters, self.args, strict=False))

    @cached_property
    def cache_axes(self) -> Mapping[int, int]:
        """The positions in args of KV caches, with their axis of positions: accessed up to the newest row alone."""
        cache = self.traits.cache
        if cache is None or not cache.holds(self.named):
            return {}
        return {self.parameters.index(name): axis for name, axis in cache.axes.items()}

    @property
    def cache_start(self) -> Argument:
        """The position of the first new row of its KV caches, an int or a live scalar; None if it has none.

        A tensor is the table of rows that have a slot each.
        """
        start = None if self.traits.cache is None else self.traits.cache.start
        return None if start is None else self.named[start]

    def carried(self, rows: Mapping[Tensor, int]) -> Mapping[Tensor, int] | None:
        """Which outputs carry rows, given the inputs that do; None where it may not be row-wise: see `RowRule`."""
        rule = self.traits.rows
        read = {value: axis for value, axis in rows.items() if value in self.inputs}
        # What is written in place has the rows of a call as they lie, unless each goes to a slot of its own.
        mixes = bool(self.mutates) and not isinstance(self.cache_start, Tensor)
        return None if rule is None or mixes or not read else rule(self, read)

    def gathered(self, args: Sequence[Argument]) -> tuple[Any, Any] | None:
        """The ids and the table that it gathers rows of among these arguments, its own or live ones."""
        if self.gathers is None:
            return None
        ids, table = (reduce(lambda found, place: found[place], path, args) for path in self.gathers)
        return ids, table

    @cached_property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(_values(self.args[-1]))

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(value for argument in self.args[:-1] for value in _values(argument))

    @cached_property
    def written(self) -> tuple[Value, ...]:
        """Every value whose contents this node changes: its outputs and what it mutates in place."""
        mutated = tuple(value for position in self.mutates for value in _values(self.args[position]))
        return tuple(dict.fromkeys(self.outputs + mutated))


def _values(argument: Argument) -> list[Value]:
    if isinstance(argument, Value):
        return [argument]
    if isinstance(argument, tuple):
        return [item for item in argument if isinstance(item, Value)]
    return []


@dataclass(frozen=True, eq=False)
class Graph:
    """A program: nodes in order, its values, and which of them the caller gives and gets."""

    name: str
    nodes: tuple[Node, ...]
    values: tuple[Value, ...]
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    file_bytes: int = 0  # of the memory plan of the outer program, as the file has it
    file_objects: tuple[tuple[tuple[str, int], ...], ...] = ()  # (dtype, elements) of the tensors of each shared object
    decisions: tuple[Decision, ...] = ()  # of the passes that fused it

    def planned_bytes(self, half: bool) -> int:
        """What the file's own memory plan would take on a device with or without halves; 0 if it has none."""
        objects = [
            max(padded(storage_bytes(dtype, count, half)) for dtype, count in tensors) for tensors in self.file_objects
        ]
        return self.file_bytes + sum(objects)

    @cached_property
    def consumers(self) -> dict[Value, tuple[int, ...]]:
        """The nodes that read each value."""
        return self._indices(lambda node: node.inputs)

    @cached_property
    def writers(self) -> dict[Value, tuple[int, ...]]:
        """The nodes that write each value."""
        return self._indices(lambda node: node.written)

    def _indices(self, values_of: Callable[[Node], Iterable[Value]]) -> dict[Value, tuple[int, ...]]:
        found: dict[Value, list[int]] = {value: [] for value in self.values}
        for node in self.nodes:
            for value in dict.fromkeys(values_of(node)):
                found.setdefault(value, []).append(node.index)
        return {value: tuple(indices) for value, indices in found.items()}

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that the program names or a node touches."""
        return tuple(value for value in self.consumers | self.writers if isinstance(value, Tensor))

    @cached_property
    def given(self) -> frozenset[Value]:
        """The inputs that are values."""
        return frozenset(value for value in self.inputs if isinstance(value, Value))

    @cached_property
    def controls(self) -> tuple[int, ...]:
        """The nodes that may jump."""
        return tuple(node.index for node in self.nodes if node.control)

    @cached_property
    def data_nodes(self) -> tuple[int, ...]:
        """The nodes whose plan depends on data."""
        return tuple(node.index for node in self.nodes if node.reads_data)

    @cached_property
    def volatile(self) -> tuple[int, ...]:
        """The nodes to plan whenever they are reached: their plan reads data, or another one undoes what they set."""
        return tuple(
            node.index
            for node in self.nodes
            if node.reads_data
            or any(
                len(self.writers[value]) > 1 or (isinstance(value, SymInt) and value in node.inputs)
                for value in node.written
            )
        )

    @cached_property
    def loop_carried(self) -> tuple[SymInt, ...]:
        """Scalars that are read before they are written, as loop counters are: a call begins with their first value."""
        known = {value for value in self.given if isinstance(value, SymInt)}
        found: dict[SymInt, None] = {}
        for node in self.nodes:
            for value in node.inputs:
                if isinstance(value, SymInt) and value not in known and self.writers[value]:
                    found.setdefault(value)
            known.update(value for value in node.written if isinstance(value, SymInt))
        return tuple(found)

    @cached_property
    def persistent(self) -> frozenset[Tensor]:
        """Tensors with memory of their own from load on: constants, and what is read before anything wrote it."""
        known: set[Value] = set(self.given)
        kept = {tensor for tensor in self.tensors if tensor.constant is not None}
        for node in self.nodes:
            kept.update(value for value in node.inputs if isinstance(value, Tensor) and value not in known)
            known.update(node.written)
        return frozenset(kept)

    @cached_property
    def loops(self) -> tuple[tuple[int, int], ...]:
        """First and last node of every loop, inner ones first."""
        jumps = ((int(self.nodes[index].args[-2]), index) for index in self.controls)
        return tuple((target, index) for target, index in jumps if target <= index)

    def regions(self, cuts: Iterable[int] = ()) -> list[int]:
        """The basic block of every node, by number: between jumps, their targets and `cuts`."""
        borders = {*cuts}
        for index in self.controls:
            borders |= {index, index + 1, int(self.nodes[index].args[-2])}
        found, region = [], 0
        for index in range(len(self.nodes)):
            region += index in borders
            found.append(region)
        return found
