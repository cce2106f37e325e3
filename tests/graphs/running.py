"""The one place that knows how a graph runs under a set of choices."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch.ao.quantization.fx._decomposed  # noqa: F401  so that the host knows its operators, whatever ran before

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.errors import PlanError
from liveshape.graph import Graph
from liveshape.lower.live_sizes import LiveSizes
from liveshape.plan import plan
from liveshape.plan.compiling import check_resume, compile
from liveshape.plan.plan_state import PlanState
from liveshape.run.executor import Executor
from liveshape.run.host import find_on_host
from tests.graphs.building import graph_of
from tests.graphs.program import Program, Ref
from tests.support.live_sizes import check_live_sizes

# Odd limits: no power of two, so small that tensors are split, few groups, few invocations or many, no halves.
LIMITS: dict[str, dict[str, Any]] = {
    "small": {
        "half": False, "max_binding_bytes": 2052, "max_buffer_bytes": 10260, "max_bindings": 200, "max_groups": 33,
        "max_invocations": 48, "max_cooperating_threads": 7,
    },
    "narrow": {"max_groups": 7, "max_invocations": 96, "max_cooperating_threads": 5, "uniform_alignment": 256},
    "split": {
        "max_binding_bytes": 4000, "max_buffer_bytes": 12000, "max_bindings": 24, "max_invocations": 256,
        "max_cooperating_threads": 256,
    },
    "plain": {"half": False, "max_cooperating_threads": 3, "max_binding_bytes": 20000, "max_bindings": 8},
}  # fmt: skip


# Those that kernels and fusions of GPUs are chosen by.
MANY_THREADS = {"max_cooperating_threads": 256, "max_invocations": 256, "lanes": 0}
_NAMED = LIMITS | {"many threads": MANY_THREADS}


@dataclass(frozen=True)
class Choices:
    """How a program is compiled; `limits` is a name in LIMITS, "many threads", or empty for the device's own."""

    aliasing: bool = True
    fusion: bool = True
    classes: bool = True
    tracing: bool = True
    limits: str = ""
    warm: bool = False  # compile every route before the first call; else each is compiled when it is met
    host: float = 0.0  # the share of nodes that the host computes, of those that torch knows by the same arguments


class Interrupt(BaseException):
    """What is raised in the middle of a call."""


@functools.cache
def device_of(name: str) -> Device:
    """A device with these limits."""
    if not name:
        return open_device()
    changes = dict(_NAMED[name])
    # What is lowered may not exceed what the adapter has.
    changes["max_bindings"] = min(changes.get("max_bindings", 8), open_device().limits.max_bindings)
    return open_device(limits=replace(open_device().limits, **changes))


def moved_to_host(graph: Graph, share: float, chance: random.Random) -> Graph:
    """The same graph with some nodes computed by the host instead of their kernels."""
    nodes = list(graph.nodes)
    for node in graph.nodes:
        found = find_on_host(node.name) if chance.random() < share else ""
        if not isinstance(found, str) and (found.arity, found.mutates) == (len(node.args), node.mutates):
            nodes[node.index] = found.bind(node.index, node.label, node.args)
    return replace(graph, nodes=tuple(nodes))


class Run:
    """A program on a device under some choices."""

    def __init__(
        self, program: Program, choices: Choices, resume: Callable[[list[int]], list[int]] | None = None
    ) -> None:
        """`resume` chooses among the points from which the end of a call may run again."""
        self.program = program
        self.device = device_of(choices.limits)
        self.graph, self.values = graph_of(program, self.device.limits, choices.fusion)
        self.graph = moved_to_host(self.graph, choices.host, random.Random(program.seed))
        self.sizes = LiveSizes(self.graph)
        self.points = [] if resume is None else resume(self._resume_points())
        chosen = plan.Choices(
            aliasing=choices.aliasing,
            classes=choices.classes,
            tracing=choices.tracing,
            warm=choices.warm,
            resume=tuple(self.points),
        )
        self.executor = Executor(compile(self.graph, self.device.limits, chosen), self.device)

    def call(self, turn: int) -> list[Any]:
        """One call; whatever is not live is poisoned before."""
        self.executor.poison()
        results = self.executor.execute(self.program.given(turn))
        if not self.graph.controls:  # what is not reached is as long as it was
            check_live_sizes(self.graph, self.sizes, self.executor.live, f"call {turn}")
        return results

    def states(self) -> list[Any]:
        """What every state holds."""
        return [self.executor.state(self.values[ref]) if self._lives(ref) else None for ref in self.program.states]

    def _lives(self, ref: Ref) -> bool:
        return self.values[ref] in self.executor.plan.memory.storages

    def resume(self, point: int) -> list[Any]:
        """The end of the last call once more."""
        return self.executor.resume(point).result()

    def _resume_points(self) -> list[int]:
        def allowed(point: int) -> bool:
            try:
                check_resume(self.graph, point)
            except PlanError:
                return False
            return True

        return [point for point in range(1, len(self.graph.nodes)) if allowed(point)]

    def close(self) -> None:
        """Give the memory back."""
        self.executor.close()

    @contextlib.contextmanager
    def interrupted(self, place: str, after: int) -> Iterator[dict[str, int]]:
        """Raise once, at the n-th time that a place is reached: planning a node, or a call of the device.

        Gives how often each place was passed.
        """
        passed = dict.fromkeys(("plan", "write", "submit", "read"), 0)

        def wrapped(name: str, original: Any) -> Any:
            def stopping(*args: Any, **options: Any) -> Any:
                if name == place and passed[name] == after:
                    passed[name] += 1
                    raise Interrupt(f"{name} {after}")
                passed[name] += 1
                return original(*args, **options)

            return stopping

        with contextlib.ExitStack() as patches:
            for name in ("write", "submit", "read"):
                original = getattr(self.device, name)
                patches.enter_context(mock.patch.object(self.device, name, wrapped(name, original)))
            patches.enter_context(mock.patch.object(PlanState, "steps", wrapped("plan", PlanState.steps)))
            yield passed
