"""Nodes with their live values, and groups of them that share one plan at this moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from liveshape.graph import Node, Shape, SymInt, Tensor
from liveshape.graph.live import LiveScalar, LiveTensor
from liveshape.plan.params import Arena, Slot
from liveshape.plan.plan import Dispatched
from liveshape.plan.tracing import Computed, Replay


def tensors_of(node: Node, scratch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors of a node in the order that the places of a route count: read, written, temporary."""
    return tuple(value for value in (*node.inputs, *node.written, *scratch) if isinstance(value, Tensor))


_NO_SUBSTITUTES: Mapping[Any, Any] = {}


class LiveNode:
    """A node with its live values at hand: `live` gives that of a tensor, of a scalar, or of a tuple with such."""

    __slots__ = (
        "args",
        "follows_from_inputs",
        "group",
        "index",
        "inputs",
        "node",
        "outputs",
        "places",
        "scalar_only",
        "scalars",
        "scratch",
        "tensors",
    )

    def __init__(self, node: Node, scratch: tuple[Tensor, ...], live: Callable[[Any], Any]) -> None:
        self.node = node
        self.index = node.index
        self.args = tuple(live(argument) for argument in node.args)
        self.inputs: list[LiveTensor] = [live(value) for value in node.inputs if isinstance(value, Tensor)]
        self.scalars: list[LiveScalar] = [live(value) for value in node.inputs if isinstance(value, SymInt)]
        # An operator may set the shape of what it writes in place, too.
        self.outputs: list[LiveTensor] = [live(value) for value in node.written if isinstance(value, Tensor)]
        self.scratch: tuple[LiveTensor, ...] = tuple(live(tensor) for tensor in scratch)
        self.tensors: tuple[LiveTensor, ...] = tuple(live(tensor) for tensor in tensors_of(node, scratch))
        self.places = {tensor: place for place, tensor in reversed(list(enumerate(self.tensors)))}
        # Whether its plan is a function of live shapes and scalars alone, and sets no scalar.
        self.follows_from_inputs = not node.reads_data and all(isinstance(value, Tensor) for value in node.written)
        # Whether it dispatches nothing, so that there is no plan to keep.
        self.scalar_only = bool(node.written) and not self.outputs and not self.scratch
        self.group: Group

    def arguments(self, substitutes: Mapping[Any, Any] = _NO_SUBSTITUTES) -> Any:
        """The arguments of the generator at this moment: live scalars by value, or by their substitutes."""
        if not self.node.live:
            return self.args
        args: list[Any] = list(self.args)
        for position in self.node.live:
            value = args[position]
            if isinstance(value, LiveScalar):
                args[position] = substitutes.get(value, value._value)
            else:
                args[position] = tuple(
                    [substitutes.get(item, item._value) if isinstance(item, LiveScalar) else item for item in value]
                )
        return args


class LiveRoute:
    """What the nodes of a group run now: kernels, the places of their tensors, and the slots of the arena."""

    __slots__ = ("dispatched", "slots")

    def __init__(self, dispatched: tuple[Dispatched, ...], slots: tuple[Slot, ...]) -> None:
        self.dispatched, self.slots = dispatched, slots


@dataclass(frozen=True)
class CachedPlan:
    """A cached plan of a group: its route, the leader's tensors, params and grids, and the shapes of its outputs."""

    route: LiveRoute
    tensors: tuple[tuple[LiveTensor, ...], ...]
    computed: Computed
    outputs: list[Shape]


_MAX_CACHED_PLANS = 16  # plans of a group


class Group:
    """Nodes that have one plan now. The first in program order leads; `shapes` are its inputs' when it was planned."""

    __slots__ = (
        "_slots",
        "cached_plans",
        "family",
        "members",
        "outputs",
        "pause",
        "route",
        "routes",
        "shapes",
        "tensors",
        "traced",
        "unused",
        "values",
    )

    def __init__(self, family: int, members: list[LiveNode]) -> None:
        self.family = family
        self.members = members
        self.shapes: list[Shape] | None = None
        self.outputs: list[Shape] = []
        self.route = NO_STEPS
        self.tensors: tuple[tuple[LiveTensor, ...], ...] = ()  # the leader's, of each step of the route
        self.routes: dict[tuple[Dispatched, ...], LiveRoute] = {(): NO_STEPS}
        self._slots: dict[tuple[int, int], Slot] = {}
        self.values: list[Any] = []  # of the leader's scalars when it was planned last
        self.traced: Traced | None = None
        self.unused = 0  # traces since one was of use
        self.pause = 0  # chances to trace that are left out
        self.cached_plans: dict[tuple[Any, ...], CachedPlan] = {}  # by shapes and scalars

    def cache_plan(self, key: tuple[Any, ...], outputs: list[Shape]) -> None:
        """Memoize the present plan by shapes and scalars, which recur from chunk to chunk and token to token."""
        if len(self.cached_plans) >= _MAX_CACHED_PLANS:
            self.cached_plans.clear()
        computed = tuple((slot.params, slot.grid) for slot in self.route.slots)
        self.cached_plans[key] = CachedPlan(self.route, self.tensors, computed, outputs)

    def slot(self, step: int, nbytes: int, arena: Arena) -> Slot:
        """The slot of a step, the same in every route whose params are as long there."""
        found = self._slots.get((step, nbytes))
        if found is None:
            found = self._slots[step, nbytes] = Slot(arena.place(nbytes) if nbytes else -1)
        return found


NO_STEPS = LiveRoute((), ())


class Traced:
    """The plan of a group as a function of the scalars that move, while the others and all shapes stay."""

    def __init__(self, replay: Replay, moving: list[LiveScalar], fixed: list[LiveScalar]) -> None:
        self._replay, self.moving = replay, moving
        self._fixed = [(scalar, scalar._value) for scalar in fixed]

    def compute(self) -> Computed | None:
        """Params and grids as they are now; None where the operator has to be asked."""
        for scalar, value in self._fixed:
            if scalar._value is not value:
                return None
        values = [scalar._value for scalar in self.moving]
        for value in values:
            if type(value) is not int:
                return None
        try:
            return self._replay(*values)
        except Exception:  # the operator says what is wrong
            return None
