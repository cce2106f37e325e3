"""Checks a graph at several live shapes: each node on what its reference gives, then fused nodes, then the whole.

Nodes run on the inputs that the reference has, so that errors do not add up and the first node that is wrong is the one
that is named. A fused node is checked on the same values where the unfused program has all that it reads and writes.
Jumps are taken as the reference decides, and a node in a loop is checked in its first iterations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from liveshape.check.cases import Case
from liveshape.check.differences import FACTORS, TOLERANCE, Difference, difference
from liveshape.check.findings import AGAINST, FUSION, OPERATOR, PLAN, PROGRAM, REPEATED, Divergence, Found
from liveshape.check.fresh_plans import RecordingExecutor, plan_differences
from liveshape.check.kept_elements import kept
from liveshape.check.layer_sample import LayerSample
from liveshape.check.lifetimes import HeldValues, KeptExecutors, Schedule
from liveshape.check.meanings import TWICE
from liveshape.check.references import NoReference, expected, is_open, is_random
from liveshape.check.single_node import SingleNode
from liveshape.device.protocol import Device
from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Limits, Node, Tensor, Value
from liveshape.graph.activation_kinds import FLOAT16, FLOAT32
from liveshape.graph.state import states_of
from liveshape.lower.lowering import simplified
from liveshape.plan.plan import Choices
from liveshape.run.arrays import as_array, numpy_dtype
from liveshape.run.host import compile_with_host

# Of the tolerance, for the whole: errors of all nodes add up, and where some round, a neighbour may come out.
_PROGRAM_FACTORS = {"float16": 400.0, "bfloat16": 2000.0, "int8": 200.0, "uint8": 200.0}
_PROGRAM_FACTOR = 10.0
_ITERATIONS = 3  # of a loop, in which its nodes run alone; later ones are the reference's
_MAX_STEPS = 1 << 20  # nodes of one call, loops unrolled

Known = dict[Value, Any]
Against = Callable[[Sequence[Any]], Sequence[Any]]


class Check:
    """A check of one unfused graph on a device; executors are made once and serve every call, up and down.

    `sample` are the layers whose nodes run alone, all by default. `against` is called with the inputs of each call, and
    gives what the whole program should. Where the limits let matrix units round what they multiply, products may be off
    by as much as halves are.

    Example: `Check(graph, device, device.limits).call([np.ones((3, 8), "float32")])`.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device,
        limits: Limits,
        tolerance: float = TOLERANCE,
        sample: LayerSample | None = None,
        against: Against | None = None,
    ) -> None:
        self.graph, self.device, self.tolerance, self._against = graph, device, tolerance, against
        rounds = limits.half_inputs and limits.matrices_of(FLOAT16)
        self._activations = FLOAT16 if rounds else FLOAT32
        self.found = Found() if sample is None else Found(layers=sample.layers, chosen=sample.chosen)
        plan = compile_with_host(simplified(graph, limits), limits, Choices(warm=False))
        self.fused = plan.graph
        self._chosen = frozenset(range(len(graph.nodes))) if sample is None else sample.nodes
        chosen = {source for index in self._chosen for source in graph.nodes[index].sources}
        unfused = {(node.name, node.args) for node in graph.nodes}
        self._nodes = [SingleNode(graph, node, device, limits) for node in graph.nodes]
        self._fused = [
            SingleNode(self.fused, node, device, limits)
            for node in self.fused.nodes
            if (node.name, node.args) not in unfused
            and not node.host
            and (not node.sources or not chosen.isdisjoint(node.sources))
        ]
        self._schedule = Schedule(graph, [single.node for single in self._fused])
        self._kept = KeptExecutors()
        self._whole = RecordingExecutor(plan, device)
        self._wrong: set[str] = set()  # nodes that are named already
        self._reached: set[int] = set()
        self._open = False  # whether a node of this call may write something else each time, and so the whole
        self.expected: list[Any] = []  # the outputs of the last call, as the reference has them
        self.known: Known = {}  # values of the last call, likewise, as far as they are held
        self._state: Known = {}  # what the reference has of state after the last call
        self._constants: Known = {tensor: as_array(tensor) for tensor in graph.tensors if tensor.constant is not None}
        self._repeatable = all(state.axis is not None for state in states_of(graph))  # a call, at its position
        kinds = {self._activations} | {tensor.dtype for tensor in graph.tensors if tensor.constant is None}
        factors = [_PROGRAM_FACTORS.get(kind, _PROGRAM_FACTOR) for kind in kinds]
        self._program_tolerance = tolerance * max(factors, default=_PROGRAM_FACTOR)

    @property
    def steps(self) -> int:
        """Nodes of one call, for a bar."""
        return len(self._nodes) + len(self._fused) + 1

    def call(
        self, inputs: Sequence[Any], begin: Callable[[str], None] = lambda node: None, *, goes_on: bool = False
    ) -> None:
        """Check one call, at the live shapes of these inputs; `begin` is told each node before it runs.

        The state of the program, such as a KV cache, is that of the file, or where a call `goes_on` what the last one
        left.
        """
        self.found.calls += 1
        self._open = False
        self.known = known = self._begin(inputs, goes_on)
        count = len(self.found.divergences)
        self._walk(known, begin)
        # Nodes of the file before those that were made of them.
        self.found.divergences[count:] = sorted(self.found.divergences[count:], key=lambda each: each.kind == FUSION)
        begin(self.graph.name)
        self._check_program(inputs, known, goes_on)
        self.expected = [known.get(value) if isinstance(value, Value) else value for value in self.graph.outputs]
        self._state = {tensor: known[tensor] for tensor in self.graph.persistent if self.graph.writers.get(tensor)}
        self.found.unreached = len(self.graph.nodes) - len(self._reached)
        for label in self.found.checked | self.found.fused:
            self.found.unknown.pop(label, None)  # compared at another call

    def close(self) -> None:
        """Free all memory."""
        for single in (*self._nodes, *self._fused):
            single.close()
        self._whole.close()

    def _begin(self, inputs: Sequence[Any], goes_on: bool) -> Known:
        """What is known before the first node: inputs, constants, and state as it is before the call."""
        known = dict(self._constants)
        for value, given in zip(self.graph.inputs, inputs, strict=True):
            if isinstance(value, Value):
                known[value] = kept(given, value.dtype) if isinstance(value, Tensor) else given
        for tensor in self.graph.persistent:
            if tensor.constant is None and tensor not in known:
                known[tensor] = np.zeros(tensor.max_shape, numpy_dtype(tensor.dtype))
        if goes_on:
            known |= self._state
        for symint in self.graph.loop_carried:
            known.setdefault(symint, symint.initial)
        return known

    def _walk(self, known: Known, begin: Callable[[str], None]) -> None:
        """Every node in the order in which the program runs them, and fused ones when all is known that they take."""
        index, visits, nodes = 0, Counter[int](), self.graph.nodes
        first, held = dict(known), HeldValues(known)
        while index < len(nodes):
            node = nodes[index]
            visits[index] += 1
            self._reached.add(index)
            if visits.total() > _MAX_STEPS:
                raise UnsupportedError(f"{node.label}: the reference ran {_MAX_STEPS:,} nodes and was not at the end")
            if node.control:
                condition, target, _ = node.args
                taken = known[condition] if isinstance(condition, Value) else condition
                index = index + 1 if np.asarray(taken).reshape(-1)[0] else int(target)
                continue
            if visits[index] == 1:
                begin(node.label)
            alone = index in self._chosen and visits[index] <= _ITERATIONS
            if alone or not self._by_reference(node, known):
                self._check_node(self._nodes[index], known)
            if not self.graph.controls:
                held.count(node.written)
                held.count(self._check_fused_after(index, known, first, begin))
                held.dead(self._schedule.dead_after[index])
            index += 1
        if self.graph.controls:
            self._check_fused_after(len(nodes) - 1, known, first, begin)

    def _check_fused_after(self, index: int, known: Known, first: Known, begin: Callable[[str], None]) -> list[Value]:
        """Check the fused nodes that are due behind a node; what is known since then, and was not before."""
        made: list[Value] = []
        for place in self._schedule.fused_after[index]:
            begin(self._fused[place].node.label)
            made += self._check_fused(self._fused[place], known, first)
        return made

    def _by_reference(self, node: Node, known: Known) -> bool:
        """Go on with what the reference has of a node, without running it; False where that takes a run."""
        if node.alias or is_open(node, known):
            return False
        try:
            want = expected(node, known, {})
        except NoReference:
            return False
        if not want.keys() >= {*node.written}:
            return False
        known.update(want)
        if node.index not in self._chosen:
            self.found.by_reference.add(node.label)
        return True

    def _check_node(self, single: SingleNode, known: Known) -> None:
        """Run a node on what is known, compare, and go on with what the reference has of it."""
        node = single.node
        if is_open(node, known):
            self.found.unknown.setdefault(node.label, f"{node.name}: {TWICE}")
            known.update(single.run(known))
            self._kept.ran(single)
            self._open = True
            return
        self._open |= is_random(node)
        got = self._run(single, known, OPERATOR)
        shapes = {value: np.shape(array) for value, array in got.items()}
        try:
            want = expected(node, known, shapes)
        except NoReference as error:
            self.found.unknown.setdefault(node.label, f"{node.name}: {error}")
            want = {}
        else:
            self.found.checked.add(node.label)
        self._compare(single, known, OPERATOR, got, want)
        for value, array in got.items():
            fits = value in want and np.shape(want[value]) == np.shape(array)
            known[value] = want[value] if fits else array

    def _check_fused(self, single: SingleNode, known: Known, first: Known) -> Sequence[Value]:
        """Run a fused node on what the unfused program reads there, where that is known.

        A cache that it alone writes has before it what it had `first`. What the unfused program does not have, such as
        halves of a result or columns of several products, is known by what the fused node means, for those that read
        it; these values are returned.
        """
        node = single.node
        if any(start <= node.index <= end for start, end in self.fused.loops):
            self.found.unknown.setdefault(
                node.label, f"{node.name}: it is in a loop, whose values are of its last turn"
            )
            return ()
        state = {value for value in node.written if value not in node.outputs}
        shared = [value for value in state if len(self.fused.writers[value]) != 1 or value not in first]
        if shared or any(value not in known for value in single.reads):
            self.found.unknown.setdefault(node.label, f"{node.name}: the unfused program has not all that it reads")
            return ()
        given = known | {value: first[value] for value in state}
        got = self._run(single, given, FUSION)
        want = {value: known[value] for value in node.written if value in known}
        made: Known = {}
        if len(want) < len(node.written):
            own = [each for each in node.inputs if each not in given and isinstance(each, Tensor)]  # merged weights
            try:
                shapes = {value: np.shape(array) for value, array in got.items()}
                meant = expected(node, given | {each: as_array(each) for each in own}, shapes)
                made = {value: array for value, array in meant.items() if value not in want}
            except NoReference as error:
                self.found.unknown.setdefault(node.label, f"{node.name}: {error}")
        if want or made:
            self.found.fused.add(node.label)
        self._compare(single, given, FUSION, got, want | made)
        known.update(made)
        return tuple(made)

    def _run(self, single: SingleNode, known: Known, kind: str) -> Known:
        """What a node writes; run twice, since a race gives other bytes."""
        got = single.run(known)
        again = single.run(known)
        self._kept.ran(single)
        for value, array in got.items():
            if np.asarray(array).tobytes() != np.asarray(again[value]).tobytes():
                self._name(single, known, kind, value, REPEATED, None, got)
        return got

    def _compare(self, single: SingleNode, known: Known, kind: str, got: Known, want: Known) -> None:
        for value, array in got.items():
            if value in want:
                found = difference(array, want[value], _dtype(value), self._tolerance_of(single.node, value))
                if found is not None:
                    self._name(single, known, kind, value, "its values differ from the reference", found, want)

    def _check_program(self, inputs: Sequence[Any], known: Known, goes_on: bool) -> None:
        """The fused program end to end, in poisoned memory, twice; and its plan beside a fresh build's."""
        results = self._run_whole(inputs, goes_on)
        self._check_plan(inputs)
        if self._open:
            return
        if not goes_on or self._repeatable:
            for place, (one, other) in enumerate(zip(results, self._run_whole(inputs, goes_on), strict=True)):
                if np.asarray(one).tobytes() != np.asarray(other).tobytes():
                    self._name_whole(PROGRAM, inputs, place, REPEATED, None)
        for place, value in enumerate(self.graph.outputs):
            want = known.get(value) if isinstance(value, Value) else None
            if want is not None:
                reason = "the whole program differs from the reference"
                self._compare_whole(PROGRAM, inputs, place, results[place], want, reason)
        if self._against is not None:
            given = self._against(inputs)
            if len(given) != len(results):
                reason = f"it has {len(results)} outputs, the function of --against gave {len(given)}"
                self._name_whole(AGAINST, inputs, 0, reason, None)
                return
            for place, want in enumerate(given):
                reason = "the whole program differs from the function of --against"
                self._compare_whole(AGAINST, inputs, place, results[place], want, reason)

    def _run_whole(self, inputs: Sequence[Any], goes_on: bool) -> list[Any]:
        if not goes_on:
            self._whole.clear_state()
        self._whole.poison()
        return self._whole.execute(inputs)

    def _check_plan(self, inputs: Sequence[Any]) -> None:
        self.found.planned += len(self.fused.nodes)
        for each in plan_differences(self._whole):
            node = each.node
            key = f"{PLAN} {node.label}"
            if key not in self._wrong:
                self._wrong.add(key)
                kernels = tuple(label for label, *_ in self._whole.live.described(node.index))
                reason = f"{each.what}: {each.now} after the calls before, {each.fresh} in a fresh build"
                sources = tuple(str(source) for source in node.sources)
                shapes = self._shapes(inputs)
                self.found.divergences.append(
                    Divergence(PLAN, node.label, node.name, sources, kernels, shapes, "its plan", reason)
                )

    def _compare_whole(self, kind: str, inputs: Sequence[Any], place: int, got: Any, want: Any, reason: str) -> None:
        value = self.graph.outputs[place]
        dtype = _dtype(value) if isinstance(value, Value) else "int64"
        found = difference(got, want, dtype, self._program_tolerance)
        if found is not None:
            self._name_whole(kind, inputs, place, reason, found)

    def _name_whole(self, kind: str, inputs: Sequence[Any], place: int, reason: str, found: Difference | None) -> None:
        if kind not in self._wrong:
            self._wrong.add(kind)
            self.found.divergences.append(
                Divergence(kind, self.graph.name, "", (), (), self._shapes(inputs), f"output {place}", reason, found)
            )

    def _shapes(self, inputs: Sequence[Any]) -> dict[str, tuple[int, ...]]:
        return {
            getattr(value, "name", "a constant"): np.shape(given)
            for value, given in zip(self.graph.inputs, inputs, strict=True)
        }

    def _name(
        self,
        single: SingleNode,
        known: Known,
        kind: str,
        value: Value,
        reason: str,
        found: Difference | None,
        want: Known,
    ) -> None:
        node = single.node
        if node.label in self._wrong:
            return
        self._wrong.add(node.label)
        case = None  # of the first one alone: each has the arrays that it reads
        if all(each.case is None for each in self.found.divergences):
            tolerance = self._tolerance_of(node, value)
            given = {each: known[each] for each in single.reads}
            case = Case(node, given, want, tolerance, self._activations)
        # Weights of a fused node are its own, and always have their bound.
        shapes = {each.name: _shape(known, each) for each in node.inputs}
        sources, kernels = tuple(str(source) for source in node.sources), tuple(single.kernels)
        self.found.divergences.append(
            Divergence(kind, node.label, node.name, sources, kernels, shapes, value.name, reason, found, case)
        )

    def _tolerance_of(self, node: Node, value: Value) -> float:
        """What floats of a result may differ by: that of halves where matrix units may round what they multiply."""
        rounded = self._activations != FLOAT32 and node.traits.product is not None and _dtype(value) == FLOAT32
        return self.tolerance * (FACTORS[self._activations] if rounded else 1.0)


def _dtype(value: Value) -> str:
    return value.dtype if isinstance(value, Tensor) else "int64"


def _shape(known: Known, value: Value) -> tuple[int, ...]:
    if value not in known and isinstance(value, Tensor):
        return value.max_shape
    return np.shape(known[value])
