"""One piece of work, done several times: at full speed by the host's clock, then by the device's, as a whole and by
commands, with what each command moves and computes counted from the plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from liveshape.device.protocol import Clock, Command, Span, Watched
from liveshape.plan.cost import Cost, costs
from liveshape.plan.layers import layers_of
from liveshape.run.executor import Executor

PHASES = ("plan", "encode", "submit", "wait")  # of the host; the rest is Python around them


@dataclass(frozen=True)
class Executed:
    """A command as the device ran it: what it is of, what it cost, and when it began and ended."""

    kernel: str
    operator: str
    label: str
    layer: str
    cost: Cost
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass
class Line:
    """Commands that have something in common, together."""

    name: str
    times: int = 0
    seconds: float = 0.0
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class Profile:
    """Where the time of a work goes. `turns` are its tokens where it is a generation, 1 elsewhere."""

    name: str
    turns: int
    seconds: float  # by the host's clock, while nobody looked at the device's
    host: dict[str, float]  # of that, by phases
    submits: int
    dispatches: int
    param_bytes: int
    cost: Cost
    executed: tuple[Executed, ...]  # empty where the device has no clock
    whole: float  # seconds of the device, by a clock that was read around submits alone
    spans: tuple[Span, ...]  # of the host, while `executed` ran

    def by(self, what: Callable[[Executed], str]) -> list[Line]:
        """Lines of the commands that have the same `what`.

        Example: `profile.by(lambda command: command.kernel)`.
        """
        found: dict[str, Line] = {}
        for command in self.executed:
            line = found.setdefault(what(command), Line(what(command)))
            line.times += 1
            line.seconds += command.seconds
            line.cost += command.cost
        return list(found.values())

    @property
    def device(self) -> float:
        """Seconds of all commands."""
        return sum(command.seconds for command in self.executed)


def profiled(
    executor: Executor, name: str, turns: int, prepare: Callable[[], None], work: Callable[[], None]
) -> Profile:
    """Do a work four times, each after `prepare`, the first time to warm up.

    Example: `profiled(executor, "tg32", 32, model.reset, lambda: do(model, Work(tokens=32)))`.
    """
    device = executor.device
    prepare()
    work()
    prepare()
    arena = executor.live.arena
    uploaded, submits = arena.uploaded, device.counters.submits
    with device.watched() as plain, _noted(executor, plain):
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
        submits = device.counters.submits - submits
        spans = list(plain.spans)  # without what ends the watching
    host = {phase: sum(end - begin for name, begin, end in spans if name == phase) for phase in PHASES}
    param_bytes = arena.uploaded - uploaded
    prepare()
    with device.watched(Clock.SUBMITS) as around:
        work()
    whole = sum(end - begin for _, times in around.submits for begin, end in times)
    prepare()
    counted: list[tuple[Sequence[Command], list[Cost]]] = []
    with (
        device.watched(Clock.COMMANDS, lambda commands: counted.append((commands, _costs(executor, commands)))) as each,
        _noted(executor, each),
    ):
        work()
    return Profile(
        name,
        turns,
        seconds,
        host,
        submits,
        sum(len(commands) for commands, _ in counted),
        param_bytes,
        sum((cost for _, row in counted for cost in row), Cost()),
        tuple(_executed(executor, each, [row for _, row in counted])),
        whole,
        tuple(each.spans),
    )


def _costs(executor: Executor, commands: Sequence[Command]) -> list[Cost]:
    """The cost of each command at the shapes that are live now."""
    half = executor.plan.limits.half
    of_node = {node: costs(executor.live.nodes[node], half) for node in {command.origin[0] for command in commands}}
    return [of_node[node][step] for node, step in (command.origin for command in commands)]


def _executed(executor: Executor, watched: Watched, counted: Sequence[Sequence[Cost]]) -> Iterator[Executed]:
    nodes, layers = executor.graph.nodes, layers_of(executor.plan)
    for (commands, times), row in zip(watched.submits, counted if watched.submits else (), strict=True):
        for command, (begin, end), cost in zip(commands, times, row, strict=True):
            node = nodes[command.origin[0]]
            kernel = command.label.rpartition(" ")[2]
            yield Executed(kernel, node.name, node.label, layers[node.index] if layers else "", cost, begin, end)


@contextmanager
def _noted(executor: Executor, watched: Watched) -> Iterator[None]:
    """Note the host's time of planning, and of making commands as a part of encoding."""
    pairs: tuple[tuple[Any, str, str], ...] = (
        (executor.live, "walk", "plan"),
        (executor.encoder, "commands", "encode"),
    )

    def noting(call: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def around(*args: Any) -> Any:
            begin = time.perf_counter()
            try:
                return call(*args)
            finally:
                watched.spans.append((phase, begin, time.perf_counter()))

        return around

    for owner, method, phase in pairs:
        setattr(owner, method, noting(getattr(owner, method), phase))
    try:
        yield
    finally:
        for owner, method, _ in pairs:
            delattr(owner, method)
