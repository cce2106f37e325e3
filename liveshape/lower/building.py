"""The graph in the making: what the outer program and its delegates both add to it, and what could not be added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from liveshape import ops
from liveshape.errors import FormatError
from liveshape.formats import Program
from liveshape.graph import Limits, Node, SymInt, Tensor, Value
from liveshape.graph.elements import prod


@dataclass(frozen=True)
class Problem:
    """Why a part of a program cannot run here."""

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.reason}"


@dataclass(eq=False)
class Builder:
    """Collects nodes and values in program order, and every problem instead of stopping at the first."""

    program: Program
    data: Mapping[str, memoryview]
    limits: Limits
    nodes: list[Node] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    file_bytes: int = 0  # of the memory plans in the file

    def keep(self, value: Any) -> Any:
        """Register a value and hand it back."""
        self.values.append(value)
        return value

    def refuse(self, node: str, operator: str, reason: str) -> None:
        """Note a part that cannot run here."""
        self.problems.append(Problem(node, operator, reason))

    def tensor(self, label: str, dtype: str, shape: tuple[int, ...], data: memoryview | None) -> Tensor:
        """A tensor at its bound; with data it is a constant, and keeps memory of its own."""
        if prod(shape) >= 1 << 32:
            self.refuse(label, "", f"shape {shape} has 2**32 elements or more")
        if data is not None:
            needed = prod(shape) * np.dtype(dtype).itemsize
            if len(data) < needed:
                raise FormatError(f"{label}: the data has {len(data)} bytes, {dtype} {shape} needs {needed}")
            data = data[:needed]
        tensor = Tensor(label, dtype, shape, constant=data, half=self.limits.half)
        tensor.storage.persistent = data is not None
        return self.keep(tensor)  # type: ignore[no-any-return]

    def named(self, key: str, label: str) -> memoryview:
        """The data under a key, from the program or from the files beside it."""
        for source in (self.program.named_data, self.data):
            if key in source:
                return source[key]
        raise FormatError(f"{label}: the file refers to data {key!r} that it does not hold; give its .ptd as data_path")

    def node(self, operator: str, label: str, args: tuple[Any, ...]) -> Node | None:
        """Add an operator call; None, and a problem, if there is no such operator."""
        entry = ops.OPS.get(operator)
        if entry is None:
            self.refuse(label, operator, f"operator {operator} is not supported")
            return None
        node = entry.bind(len(self.nodes), label, args)
        self.nodes.append(node)
        self._keep_apart(node)
        return node

    def _keep_apart(self, node: Node) -> None:
        """A dispatch cannot read and write one buffer: an output that is an input too is moved there afterwards."""
        mutated = {value for position in node.mutates for value in _tensors(node.args[position])}
        doubled = [value for value in node.outputs if isinstance(value, Tensor) and value in node.inputs]
        copies = {
            value: self.keep(Tensor(f"{value.name} anew", value.dtype, value.max_shape, half=self.limits.half))
            for value in doubled
            if value not in mutated
        }
        if copies:
            output = node.args[-1]
            many = isinstance(output, tuple)
            renamed = tuple(copies.get(item, item) for item in output) if many else copies[output]
            node.args = (*node.args[:-1], renamed)
            for value, copy in copies.items():
                self.node("liveshape.move", f"{node.label}, its result", (copy, value))

    def move(self, source: Any, target: Any, label: str) -> None:
        """Make `target` hold what `source` holds, converting between storages and between tensors and scalars."""
        if source is target:
            return
        if isinstance(target, Tensor) and isinstance(source, Tensor):
            self.node("liveshape.move", label, (source, target))
        elif isinstance(target, SymInt) and isinstance(source, Tensor):
            self.node("aten::_local_scalar_dense", label, (source, target))
        elif isinstance(target, SymInt) and isinstance(source, (SymInt, bool, int, float)):
            self.node("liveshape.assign", label, (source, target))
        elif isinstance(target, tuple) and isinstance(source, tuple) and len(target) == len(source):
            for one, other in zip(source, target, strict=True):
                self.move(one, other, label)
        else:
            self.refuse(label, "move", f"{source!r} cannot be moved to {target!r}")


def _tensors(argument: Any) -> tuple[Any, ...]:
    return argument if isinstance(argument, tuple) else (argument,)
