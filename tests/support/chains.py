"""A small builder for graphs of several nodes, for tests of the engine itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from liveshape import ops
from liveshape.device.protocol import Device
from liveshape.graph import Graph, Node, SymInt, Tensor
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from liveshape.run.host import find_on_host


class Chain:
    """Adds values and nodes in program order; `graph` closes it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.values: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def tensor(self, shape: tuple[int, ...], dtype: str = "float32", name: str = "") -> Tensor:
        return self._keep(Tensor(name or f"value {len(self.values)}", dtype, shape))

    def input(self, shape: tuple[int, ...], dtype: str = "float32", static: bool = False) -> Tensor:
        tensor = self._keep(Tensor(f"input {len(self.inputs)}", dtype, shape, static=static))
        self.inputs.append(tensor)
        return tensor

    def scalar(self, given: bool = False, value: int | float | bool = 0) -> SymInt:
        made = self._keep(SymInt(f"value {len(self.values)}", value))
        if given:
            self.inputs.append(made)
        return made

    def constant(self, array: np.ndarray) -> Tensor:
        data = memoryview(np.ascontiguousarray(array)).cast("B")
        name = f"value {len(self.values)}"
        tensor = Tensor(name, str(array.dtype), array.shape, constant=data)
        return self._keep(tensor)

    def node(self, operator: str, *args: Any) -> Any:
        """Add a node; its output is the last argument, and comes back."""
        index = len(self.nodes)
        self.nodes.append(ops.OPS[operator].bind(index, f"{operator} (node {index})", args))
        return args[-1]

    def on_host(self, operator: str, *args: Any) -> Any:
        """Add a node that the host computes, even where a kernel could; what it gives comes back."""
        found = find_on_host(operator)
        assert not isinstance(found, str), found
        self.nodes.append(found.bind(len(self.nodes), f"{operator} (node {len(self.nodes)})", args))
        return args[-1]

    def graph(self, *outputs: Any, name: str = "chain") -> Graph:
        return Graph(name, tuple(self.nodes), tuple(self.values), tuple(self.inputs), outputs)

    def _keep(self, value: Any) -> Any:
        self.values.append(value)
        return value


def executor_of(graph: Graph, device: Device, **choices: Any) -> Executor:
    """An executor of a graph, planned for its device."""
    return Executor(compile(graph, device.limits, Choices(**choices)), device)
