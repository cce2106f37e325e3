"""Profile a workload over several runs: wall-clock at full speed, then GPU timestamps per submit and per dispatch, with
bytes and operations of each dispatch counted from the plan.

Timestamps around every dispatch cost time on some devices: that overhead follows from the per-submit time and is
subtracted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from liveshape.device.protocol import Clock, Command, Span, Watched
from liveshape.graph.sources import operators_of
from liveshape.ops.composed import has_expression
from liveshape.plan.cost import Cost, costs
from liveshape.plan.layers import layers_of
from liveshape.run.executor import Executor

PHASES = ("plan", "encode", "submit", "wait")  # host phases; the rest is Python overhead
AGREES = 0.1  # allowed relative difference of the dispatches' sum from the per-submit time


@dataclass(frozen=True)
class Executed:
    """One dispatch: its node and kernel, its cost, and its GPU timestamps."""

    kernel: str
    operator: str
    label: str
    node: int  # of the planned graph
    layer: str
    sources: tuple[str, ...]  # source nodes in the file of a fused node
    cost: Cost
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass
class Line:
    """Aggregate of the dispatches with the same key."""

    name: str
    times: int = 0
    seconds: float = 0.0
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class Profile:
    """Profile of one workload. `turns` is the number of tokens for decode, else 1."""

    name: str
    turns: int
    seconds: float  # wall-clock, with no GPU timestamps
    host: dict[str, float]  # its split into phases
    submits: int
    dispatches: int
    param_bytes: int
    cost: Cost
    executed: tuple[Executed, ...]  # empty without timestamp queries
    whole: float  # GPU seconds, timestamps around submits alone
    spans: tuple[Span, ...]  # host spans of the run of `executed`
    tick: float = 0.0  # overhead of a timestamp, subtracted from the dispatches

    def by(self, what: Callable[[Executed], str]) -> list[Line]:
        """Aggregate the dispatches by a key.

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
        """GPU seconds of all dispatches."""
        return sum(command.seconds for command in self.executed)


def profiled(
    executor: Executor, name: str, turns: int, prepare: Callable[[], None], work: Callable[[], None], repeats: int = 3
) -> Profile:
    """Profile a workload: one warmup run, then `repeats` runs under each clock, keeping the fastest of each.

    Example: `profiled(executor, "tg32", 32, model.reset, lambda: do(model, Work(tokens=32)))`.
    """
    prepare()
    work()
    host = min((_by_host(executor, prepare, work) for _ in range(repeats)), key=lambda run: run.seconds)
    whole = min(_whole(executor, prepare, work) for _ in range(repeats))
    runs = [_by_commands(executor, prepare, work) for _ in range(repeats)]
    watched, counted = min(runs, key=lambda run: _device_seconds(run[0]))
    executed = list(_executed(executor, watched, counted))
    seconds, tick = without_ticks([command.seconds for command in executed], whole)
    return Profile(
        name,
        turns,
        host.seconds,
        host.phases,
        host.submits,
        sum(len(row) for row in counted),
        host.param_bytes,
        sum((cost for row in counted for cost in row), Cost()),
        tuple(replace(each, end=each.begin + spent) for each, spent in zip(executed, seconds, strict=True)),
        whole,
        tuple(watched.spans),
        tick,
    )


def without_ticks(seconds: Sequence[float], whole: float) -> tuple[list[float], float]:
    """Subtract the timestamp overhead from per-dispatch times so that they sum to `whole`; returns times and overhead.

    A dispatch shorter than the overhead becomes 0, and the others absorb the remainder.

    >>> without_ticks([6.0, 9.0, 7.0], 7.0)
    ([1.0, 4.0, 2.0], 5.0)
    >>> without_ticks([6.0, 9.0], 14.5)
    ([6.0, 9.0], 0.0)
    """
    total = sum(seconds)
    if not 0 < (1 + AGREES) * whole < total:
        return list(seconds), 0.0
    tick = (total - whole) / len(seconds)
    left = [max(each - tick, 0.0) for each in seconds]
    scale = whole / sum(left)
    return [scale * each for each in left], tick


@dataclass(frozen=True)
class _Host:
    """Wall-clock of one run at full speed, by host phase."""

    seconds: float
    phases: dict[str, float]
    submits: int
    param_bytes: int


def _by_host(executor: Executor, prepare: Callable[[], None], work: Callable[[], None]) -> _Host:
    prepare()
    counters, arena = executor.device.counters, executor.live.arena
    submits, uploaded = counters.submits, arena.uploaded
    with executor.device.watched() as watched, _noted(executor, watched):
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
        spans, submits = list(watched.spans), counters.submits - submits  # without the submits that end the watching
    phases = {phase: sum(end - begin for name, begin, end in spans if name == phase) for phase in PHASES}
    return _Host(seconds, phases, submits, arena.uploaded - uploaded)


def _whole(executor: Executor, prepare: Callable[[], None], work: Callable[[], None]) -> float:
    prepare()
    with executor.device.watched(Clock.SUBMITS) as watched:
        work()
    return _device_seconds(watched)


def _by_commands(
    executor: Executor, prepare: Callable[[], None], work: Callable[[], None]
) -> tuple[Watched, list[list[Cost]]]:
    prepare()
    counted: list[list[Cost]] = []
    watching = executor.device.watched(Clock.COMMANDS, lambda commands: counted.append(_costs(executor, commands)))
    with watching as watched, _noted(executor, watched):
        work()
    return watched, counted


def _device_seconds(watched: Watched) -> float:
    return sum(end - begin for _, times in watched.submits for begin, end in times)


def _costs(executor: Executor, commands: Sequence[Command]) -> list[Cost]:
    """Bytes and operations of each dispatch at the current live shapes."""
    half = executor.plan.limits.half
    of_node = {node: costs(executor.live.nodes[node], half) for node in {command.origin[0] for command in commands}}
    return [of_node[node][step] for node, step in (command.origin for command in commands)]


def _executed(executor: Executor, watched: Watched, counted: Sequence[Sequence[Cost]]) -> Iterator[Executed]:
    nodes, layers = executor.graph.nodes, layers_of(executor.plan)
    for (commands, times), row in zip(watched.submits, counted if watched.submits else (), strict=True):
        for command, (begin, end), cost in zip(commands, times, row, strict=True):
            node = nodes[command.origin[0]]
            kernel = command.label.rpartition(", kernel ")[2]  # a name with an expression has spaces
            layer, sources = layers[node.index] if layers else "", tuple(map(str, node.sources))
            operator = " + ".join(operators_of(node)) if has_expression(node) else node.name
            yield Executed(kernel, operator, node.label, node.index, layer, sources, cost, begin, end)


@contextmanager
def _noted(executor: Executor, watched: Watched) -> Iterator[None]:
    """Record host spans of planning and of encoding commands."""
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
