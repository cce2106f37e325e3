"""The one place that knows how a program becomes a graph and how a graph runs under a set of choices."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from liveshape.device.webgpu import Device, _adapters, limits_of, open_device
from liveshape.graph import Graph, Limits, Tensor
from liveshape.lower.lowering import simplified
from liveshape.plan import planning
from liveshape.run.executor import Executor
from tests.graphs.program import Program, Ref
from tests.support.chains import Chain

# Odd limits: no power of two, so small that tensors are split, few groups, few invocations, no halves.
LIMITS: dict[str, dict[str, Any]] = {
    "small": {
        "half": False, "max_binding_bytes": 2052, "max_buffer_bytes": 10260, "max_bindings": 200, "max_groups": 33,
        "max_invocations": 48, "max_parts": 7,
    },
    "narrow": {"max_groups": 7, "max_invocations": 96, "max_parts": 5, "uniform_alignment": 256},
    "split": {"max_binding_bytes": 4000, "max_buffer_bytes": 12000, "max_bindings": 24},
    "plain": {"half": False, "max_parts": 3, "max_binding_bytes": 20000, "max_bindings": 8},
}  # fmt: skip


@dataclass(frozen=True)
class Choices:
    """How a program is compiled; `limits` is a name in LIMITS, or empty for the device's own."""

    aliasing: bool = True
    fusion: bool = True
    classes: bool = True
    limits: str = ""
    warm: bool = False  # compile every route before the first call; else each is compiled when it is met


class Interrupt(BaseException):
    """What is raised in the middle of a call."""


@functools.cache
def device_of(name: str) -> Device:
    """A device with these limits."""
    if not name:
        return open_device()
    changes = dict(LIMITS[name])
    # What is lowered may not exceed what the adapter has.
    changes["max_bindings"] = min(changes.get("max_bindings", 8), open_device().limits.max_bindings)
    return Device(_adapters()[0], 0, limits=limits_of(open_device(), **changes))


def graph_of(program: Program, limits: Limits, fusion: bool) -> tuple[Graph, dict[Ref, Any]]:
    """A new graph of a program, and its values."""
    chain = Chain(limits)
    found: dict[Ref, Any] = {}
    for number, value in enumerate(program.values):
        if value.role in ("scalar", "given"):
            made: Any = chain.scalar(given=value.role == "given")
        elif value.role == "input":
            made = chain.input(value.bound, value.dtype)
        elif value.role == "result":
            made = chain.tensor(value.bound, value.dtype)
        else:
            made = chain.constant(value.data)
        found[Ref(number)] = made

    def read(argument: Any) -> Any:
        if isinstance(argument, tuple):
            return tuple(read(item) for item in argument)
        return found[argument] if isinstance(argument, Ref) else argument

    for call in program.calls:
        chain.node(call.operator, *(read(argument) for argument in call.args))
    graph = chain.graph(*(read(ref) for ref in program.outputs), name=f"seed {program.seed}")
    return simplified(graph) if fusion else graph, found


class Run:
    """A program on a device under some choices."""

    def __init__(self, program: Program, choices: Choices) -> None:
        self.program = program
        self.device = device_of(choices.limits)
        graph, self.values = graph_of(program, self.device.limits, choices.fusion)
        with contextlib.ExitStack() as patches:
            if not choices.classes:
                patches.enter_context(mock.patch.object(planning, "find_twins", return_value=None))
            if not choices.warm:
                patches.enter_context(mock.patch.object(Executor, "_warm", return_value=None))
            self.executor = Executor(graph, self.device, aliasing=choices.aliasing)
        self.graph = graph

    def call(self, turn: int) -> list[Any]:
        """One call; whatever is not live is poisoned before."""
        self.executor.poison()
        return self.executor.execute(self.program.given(turn))

    def states(self) -> list[Any]:
        """What every state holds."""
        return [self.executor.state(self.values[ref]) if self._lives(ref) else None for ref in self.program.states]

    def _lives(self, ref: Ref) -> bool:
        return bool(self.values[ref].storage.block >= 0)

    def resume(self, point: int) -> list[Any]:
        """The end of the last call once more."""
        return self.executor.resume(point).result()

    def resume_points(self) -> list[int]:
        """Nodes from which the rest of a call may run again: nothing that it reads from before is written in it."""
        nodes = self.graph.nodes
        if self.graph.controls or self.graph.data_nodes:
            return []
        return [point for point in range(1, len(nodes)) if self._can_resume(point)]

    def _can_resume(self, point: int) -> bool:
        fresh: set[int] = set()
        old: set[int] = set()
        for node in self.graph.nodes[point:]:
            written = [value for value in (*node.written, *node.scratch) if isinstance(value, Tensor)]
            mutated = [node.args[place] for place in node.mutates]
            read = [value for value in (*node.inputs, *mutated) if isinstance(value, Tensor)]
            if node.name == "liveshape.record":
                read += node.outputs  # the rest of it stays
            old |= {value.storage.block for value in read} - fresh
            fresh |= {value.storage.block for value in written}
        return old.isdisjoint(fresh)

    @contextlib.contextmanager
    def interrupted(self, place: str, after: int) -> Iterator[dict[str, int]]:
        """Raise once, at the n-th time that a place is reached: planning a node, or a call of the device.

        Gives how often each place was passed.
        """
        passed = dict.fromkeys(("plan", "write", "write_arena", "submit", "read"), 0)

        def wrapped(name: str, original: Any) -> Any:
            def stopping(*args: Any, **options: Any) -> Any:
                if name == place and passed[name] == after:
                    passed[name] += 1
                    raise Interrupt(f"{name} {after}")
                passed[name] += 1
                return original(*args, **options)

            return stopping

        with contextlib.ExitStack() as patches:
            for name in ("write", "write_arena", "submit", "read"):
                original = getattr(self.device, name)
                patches.enter_context(mock.patch.object(self.device, name, wrapped(name, original)))
            planner = self.executor.planner
            patches.enter_context(mock.patch.object(planner, "_plan", wrapped("plan", planner._plan)))
            yield passed
