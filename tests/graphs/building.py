"""How a program becomes a graph: without torch, since pages build them, too."""

from __future__ import annotations

from typing import Any

from liveshape.graph import Graph, Limits
from liveshape.lower.lowering import optimized, simplified
from tests.graphs.program import Program, Ref
from tests.support.chains import Chain


def graph_of(program: Program, limits: Limits, fusion: bool) -> tuple[Graph, dict[Ref, Any]]:
    """A new graph of a program, and its values."""
    chain = Chain()
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
        args = tuple(read(argument) for argument in call.args)
        # A history is mutated: what the description calls its result is an argument of the operator.
        chain.node(call.operator, *args, *((None,) if call.operator == "liveshape.record" else ()))
    graph = chain.graph(*(read(ref) for ref in program.outputs), name=f"seed {program.seed}")
    return optimized(simplified(graph, limits), limits) if fusion else graph, found
