"""One node as a program of its own, which runs on arrays from anywhere, at any live shapes below its bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from liveshape.device.protocol import Device
from liveshape.graph import Graph, Limits, Node, Tensor, Value
from liveshape.lower.rewriting import renamed
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from liveshape.run.host import compile_with_host


class SingleNode:
    """A node with its kernels on a device; what it reads is given at every call, but for constants.

    Example: `SingleNode(graph, graph.nodes[3], device, device.limits).run({x: np.ones(3, "float32")})`.
    """

    def __init__(self, graph: Graph, node: Node, device: Device, limits: Limits) -> None:
        self.node, self._device, self._limits = node, device, limits
        self.graph, self._own = _alone(graph, node)
        self._held: Executor | None = None

    @property
    def reads(self) -> tuple[Value, ...]:
        """The values of the program that are given at a call."""
        return tuple(self._own)

    @property
    def kernels(self) -> list[str]:
        """The kernels of the last call."""
        return [label for label, *_ in self.executor.live.described(0)]

    @property
    def executor(self) -> Executor:
        """Its executor, made when it runs, unless it is there."""
        if self._held is None:
            self._held = Executor(compile_with_host(self.graph, self._limits, Choices(warm=False)), self._device)
        return self._held

    @property
    def nbytes(self) -> int:
        """What its executor takes, on the device and to read results."""
        plan = self.executor.plan
        return sum(plan.memory.blocks) + plan.choices.transfers * plan.staging_bytes

    def run(self, known: Mapping[Value, Any]) -> dict[Value, Any]:
        """What it writes, in memory that was poisoned before."""
        self.executor.poison()
        results = self.executor.execute([known[value] for value in self._own])
        return dict(zip(self.node.written, results, strict=True))

    def close(self) -> None:
        """Free its memory, until it runs again."""
        held, self._held = self._held, None
        if held is not None:
            held.close()


def _alone(graph: Graph, node: Node) -> tuple[Graph, dict[Value, Value]]:
    """The graph of one node, and its inputs by the values of the program that they are."""
    own: dict[Value, Value] = {}
    for value in dict.fromkeys((*node.inputs, *(each for each in node.written if each in _mutated(node)))):
        constant = isinstance(value, Tensor) and value.constant is not None
        if not constant or graph.writers.get(value):
            # State has contents of its own at every call.
            own[value] = replace(value, constant=None) if constant else value  # type: ignore[call-arg]
    made = replace(node, index=0, args=renamed(node.args, own))
    values = tuple(dict.fromkeys((*made.inputs, *made.written)))
    return Graph(f"{graph.name}, {node.label}", (made,), values, tuple(own.values()), made.written), own


def _mutated(node: Node) -> set[Value]:
    return {node.args[position] for position in node.mutates if isinstance(node.args[position], Value)}
