"""Which dimensions of inputs and outputs may be smaller than their bounds, found by planning below each.

A signature says it. Other files do not: they mark whole tensors as dynamic. What proves something is taken, the rest is
unknown: a size that the program reads is dynamic, and so is the last candidate of a tensor that is; a size that it
cannot be planned below is static, and so is one that would make a result smaller that the file calls static.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from liveshape.errors import LiveshapeError
from liveshape.formats.signature import DYNAMIC, STATIC, UNKNOWN, Signature
from liveshape.graph import Graph, Shape, SymInt, Tensor, Value
from liveshape.graph.constants import all_bytes
from liveshape.graph.elements import prod
from liveshape.graph.traits import Role
from liveshape.kernels.requests import Read
from liveshape.plan.plan import Plan
from liveshape.plan.plan_state import PlanState

_MAX_STEPS = 8  # that are tried below one bound

Place = tuple[Tensor, int]  # a dimension


@dataclass(frozen=True)
class Dimension:
    """What is known of a dimension: its status, and that sizes are multiples of a number below the bound."""

    status: str
    multiple: int = 1


def dimensions(plan: Plan, signature: Signature | None = None) -> dict[Tensor, tuple[Dimension, ...]]:
    """What is known of each dimension of the inputs and outputs of a plan.

    Example: `dimensions(compile(graph))[graph.inputs[0]][1].status == "dynamic"`.
    """
    search = _Search(plan)
    if signature is None:
        search.find()
    else:
        search.follow(signature)
    return search.found()


def static_below(plan: Plan, shapes: Mapping[Tensor, Shape]) -> list[Place]:
    """The dimensions below their bounds, in these shapes of inputs, that make smaller what the file calls static.

    Example: `static_below(plan, {x: (7, 3)}) == [(x, 1)]`.
    """
    search = _Search(plan)
    below = [
        (tensor, axis)
        for tensor, shape in shapes.items()
        for axis, size in enumerate(shape)
        if size < tensor.max_shape[axis]
    ]
    return [
        (tensor, axis)
        for tensor, axis in below
        if search.takes({(tensor, axis): shapes[tensor][axis]}) and search.smaller_static()
    ]


class _Search:
    """Plans at sizes below the bounds, and what they showed."""

    def __init__(self, plan: Plan) -> None:
        self.live, graph = PlanState(plan), plan.graph
        self.inputs = [value for value in graph.inputs if isinstance(value, Tensor)]
        self.given = [tensor for tensor in self.inputs if not tensor.static]
        self.results = [value for value in graph.outputs if isinstance(value, Tensor)]
        self.written = static_results(graph)
        self.read = _read_sizes(graph)
        self.statuses: dict[Place, Dimension] = {}
        self.moved: dict[Place, str] = {}  # dimensions of results that became smaller, and by what kind of input

    def found(self) -> dict[Tensor, tuple[Dimension, ...]]:
        known: dict[Tensor, tuple[Dimension, ...]] = {}
        for tensor in (*self.results, *self.inputs):
            known[tensor] = tuple(
                self.statuses.get((tensor, axis), Dimension(self.moved.get((tensor, axis), STATIC)))
                for axis in range(tensor.rank)
            )
        return known

    # With a signature

    def follow(self, signature: Signature) -> None:
        """Statuses as the exporter wrote them; one plan below the bound of each symbol shows what follows it."""
        symbols: dict[str, dict[Place, int]] = {}
        for tensor, taken in zip(self.live.plan.graph.inputs, signature.inputs, strict=True):
            for axis, size in enumerate(taken.sizes or () if isinstance(tensor, Tensor) else ()):
                place = (tensor, axis)
                self.statuses[place] = Dimension(STATIC if size.symbol is None else DYNAMIC, size.scale)
                if size.symbol is not None and size.max - size.scale >= max(size.min, 0):
                    symbols.setdefault(size.symbol, {})[place] = size.max - size.scale
        for shrunk in symbols.values():
            if self.takes(shrunk):
                self._note_results(DYNAMIC)

    # Without one

    def find(self) -> None:
        """Statuses from what can be planned, for a file that does not say."""
        places = [(tensor, axis) for tensor in self.given for axis in range(tensor.rank)]
        candidates = [place for place in places if _bound(place) > 1]
        self.statuses = {place: Dimension(STATIC) for place in places if place not in candidates}
        taken: dict[Place, int] = {}  # candidates that the program plans below, and by how much
        refused: list[Place] = []
        for bound in sorted({_bound(place) for place in candidates}):
            alike = [place for place in candidates if _bound(place) == bound]
            # Dimensions of equal bound most likely are one symbol: together, and where that is refused, each alone.
            for shrunk in (alike, *([place] for place in alike)):
                step = None if all(place in taken for place in shrunk) else self._step(shrunk, bound)
                taken |= {} if step is None else dict.fromkeys(shrunk, step)
            refused += [place for place in alike if place not in taken]
        if refused and self._together(refused):
            taken |= dict.fromkeys(refused, 1)
        self._judge(candidates, taken)
        self._follow_results(taken)

    def _step(self, shrunk: Sequence[Place], bound: int) -> int | None:
        """How far below their bound these dimensions can be planned: 1, or a divisor where only multiples go."""
        divisors = [1, *(step for step in range(2, min(bound, 257)) if bound % step == 0)]
        for step in divisors[:_MAX_STEPS]:
            if self.takes(dict.fromkeys(shrunk, bound - step)):
                return step
        return None

    def _together(self, places: Sequence[Place]) -> bool:
        """Whether dimensions of several bounds can be planned below them at once, as sizes that follow each other."""
        least = min(_bound(place) for place in places)
        trials = (
            {place: _bound(place) - 1 for place in places},
            {place: _bound(place) // 2 for place in places},
            {place: _bound(place) - max(1, round(_bound(place) / least)) for place in places},
        )
        return any(self.takes(trial) for trial in trials)

    def _judge(self, candidates: Sequence[Place], taken: Mapping[Place, int]) -> None:
        for place in candidates:
            step = taken.get(place)
            if place in self.read:
                self.statuses[place] = Dimension(DYNAMIC, step or 1)
            elif step is None or (self.takes({place: _bound(place) - step}) and self.smaller_static()):
                self.statuses[place] = Dimension(STATIC)
            else:
                self.statuses[place] = Dimension(UNKNOWN, step)
        for tensor in self.given:
            mine = [place for place in candidates if place[0] is tensor and self.statuses[place].status != STATIC]
            if len(mine) == 1:
                # The file says that something of the tensor is dynamic, and it is nothing else.
                self.statuses[mine[0]] = Dimension(DYNAMIC, self.statuses[mine[0]].multiple)

    def _follow_results(self, taken: Mapping[Place, int]) -> None:
        """Dimensions of results follow those of inputs; where two kinds move one, it may be smaller for sure."""
        for status in (UNKNOWN, DYNAMIC):
            places = [place for place in taken if self.statuses[place].status == status]
            for bound in sorted({_bound(place) for place in places}):
                alike = [place for place in places if _bound(place) == bound]
                for shrunk in (alike, *([place] for place in alike)):
                    if self.takes({place: bound - taken[place] for place in shrunk}):
                        self._note_results(status)

    def _note_results(self, status: str) -> None:
        for tensor in self.results:
            for axis, size in enumerate(self.live.tensor(tensor).shape):
                if size < tensor.max_shape[axis]:
                    self.moved[tensor, axis] = status

    # Plans

    def takes(self, sizes: Mapping[Place, int]) -> bool:
        """Whether the program plans with these dimensions at these sizes, and all others at their bounds."""
        live = self.live
        live.restore()
        for tensor in self.given:
            shape = enumerate(tensor.max_shape)
            live.set(tensor, tuple(sizes.get((tensor, axis), size) for axis, size in shape))
        live.begin()
        try:
            live.walk(0, len(live.nodes), lambda node, request: 0 if isinstance(request, Read) else None)
        except LiveshapeError:
            return False
        return True

    def smaller_static(self) -> bool:
        """Whether the last plan made something smaller that the file calls static."""
        return any(self.live.tensor(tensor).shape != tensor.max_shape for tensor in self.written)


def static_results(graph: Graph) -> tuple[Tensor, ...]:
    """What nodes write and the file calls static: a call that makes it smaller is at a shape that was not exported.

    Example: `static_results(program.graph("forward"))`.
    """
    return tuple(tensor for tensor in graph.tensors if tensor.static and graph.writers[tensor])


def _read_sizes(graph: Graph) -> set[Place]:
    """The dimensions of inputs that the program asks for: an exporter asks only for those that move."""
    return {
        (node.args[0], node.args[1] % node.args[0].rank)
        for node in graph.nodes
        # Sizes that the exporter folded are asked for, too, and set nothing.
        if node.traits.role is Role.SIZE and node.args[0] in graph.given and isinstance(node.args[2], SymInt)
        # A file may ask a number, or for a dimension that it computes.
        if node.args[0].rank and isinstance(node.args[1], int)
    }


def _bound(place: Place) -> int:
    tensor, axis = place
    return tensor.max_shape[axis]


def literals_like(graph: Graph, places: Iterable[Place]) -> dict[Place, str]:
    """Nodes that compute with a literal that is the bound of a dimension: it may have been that size, baked in.

    Example: `literals_like(graph, [(x, 1)])` is `{(x, 1): "aten.div.Tensor (node 3) computes with 8"}`.
    """
    found: dict[Place, str] = {}
    stored = {value: _held(value) for value in graph.values}
    for tensor, axis in places:
        reached: set[object] = {tensor}
        # Exporters make tensors of scalars: what is computed from such alone is a constant, too.
        held = dict(stored)
        for node in graph.nodes:
            literals = frozenset(_literals(node.args[:-1])).union(*(held.get(value, ()) for value in node.inputs))
            if reached.isdisjoint(node.inputs):
                held |= dict.fromkeys(node.written, literals)
                continue
            reached.update(node.written)
            if tensor.max_shape[axis] in literals:
                found.setdefault((tensor, axis), f"{node.label} computes with {tensor.max_shape[axis]}")
    return found


def _held(value: Value) -> frozenset[float]:
    """The value of a constant scalar."""
    if not isinstance(value, Tensor) or value.constant is None or prod(value.max_shape) != 1:
        return frozenset()
    code = {"float32": "<f", "int32": "<i", "int64": "<q"}.get(value.dtype)
    if code is None or len(value.constant) < struct.calcsize(code):
        return frozenset()
    return frozenset(struct.unpack_from(code, all_bytes(value.constant)))


def _literals(arguments: Iterable[object]) -> Iterable[float]:
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from _literals(argument)
        elif isinstance(argument, (int, float)) and not isinstance(argument, bool):
            yield argument
