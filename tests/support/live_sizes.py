"""What is said of live sizes before a call, against those of the call."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from liveshape.graph import Graph, SymInt, Tensor, Value
from liveshape.lower.live_sizes import LiveSize, LiveSizes
from liveshape.plan.plan_state import PlanState


def sizes_at(graph: Graph, sizes: LiveSizes, live: PlanState) -> Iterator[tuple[Value, LiveSize, int]]:
    """Every live scalar and every dimension of every tensor: what is said of it, and what it is at this call."""
    values = [value for values in (graph.given, *(node.outputs for node in graph.nodes)) for value in values]
    for value in dict.fromkeys(values):
        if isinstance(value, Tensor):
            for size, there in zip(sizes.of(value), live.tensor(value).shape, strict=True):
                yield value, size, there
        elif isinstance(value, SymInt):
            yield value, sizes.of_scalar(value), live.scalar(value).value


def check_live_sizes(graph: Graph, sizes: LiveSizes, live: PlanState, where: str) -> None:
    """Each symbol is one number, and every size the product that was said."""
    waiting = list(sizes_at(graph, sizes, live))
    symbols: dict[int, int] = {}
    while waiting:
        # One that is alone says what its symbol is; then all that are left hold it.
        later = []
        for value, size, there in waiting:
            known = prod(symbols.get(each, 1) for each in size.symbols) * size.factor
            unknown = [each for each in size.symbols if each not in symbols]
            if not unknown:
                assert known == there, f"{where}: {value} is {there} long where {size} was said, that is {known}"
            elif len(unknown) == 1 and known:
                symbols[unknown[0]] = there // known
                assert known * symbols[unknown[0]] == there, f"{where}: {value} is {there} long, no multiple of {size}"
            else:
                later.append((value, size, there))
        if len(later) == len(waiting):
            return  # products of what is never alone
        waiting = later
