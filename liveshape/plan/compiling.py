"""`compile(graph, limits)`: everything that can be known of a graph before it runs, without a device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from liveshape.errors import FormatError, PlanError, UnsupportedError
from liveshape.graph import Graph, Limits, Tensor, Value
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Prepacked, Scratch
from liveshape.lower.lowering import optimized
from liveshape.lower.magnitudes import Measure
from liveshape.lower.problems import Problem, unsupported
from liveshape.plan.bounds import Legal, ask_all, legal_sizes, no_data_yet
from liveshape.plan.classes import classify
from liveshape.plan.groups import LiveNode
from liveshape.plan.memory import MemoryPlan, Roots, alias_views, plan_memory, share_constants
from liveshape.plan.params import aligned
from liveshape.plan.plan import Choices, NodeClass, Plan, PrepackStep, Route
from liveshape.plan.plan_state import PlanState
from liveshape.plan.routes import explore

Scratches = tuple[tuple[Tensor, ...], ...]

_LARGE_RESULT, _MAX_WASTE = 1 << 24, 64  # elements from which an allocation is doubted, and how many times too many


def compile(graph: Graph, limits: Limits | None = None, choices: Choices | None = None) -> Plan:
    """The plan of a graph on a device with these limits, or an UnsupportedError that lists all that cannot run there.

    Example: `compile(lower(program, "forward", {}), device.limits)`.
    """
    limits, choices = limits or Limits(), choices or Choices()
    for point in choices.resume:
        check_resume(graph, point)
    memory, scratch, prepacked, legal = _memory(graph, limits, choices)
    plan = _unclassified(graph, limits, choices, memory, scratch, prepacked)
    tensors = [node.tensors for node in PlanState(plan).nodes]
    plan = replace(plan, classes=classify(graph, tensors, prepacked, choices.resume, choices.classes))
    live = PlanState(replace(plan, choices=replace(choices, tracing=False)))  # every trial asks the operators
    _check(live, legal)
    untried = explore(live, choices.warm)
    routes = _routes(live)
    prepack = _PrepackSteps(plan).collected(legal) if prepacked else ()
    params = _param_bytes(routes, limits)
    return replace(plan, classes=live.classes(), prepack=prepack, routes=routes, untried=untried, param_bytes=params)


def compile_optimized(
    graph: Graph, limits: Limits | None = None, choices: Choices | None = None, measure: Measure | None = None
) -> Plan:
    """The plan of a graph that nothing rewrites any more, its operators fused where the device runs that.

    `measure` tells how large constants are, see `optimized`.

    Example: `compile_optimized(program.graph("forward"), device.limits).graph` is the graph that runs.
    """
    fused = optimized(graph, limits or Limits(), measure)
    if fused is graph:
        return compile(graph, limits, choices)
    try:
        return compile(fused, limits, choices)
    except UnsupportedError:  # who is refused is said of the nodes of the file
        return compile(graph, limits, choices)


def check_resume(graph: Graph, point: int) -> None:
    """Raise unless the nodes from `point` on give the same when they run once more after a call.

    What they read from before them must still be there, so none of them may write it; and they must run in a row.
    """
    if not 0 <= point < len(graph.nodes):
        raise PlanError(f"{graph.name} cannot be resumed at node {point}: it has {len(graph.nodes)} nodes")
    for index in graph.controls:
        if index >= point or int(graph.nodes[index].args[-2]) > point:
            jump = graph.nodes[index].label
            raise PlanError(f"{graph.name} cannot be resumed at node {point}: {jump} jumps after it or over it")
    made: set[Value] = set()
    before: set[Value] = set()
    for node in graph.nodes[point:]:
        kept = {node.args[position] for position in node.mutates}
        before.update(value for value in (*node.inputs, *kept) if value not in made)
        made.update(value for value in node.written if value not in before)
        for value in node.written:
            # KV-cache rows are written again as they were.
            if value in before and value not in {node.args[place] for place in node.cache_axes}:
                raise PlanError(f"{graph.name} cannot be resumed at node {point}: {node.label} writes {value.name}")


def _unclassified(
    graph: Graph,
    limits: Limits,
    choices: Choices,
    memory: MemoryPlan,
    scratch: Scratches,
    prepacked: frozenset[Tensor] = frozenset(),
) -> Plan:
    """A plan in which every node is a class of its own."""
    classes = tuple(NodeClass(node.index, (node.index,)) for node in graph.nodes)
    return Plan(graph, limits, choices, memory, scratch, prepacked, classes, _index_limits(graph, memory))


def _memory(graph: Graph, limits: Limits, choices: Choices) -> tuple[MemoryPlan, Scratches, frozenset[Tensor], Legal]:
    """The memory plan, with views aliased unless copies take less; and sizes of nodes that refuse their bound.

    Aliases extend live ranges; where that costs more than the file planned, the smaller of both is taken.
    """
    resident = [graph.outputs[place] for place in choices.resident]
    constants = share_constants(graph)
    aliased = [alias_views(graph, constants, limits.half)] if choices.aliasing else []
    best: tuple[MemoryPlan, Scratches, frozenset[Tensor], Legal] | None = None
    for roots in (*aliased, constants):
        nothing: Scratches = ((),) * len(graph.nodes)
        before = plan_memory(graph, roots, nothing, limits.half, resident, choices.resume)
        probe = _ScratchProbe(_unclassified(graph, limits, choices, before, nothing))
        scratch = probe.scratches()
        left = _left_out(graph, roots, probe.alone)
        memory = plan_memory(graph, roots, scratch, limits.half, resident, choices.resume, probe.prepacked, left)
        if best is None or memory.activation_bytes < best[0].activation_bytes:
            best = memory, scratch, frozenset(probe.prepacked), probe.legal
        if not 0 < graph.planned_bytes(limits.half) < memory.activation_bytes:
            break
    assert best is not None
    return best


def _left_out(graph: Graph, roots: Roots, alone: Mapping[Tensor, Collection[int]]) -> set[Tensor]:
    """Constants that nothing reads but what prepacks them: they are on the device while it loads them, and then not."""
    readers: dict[Tensor, bool] = {}  # whether all that read a memory read it prepacked
    for tensor in graph.tensors:
        if tensor.constant is not None:
            root = roots.get(tensor, tensor)
            prepacked = tensor not in graph.outputs and alone.get(tensor, ()) == {*graph.consumers[tensor]}
            readers[root] = readers.get(root, True) and prepacked
    return {root for root, prepacked in readers.items() if prepacked}


class _ScratchProbe(PlanState):
    """Learns which temporary memory each node asks for, by running its generator at the bound."""

    def scratches(self) -> Scratches:
        self._requested: list[list[Tensor]] = [[] for _ in self.nodes]
        self.prepacked: set[Tensor] = set()
        self.alone: dict[Tensor, set[int]] = {}  # of a constant, the nodes that read it prepacked alone

        def ask(node: LiveNode) -> None:
            self.steps(node, no_data_yet)

        # `_check` says what is refused, which knows the memory too.
        self.legal = legal_sizes(self, ask_all(self, ask), ask)
        return tuple(tuple(row) for row in self._requested)

    def _scratch(self, node: LiveNode, position: int, request: Scratch | Prepacked) -> LiveTensor:
        row = self._requested[node.index]
        if position == len(row):  # it is sized by bounds, so that each asking is the same
            kind = "prepacked" if isinstance(request, Prepacked) else "scratch"
            name = f"{node.node.label} {kind} {position}"
            row.append(Tensor(name, request.dtype, request.max_shape))
            if isinstance(request, Prepacked):
                self.prepacked.add(row[-1])
                if request.alone:
                    self.alone.setdefault(request.source.tensor, set()).add(node.index)
        return self.tensor(row[position])

    def _step(self, dispatch: Dispatch, pack: Callable[..., Any]) -> None:
        """Kernels depend on where the memory lies, which is not known yet."""


class _PrepackSteps(PlanState):
    """What fills prepacked memory, by running the generators that asked for such at the bound."""

    def collected(self, legal: Legal) -> tuple[PrepackStep, ...]:
        self._found: list[PrepackStep] = []

        def ask(node: LiveNode) -> None:
            # Live sizes are set, too, which a view behind a product may take.
            if node.scalar_only or any(tensor.tensor in self.plan.prepacked for tensor in node.scratch):
                self.steps(node, no_data_yet)

        refused = ask_all(self, ask, legal)
        filled = {step.node for step in self._found}
        for index, error in refused.items():
            node = self.nodes[index]
            # A live scalar may be data, which is not known yet: what packs a constant comes before it counts.
            if not (node.scalar_only or (node.node.live and index in filled)):
                raise error
        return tuple(self._found)

    def _prepack(self, node: LiveNode, dispatch: Dispatch) -> None:
        step = self._step(dispatch, Kernel.pack)
        if step is not None:
            variant, tensors, params, grid = step
            self._found.append(PrepackStep(node.index, variant, tuple(each.tensor for each in tensors), params, grid))


def _check(live: PlanState, legal: Legal) -> None:
    """Plan every node at the bound, or at legal sizes, to find every operator that cannot run here.

    Data is not known yet, so a live scalar may contradict the bounds; the first call plans such a node anew.
    """

    def ask(node: LiveNode) -> None:
        live.steps(node, no_data_yet)
        if node.index not in legal:
            _check_bounds(node)

    problems: list[Problem] = []
    for index, error in ask_all(live, ask, legal).items():
        node = live.plan.graph.nodes[index]
        if isinstance(error, UnsupportedError):
            problems.append(Problem(node.label, node.name, str(error).removeprefix(f"{node.label}: ")))
        elif not node.live:
            raise error
    if problems:
        raise unsupported(live.plan.graph.name, problems)
    live.restore()


def _check_bounds(node: LiveNode) -> None:
    """Refuse results that are allocated out of all proportion to what the operator gives at the bound of its inputs."""
    if node.node.live or node.node.reads_data:
        return  # what it gives at the bound is not known yet
    for tensor in node.outputs:
        allocated, given = prod(tensor.max_shape), prod(tensor.shape)
        if allocated >= _LARGE_RESULT and allocated > _MAX_WASTE * given:
            raise FormatError(
                f"{node.node.label}: {tensor.name} is allocated as {tensor.max_shape}, the operator gives at most "
                f"{tensor.shape}; the file is damaged: export it again"
            )


def _routes(live: PlanState) -> tuple[Route, ...]:
    """Every route that a family was seen to take, for all of its nodes."""
    found: list[Route] = []
    for groups in live.families.values():
        members = tuple(sorted(member.index for group in groups for member in group.members))
        distinct = dict.fromkeys(dispatched for group in groups for dispatched in group.routes if dispatched)
        found += [Route(members, dispatched) for dispatched in distinct]
    return tuple(found)


def _param_bytes(routes: tuple[Route, ...], limits: Limits) -> int:
    """Room for the params of every node: places are never given back, so each length at each step has one."""
    places: dict[tuple[int, int, int], int] = {}
    for route in routes:
        for step, (variant, _) in enumerate(route.dispatched):
            nbytes = variant.kernel.param_bytes
            for member in route.members if nbytes else ():
                places[member, step, nbytes] = aligned(nbytes, limits.uniform_alignment)
    return sum(places.values())


def _index_limits(graph: Graph, memory: MemoryPlan) -> dict[Tensor, int]:
    """The rows of the constant table that the elements of an input pick from; a view of an input is the input."""
    given = {
        memory.storages[value]: value for value in graph.tensors if value in graph.given and value in memory.storages
    }
    found: dict[Tensor, int] = {}
    for node in graph.nodes:
        if (gathered := node.gathered(node.args)) is not None:
            ids, table = gathered
            value = given.get(memory.storages[ids])
            if value is not None and table.constant is not None:
                found[value] = min(table.max_shape[0], found.get(value, table.max_shape[0]))
    return found
