"""The graph in the making: what the outer program and its delegates both add to it, and what could not be added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from liveshape import ops
from liveshape.errors import FormatError
from liveshape.formats import PteFile
from liveshape.formats.dtypes import ITEM_SIZES
from liveshape.graph import Node, SymInt, Tensor, Value
from liveshape.graph.elements import prod
from liveshape.graph.sources import NodeSource
from liveshape.lower.problems import Problem
from liveshape.lower.rewriting import renamed
from liveshape.ops import control, symint
from liveshape.ops.host_operator import FindOnHost, HostOperator

# What a file may cost: so much for nothing, so much for each of its bytes, and what a node costs of that.
_FREE, _WORTH, NODE_COST = 1 << 18, 4, 64
_MOVE, _ASSIGN = ops.defined_by(control.move), ops.defined_by(control.assign)
_ELEMENT = ops.defined_by(symint.local_scalar_dense)


@dataclass(eq=False)
class Builder:
    """Collects nodes and values in program order, and every problem instead of stopping at the first."""

    program: PteFile
    data: Mapping[str, memoryview]
    find_on_host: FindOnHost | None = None  # the host fallback for operators without a kernel
    nodes: list[Node] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    file_objects: list[tuple[tuple[str, int], ...]] = field(default_factory=list)  # that delegates plan to share
    sources: tuple[NodeSource, ...] = ()  # the node of the file that is added now
    _cost: int = 0
    _beside: dict[str, int] = field(default_factory=dict)  # bytes of data in other files
    # The first bytes of longer data, by its id, which could be another's if it were not kept, and their count.
    _shorter: dict[tuple[int, int], tuple[memoryview, memoryview]] = field(default_factory=dict)

    def charge(self, cost: int, what: str) -> None:
        """Pay for something that a few bytes of a file can ask for again and again.

        Example: `builder.charge(len(data), "a constant in another order")`.
        """
        self._cost += cost
        if self._cost > _FREE and self._cost > _FREE + _WORTH * self._nbytes:
            raise FormatError(
                f"{what}: the file asks for the same things over and over, beyond what {self._nbytes} bytes pay for; "
                "it is damaged, export it again"
            )

    @property
    def _nbytes(self) -> int:
        return self.program.nbytes + sum(self._beside.values())

    def keep(self, value: Any) -> Any:
        """Register a value and return it."""
        self.values.append(value)
        return value

    def refuse(self, node: str, operator: str, reason: str) -> None:
        """Note a part that cannot run here."""
        self.problems.append(Problem(node, operator, reason))

    def tensor(
        self, label: str, dtype: str, shape: tuple[int, ...], data: memoryview | None, static: bool = False
    ) -> Tensor:
        """A tensor at its bound; with data it is a constant."""
        if prod(shape) >= 1 << 32:
            self.refuse(label, "", f"shape {shape} has 2**32 elements or more")
        if data is not None:
            needed = prod(shape) * ITEM_SIZES[dtype]
            if len(data) < needed:
                raise FormatError(f"{label}: the data has {len(data)} bytes, {dtype} {shape} needs {needed}")
            if len(data) > needed:
                data = self._shorter.setdefault((id(data), needed), (data, data[:needed]))[1]
        return self.keep(Tensor(label, dtype, shape, data, static))  # type: ignore[no-any-return]

    def named(self, key: str, label: str) -> memoryview:
        """The data under a key, from the program or from the files beside it."""
        for source in (self.program.named_data, self.data):
            if key in source:
                found = source[key]
                if source is self.data:
                    self._beside[key] = len(found)
                return found
        raise FormatError(f"{label}: the file refers to data {key!r} that it does not hold; give its .ptd as data_path")

    def entry(self, operator: str) -> ops.Op | HostOperator | str:
        """What a file means by a name, on the device or else on the host; or why it is nothing."""
        found = ops.callable_by_files(operator)
        if found is not None:
            return found
        # Names of ours in a file are no operators of torch's, whatever the host has.
        on_host = self.find_on_host if not operator.startswith(ops.INTERNAL) else None
        fallback = "" if on_host is None else on_host(operator)
        return f"no kernel{fallback and f', and {fallback}'}" if isinstance(fallback, str) else fallback

    def call(self, operator: str, label: str, args: tuple[Any, ...]) -> None:
        """Add a call that a file makes; a problem if there is no such operator."""
        self._charge_call(label, args)
        entry = self.entry(operator)
        if isinstance(entry, str):
            self.refuse(label, operator, entry)
        elif isinstance(entry, HostOperator):
            # It has read everything before it writes anything, so it needs none of the copies below.
            self.nodes.append(entry.bind(len(self.nodes), label, args, self.sources))
        else:
            self.node(entry, label, args)

    def node(self, operator: ops.Op, label: str, args: tuple[Any, ...]) -> Node:
        """Add a node of any operator, those that no file may call among them."""
        node = self._without_self_alias(operator.bind(len(self.nodes), label, args, self.sources))
        copies = self._copies(node)
        if copies:
            output = node.args[-1]
            many = isinstance(output, tuple)
            outputs = tuple(copies.get(item, item) for item in output) if many else copies[output]
            node = replace(node, args=(*node.args[:-1], outputs))
        self.nodes.append(node)
        for value, copy in copies.items():
            self.node(_MOVE, f"{node.label}, its result", (copy, value))
        return node

    def _charge_call(self, label: str, args: tuple[Any, ...]) -> None:
        """A delegate is inlined at every call of it, and a list is read by every operator that names it."""
        self.charge(NODE_COST + sum(len(each) for each in args if isinstance(each, tuple)), label)

    def _without_self_alias(self, node: Node) -> Node:
        """What a node mutates in place and also reads by another argument is read from a copy made before."""
        mutated = {value for position in node.mutates for value in _tensors(node.args[position])}
        doubled = {
            value
            for position, argument in enumerate(node.args[:-1])
            if position not in node.mutates
            for value in _tensors(argument)
            if isinstance(value, Tensor) and value in mutated
        }
        copies: dict[Value, Value] = {}
        for value in doubled:
            copies[value] = self.keep(Tensor(f"{value.name} before", value.dtype, value.max_shape))
            self.node(_MOVE, f"{node.label}, what it reads", (value, copies[value]))
        args = tuple(
            argument if position in node.mutates else renamed(argument, copies)
            for position, argument in enumerate(node.args[:-1])
        )
        return replace(node, index=len(self.nodes), args=(*args, node.args[-1])) if copies else node

    def _copies(self, node: Node) -> dict[Value, Tensor]:
        """A dispatch cannot read and write one buffer: an output that aliases an input is moved there afterwards."""
        mutated = {value for position in node.mutates for value in _tensors(node.args[position])}
        doubled = [value for value in node.outputs if isinstance(value, Tensor) and value in node.inputs]
        return {
            value: self.keep(Tensor(f"{value.name} anew", value.dtype, value.max_shape))
            for value in doubled
            if value not in mutated
        }

    def move(self, source: Any, target: Any, label: str) -> None:
        """Make `target` hold what `source` holds, converting between storages and between tensors and scalars."""
        if source is target:
            return
        if isinstance(target, Tensor) and isinstance(source, Tensor):
            self.node(_MOVE, label, (source, target))
        elif isinstance(target, SymInt) and isinstance(source, Tensor):
            self.node(_ELEMENT, label, (source, target))
        elif isinstance(target, SymInt) and isinstance(source, (SymInt, bool, int, float)):
            self.node(_ASSIGN, label, (source, target))
        elif isinstance(target, tuple) and isinstance(source, tuple) and len(target) == len(source):
            for one, other in zip(source, target, strict=True):
                self.move(one, other, label)
        else:
            self.refuse(label, "move", f"{source!r} cannot be moved to {target!r}")


def _tensors(argument: Any) -> tuple[Any, ...]:
    return argument if isinstance(argument, tuple) else (argument,)
