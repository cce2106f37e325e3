"""The live-shape engine: what moves, for one user of a plan, and the walk that keeps it right.

One walk in program order plans a node again only if something it reads moved. The first node of a class leads: it is
planned, the others take its plan over while their live shapes are the same, and leave the class when they are not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import GeneratorType
from typing import Any

from liveshape.debug_log import PLANS
from liveshape.errors import LiveshapeError, PlanError, UnsupportedError
from liveshape.graph import Node, Shape, SymInt, Tensor, Value
from liveshape.graph.limits import MAX_TURNS
from liveshape.graph.live import LiveScalar, LiveTensor, identity
from liveshape.kernels import Dispatch, Kernel, Variant, specialize
from liveshape.kernels.requests import GetLimits, Prepack, Prepacked, Read, Request, Scratch
from liveshape.plan.groups import Group, LiveNode, LiveRoute, Traced
from liveshape.plan.params import Arena, Slot
from liveshape.plan.plan import NodeClass, Plan
from liveshape.plan.tracing import Trace, Untraceable

RequestHandler = Callable[[Node, Request], Any]
Step = tuple[Variant, tuple[LiveTensor, ...], bytes, tuple[int, int, int]]  # kernel, tensors, params, grid


_MAX_UNUSED = 32  # traces of a group in a row that were never replayed: it takes another branch at every call
_PAUSE = 256  # chances to trace it that are skipped then


class PlanState:
    """Shapes, scalars and steps of one user of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        graph = plan.graph
        self.version = 0  # grows whenever a node's kernels or slots became others
        self.planned = 0  # runs of a generator since the start, for tests and profiles
        self._tracing = plan.choices.tracing
        self.pending = bytearray(b"\x01" * len(graph.nodes))
        self.arena = Arena(plan.limits.uniform_alignment)
        self._kinds: dict[tuple[str, int], int] = {}
        self._variants: dict[tuple[Any, ...], Variant] = {}
        self._tensors: dict[Tensor, LiveTensor] = {}
        self._scalars: dict[SymInt, LiveScalar] = {}
        self.nodes = [LiveNode(node, plan.scratch[node.index], self.of) for node in graph.nodes]
        self.families: dict[int, list[Group]] = {}
        for each in plan.classes:
            self._group(each.family, [self.nodes[index] for index in each.members])

    # Values

    def tensor(self, tensor: Tensor) -> LiveTensor:
        """A tensor as it is now."""
        found = self._tensors.get(tensor)
        if found is None:
            found = LiveTensor(tensor, self.pending, self.plan.graph.consumers.get(tensor, ()))
            storage = self.plan.memory.storages.get(tensor)
            found.storage = -1 if storage is None else storage.number
            found.bindings = self.plan.bindings(tensor)
            found.kind = self._kinds.setdefault((tensor.dtype, found.bindings), len(self._kinds))
            self._tensors[tensor] = found
        return found

    def scalar(self, symint: SymInt) -> LiveScalar:
        """A scalar as it is now."""
        found = self._scalars.get(symint)
        if found is None:
            found = self._scalars[symint] = LiveScalar(symint, self.pending)
        return found

    def scalars(self) -> list[Any]:
        """Every live scalar, to be compared with what it was."""
        return [identity(scalar.value) for scalar in self._scalars.values()]

    def of(self, argument: Any) -> Any:
        """An argument of a node with its values live; constants are themselves."""
        if isinstance(argument, tuple):
            return tuple(self.of(item) for item in argument)
        if isinstance(argument, Tensor):
            return self.tensor(argument)
        return self.scalar(argument) if isinstance(argument, SymInt) else argument

    def set(self, value: Value, to: Any) -> None:
        """A live shape or scalar from outside: what the caller gives."""
        if isinstance(value, Tensor):
            self.tensor(value).shape = to
        elif isinstance(value, SymInt):
            self.scalar(value).value = to

    def restore(self) -> None:
        """Every shape back to its bound, every scalar to its first value."""
        for tensor in self._tensors.values():
            tensor.shape = tensor.max_shape
        for scalar in self._scalars.values():
            scalar.value = scalar.symint.initial
        self.invalidate()

    # Walking

    def invalidate(self) -> None:
        """Forget every plan: the next walk plans each node again."""
        self.pending[:] = b"\x01" * len(self.pending)
        for groups in self.families.values():
            for group in groups:
                group.shapes = None

    def begin(self) -> None:
        """Start a call: loop counters are set back."""
        for symint in self.plan.graph.loop_carried:
            self._scalars[symint].value = symint.initial

    def walk(self, start: int, stop: int, read: RequestHandler) -> None:
        """Plan every due node from `start` up to `stop`, in program order, each once.

        If an operator raises, every node is due again and the error names the node.
        """
        pending, nodes = self.pending, self.nodes
        for index in self.plan.graph.volatile:
            if start <= index < stop:
                pending[index] = 1
        index = pending.find(1, start, stop)
        if index < 0:
            return
        try:
            while index >= 0:
                # Cleared first: a node that changes what it reads is due again in the next iteration of its loop.
                pending[index] = 0
                self._visit(nodes[index], read)
                index = pending.find(1, index + 1, stop)
        except BaseException:
            self.invalidate()
            raise

    def _visit(self, node: LiveNode, read: RequestHandler) -> None:
        if node.scalar_only:
            self.steps(node, read)
            return
        group = node.group
        shapes = [tensor._shape for tensor in node.inputs]  # the property costs more than the rest of this line
        if group.members[0] is not node:
            if shapes != group.shapes:
                group = self._regroup(node, shapes)
            if group.members[0] is not node:
                _set_shapes(node.outputs, group.outputs)
                return
        if group.traced is not None and shapes == group.shapes:
            computed = group.traced.compute()
            if computed is not None:
                group.unused = group.pause = 0
                self._store(group.route.slots, computed)
                _set_shapes(node.outputs, group.outputs)  # another node may have written there since
                return
        version, values = self.version, [scalar._value for scalar in node.scalars]
        key = (*shapes, *map(identity, values)) if self._tracing and node.follows_from_inputs else ()
        known = group.cached_plans.get(key)
        if known is None:
            self._set_steps(group, self.steps(node, read))
            outputs = [tensor._shape for tensor in node.outputs]
            if key:
                group.cache_plan(key, outputs)
        else:
            outputs = known.outputs
            if known.route is not group.route:
                group.route, group.tensors = known.route, known.tensors
                self.version += 1
            self._store(known.route.slots, known.computed)
            _set_shapes(node.outputs, outputs)
        if shapes != group.shapes or outputs != group.outputs:
            group.shapes, group.outputs = shapes, outputs
            group.traced = None
            pending = self.pending
            for member in group.members[1:]:
                pending[member.index] = 1
        elif version != self.version:
            group.traced = None
        elif key and known is None and node.scalars:
            self._trace(group)
        group.values = values

    def _trace(self, group: Group) -> None:
        """Only scalars moved, and the kernels stayed: the next move may be computed."""
        node = group.members[0]
        before = group.traced.moving if group.traced is not None else ()
        moving = [
            scalar
            for scalar, value in zip(node.scalars, group.values, strict=True)
            if scalar._value is not value or scalar in before
        ]
        moving = list(dict.fromkeys(moving))
        group.traced = None
        if group.pause:
            group.pause -= 1
            return
        if not moving or any(type(scalar._value) is not int for scalar in moving):
            return
        group.unused += 1
        if group.unused >= _MAX_UNUSED:
            group.pause = _PAUSE
        trace = Trace()
        symbols = {scalar: trace.argument(scalar._value) for scalar in moving}
        values = [scalar._value for scalar in moving]
        try:
            generator = node.node.run(*node.arguments(symbols))
            rows = self._collect(node, generator, _no_data, _flatten) if isinstance(generator, GeneratorType) else []
            replay = trace.replay([(variant, params, grid) for variant, _, params, grid in rows])
            computed = replay(*values)
        except Exception:  # operators do anything with a scalar: this one cannot be traced, only planned
            group.pause, computed = _PAUSE, None
        _set_shapes(node.outputs, group.outputs)  # whatever it made of them with symbols for scalars
        if computed == tuple((slot.params, slot.grid) for slot in group.route.slots):
            group.traced = Traced(replay, moving, [scalar for scalar in node.scalars if scalar not in moving])

    def steps(self, node: LiveNode, read: RequestHandler) -> list[Step]:
        """Run the generator of one node at its live values: it sets the shapes of its outputs, its steps come back."""
        self.planned += 1
        try:
            generator = node.node.run(*node.arguments())
            steps = self._collect(node, generator, read, Kernel.pack) if isinstance(generator, GeneratorType) else []
        except LiveshapeError as error:
            if node.node.label in str(error):
                raise
            raise type(error)(f"{node.node.label}: {error}{_shapes_of(node)}") from error
        except Exception as error:
            raise PlanError(f"{node.node.label}: {type(error).__name__}: {error}{_shapes_of(node)}") from error
        if PLANS.isEnabledFor(logging.DEBUG):
            PLANS.debug("%s%s: %s", node.node.label, _shapes_of(node), [(step[0].label, step[3]) for step in steps])
        return steps

    def _collect(self, node: LiveNode, generator: Any, read: RequestHandler, pack: Callable[..., Any]) -> list[Any]:
        steps: list[Any] = []
        requested = 0
        reply: Any = None
        while True:
            try:
                request = generator.send(reply)
            except StopIteration:
                return steps
            reply = None
            if type(request) is Dispatch:
                step = self._step(request, pack)
                if step is not None:
                    steps.append(step)
            elif type(request) is Scratch:
                reply = self._scratch(node, requested, request)
                requested += 1
            elif type(request) is GetLimits:
                reply = self.plan.limits
            elif type(request) is Prepacked:
                if self._is_constant(request.source):
                    reply = self._scratch(node, requested, request)
                    requested += 1
            elif type(request) is Prepack:
                self._prepack(node, request.dispatch)
            else:
                if type(request) is Read and request.tensor in node.scratch:
                    # Its own steps write what it reads, so these run first; those to come are another route.
                    self._set_steps(node.group, steps)
                    steps = []
                reply = read(node.node, request)

    def _scratch(self, node: LiveNode, position: int, request: Scratch | Prepacked) -> LiveTensor:
        if position >= len(node.scratch):
            raise PlanError("scratch must be asked for before any routing, sized from max_shape")
        return node.scratch[position]

    def _is_constant(self, tensor: LiveTensor) -> bool:
        return tensor.constant is not None and not self.plan.graph.writers[tensor.tensor]

    def _prepack(self, node: LiveNode, dispatch: Dispatch) -> None:
        """`compile` has collected it, and the weights were loaded with it."""

    def _step(self, dispatch: Dispatch, pack: Callable[..., Any]) -> Any:
        kernel, tensors, values = dispatch.kernel, dispatch.tensors, dispatch.values
        if dispatch.turns > self.plan.limits.max_turns and self.plan.limits.cuts_loops:
            raise UnsupportedError(
                f"kernel {kernel.name} would make up to {dispatch.turns:,} turns of loops, which this driver ends all"
                f" after {2 * MAX_TURNS - 1:,} in silence, as Mesa 22 does; take a newer one, or a GPU (docs/limits.md)"
            )
        # A lookup in the hot path: the kernel's own is for every plan and device, and costs four times this.
        key = (kernel, *[tensor.kind for tensor in tensors], *[values.get(name) for name in kernel.dispatch_constants])
        variant = self._variants.get(key)
        if variant is None:
            variant = self._variants[key] = specialize(dispatch, self.plan.limits)
        if dispatch.threads is not None:
            groups = -(-dispatch.threads // (variant.group_size * variant.run))
        elif dispatch.cooperative_units is not None:
            groups = -(-dispatch.cooperative_units * variant.unit_threads // variant.group_size)
        else:
            groups = dispatch.groups or 0
        if groups == 0:
            return None
        return variant, tensors, pack(kernel, values), fold(groups, self.plan.limits.max_groups)

    # Groups

    def _group(self, family: int, members: list[LiveNode]) -> Group:
        """A group of its own for some nodes, the first of which leads."""
        group = Group(family, members)
        for member in members:
            member.group = group
        for scalar in members[0].scalars:
            scalar.consumers.append(members[0].index)
        self.families.setdefault(family, []).append(group)
        return group

    def _regroup(self, node: LiveNode, shapes: list[Shape]) -> Group:
        """Another group for a node whose live shapes are no longer those of its leader."""
        before = node.group
        before.members.remove(node)
        self.version += 1
        for group in self.families[before.family]:
            leader = group.members[0]
            if leader.index < node.index and group.shapes == shapes and not self.pending[leader.index]:
                group.members.append(node)
                group.members.sort(key=lambda member: member.index)
                node.group = group
                return group
        return self._group(before.family, [node])

    def _set_steps(self, group: Group, steps: list[Step]) -> None:
        """Make these steps those of a group: updated in place where its kernels and tensors stay."""
        route = group.route
        tensors = tuple([step[1] for step in steps])
        same = tensors == group.tensors and all(
            step[0] is known[0] for step, known in zip(steps, route.dispatched, strict=True)
        )
        if not same:
            places = group.members[0].places
            key = tuple([(step[0], tuple([places[tensor] for tensor in step[1]])) for step in steps])
            found = group.routes.get(key)
            if found is None:
                slots = [group.slot(place, len(params), self.arena) for place, (_, _, params, _) in enumerate(steps)]
                found = group.routes[key] = LiveRoute(key, tuple(slots))
            group.route = route = found
            group.tensors = tensors
            self.version += 1
        self._store(route.slots, [(params, grid) for _, _, params, grid in steps])

    def _store(self, slots: tuple[Slot, ...], computed: Sequence[tuple[bytes, tuple[int, int, int]]]) -> None:
        for slot, (params, grid) in zip(slots, computed, strict=True):
            slot.grid = grid
            if params != slot.params:
                self.arena.store(slot, params)

    def described(self, index: int) -> list[tuple[str, tuple[str, ...], bytes, tuple[int, int, int]]]:
        """The steps of a node as they are now, comparable across plans: kernel, tensors, params, grid."""
        node = self.nodes[index]
        route = node.group.route
        return [
            (variant.label, tuple(node.tensors[place].name for place in places), slot.params, slot.grid)
            for (variant, places), slot in zip(route.dispatched, route.slots, strict=True)
        ]

    def classes(self) -> tuple[NodeClass, ...]:
        """The groups as they are now."""
        return tuple(
            NodeClass(family, tuple(member.index for member in group.members))
            for family, groups in self.families.items()
            for group in groups
        )


def fold(groups: int, limit: int) -> tuple[int, int, int]:
    """Spread a linear number of workgroups over three dimensions with as little overshoot as can be.

    >>> fold(7, 65535), fold(65536, 65535)
    ((7, 1, 1), (32768, 2, 1))
    """
    if groups <= limit:
        return groups, 1, 1
    z = -(-groups // (limit * limit))
    y = -(-groups // (limit * z))
    x = -(-groups // (y * z))
    if z > limit:
        raise UnsupportedError(f"{groups:,} workgroups do not fit a grid of {limit:,} in three dimensions")
    return x, y, z


def _set_shapes(tensors: list[LiveTensor], shapes: list[Shape]) -> None:
    for tensor, shape in zip(tensors, shapes, strict=True):
        if tensor._shape != shape:
            tensor.shape = shape


def _flatten(kernel: Kernel, values: dict[str, Any]) -> list[Any]:
    return kernel.flatten(values)


def _no_data(node: Node, request: Request) -> Any:
    raise Untraceable("an element of data")


def _shapes_of(node: LiveNode) -> str:
    shapes = [f"{tensor.name} {tensor.shape}" for tensor in node.inputs]
    return f" (live: {', '.join(shapes)})" if shapes else ""
