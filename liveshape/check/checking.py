"""Checks a graph at several live shapes: each node on what its reference gives, then fused nodes, then the whole.

Nodes run on the inputs that the reference has, so that errors do not add up and the first node that is wrong is the one
that is named. A fused node is checked on the same values where the unfused program has all that it reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from liveshape.check.cases import Case
from liveshape.check.differences import TOLERANCE, Difference, difference
from liveshape.check.meanings import TWICE
from liveshape.check.references import NoReference, expected, is_open, kept
from liveshape.check.single_node import SingleNode
from liveshape.device.protocol import Device
from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Limits, Tensor, Value
from liveshape.lower.lowering import simplified
from liveshape.plan.plan import Choices
from liveshape.run.arrays import as_array, numpy_dtype
from liveshape.run.executor import Executor
from liveshape.run.host import compile_with_host

OPERATOR, FUSION, PROGRAM = "operator", "fusion", "program"  # what a divergence is of
REPEATED = "the same call gave other bytes the second time"
# Of the tolerance, for the whole: errors of all nodes add up, and where some round, a neighbour may come out.
_PROGRAM_FACTORS = {"float16": 400.0, "bfloat16": 2000.0, "int8": 200.0, "uint8": 200.0}
_PROGRAM_FACTOR = 10.0
MAX_CONSTANT_BYTES = 1 << 30

Known = dict[Value, Any]


@dataclass(frozen=True)
class Divergence:
    """Where values differ first: a node of the program or of its fused form, or an output of the whole."""

    kind: str
    node: str
    operator: str
    sources: tuple[str, ...]  # the nodes of the file that it stands for
    kernels: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]  # of what it reads
    value: str  # what differs
    reason: str
    difference: Difference | None = None
    case: Case | None = None  # to run it alone


@dataclass
class Found:
    """What a check found; `unknown` are nodes without a reference, with the reason."""

    checked: set[str] = field(default_factory=set)
    fused: set[str] = field(default_factory=set)
    unknown: dict[str, str] = field(default_factory=dict)
    divergences: list[Divergence] = field(default_factory=list)
    calls: int = 0

    @property
    def right(self) -> bool:
        return not self.divergences


class Check:
    """A check of one unfused graph on a device; executors are made once and serve every call, up and down.

    Example: `Check(graph, device, device.limits).call([np.ones((3, 8), "float32")])`.
    """

    def __init__(self, graph: Graph, device: Device, limits: Limits, tolerance: float = TOLERANCE) -> None:
        if graph.controls:
            raise UnsupportedError(f"{graph.name} has jumps, whose nodes run as often as data says: not checked yet")
        nbytes = sum(len(tensor.constant or b"") for tensor in graph.tensors)
        if nbytes > MAX_CONSTANT_BYTES:
            raise UnsupportedError(
                f"{graph.name} has {nbytes:,} bytes of constants; up to {MAX_CONSTANT_BYTES:,} are checked, since its "
                "reference runs on the host: check a program of fewer layers"
            )
        self.graph, self.device, self.tolerance = graph, device, tolerance
        self.found = Found()
        self.fused = simplified(graph, limits)
        unfused = {(node.name, node.args) for node in graph.nodes}
        self._nodes = [SingleNode(graph, node, device, limits) for node in graph.nodes]
        self._fused = [
            SingleNode(self.fused, node, device, limits)
            for node in self.fused.nodes
            if (node.name, node.args) not in unfused
        ]
        self._whole = Executor(compile_with_host(self.fused, limits, Choices(warm=False)), device)
        self._wrong: set[str] = set()  # nodes that are named already
        self._open = False  # whether a node of this call may write something else each time, and so the whole
        kinds = {tensor.dtype for tensor in graph.tensors if tensor.constant is None}
        factors = [_PROGRAM_FACTORS.get(kind, _PROGRAM_FACTOR) for kind in kinds]
        self._program_tolerance = tolerance * max(factors, default=_PROGRAM_FACTOR)

    @property
    def steps(self) -> int:
        """Nodes of one call, for a bar."""
        return len(self._nodes) + len(self._fused) + 1

    def call(self, inputs: Sequence[Any], begin: Callable[[str], None] = lambda node: None) -> None:
        """Check one call, at the live shapes of these inputs; `begin` is told each node before it runs."""
        self.found.calls += 1
        self._open = False
        known = self._begin(inputs)
        first = dict(known)
        for single in self._nodes:
            begin(single.node.label)
            self._check_node(single, known)
        for single in self._fused:
            begin(single.node.label)
            self._check_fused(single, known, first)
        begin(self.graph.name)
        if not self._open:
            self._check_program(inputs, known)

    def close(self) -> None:
        """Free all memory."""
        for single in (*self._nodes, *self._fused):
            single.close()
        self._whole.close()

    def _begin(self, inputs: Sequence[Any]) -> Known:
        """What is known before the first node: inputs, constants, and state as it is before the first call."""
        known: Known = {}
        for value, given in zip(self.graph.inputs, inputs, strict=True):
            if isinstance(value, Value):
                known[value] = kept(given, value.dtype) if isinstance(value, Tensor) else given
        for tensor in self.graph.tensors:
            if tensor.constant is not None:
                known[tensor] = as_array(tensor)
            elif tensor in self.graph.persistent and tensor not in known:
                known[tensor] = np.zeros(tensor.max_shape, numpy_dtype(tensor.dtype))
        for symint in self.graph.loop_carried:
            known.setdefault(symint, symint.initial)
        return known

    def _check_node(self, single: SingleNode, known: Known) -> None:
        """Run a node on what is known, compare, and go on with what the reference has of it."""
        node = single.node
        if is_open(node, known):
            self.found.unknown.setdefault(node.label, f"{node.name}: {TWICE}")
            known.update(single.run(known))
            self._open = True
            return
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

    def _check_fused(self, single: SingleNode, known: Known, first: Known) -> None:
        """Run a fused node on what the unfused program reads there, where that is known.

        A cache that it alone writes has before it what it had `first`.
        """
        node = single.node
        state = {value for value in node.written if value not in node.outputs}
        shared = [value for value in state if len(self.fused.writers[value]) != 1 or value not in first]
        if shared or any(value not in known for value in (*single.reads, *node.written)):
            self.found.unknown.setdefault(node.label, f"{node.name}: the unfused program has not all that it reads")
            return
        given = known | {value: first[value] for value in state}
        got = self._run(single, given, FUSION)
        self.found.fused.add(node.label)
        self._compare(single, given, FUSION, got, {value: known[value] for value in node.written})

    def _run(self, single: SingleNode, known: Known, kind: str) -> Known:
        """What a node writes; run twice, since a race gives other bytes."""
        got = single.run(known)
        again = single.run(known)
        for value, array in got.items():
            if np.asarray(array).tobytes() != np.asarray(again[value]).tobytes():
                self._name(single, known, kind, value, REPEATED, None, got)
        return got

    def _compare(self, single: SingleNode, known: Known, kind: str, got: Known, want: Known) -> None:
        for value, array in got.items():
            if value in want:
                dtype = value.dtype if isinstance(value, Tensor) else "int64"
                found = difference(array, want[value], dtype, self.tolerance)
                if found is not None:
                    self._name(single, known, kind, value, "its values differ from the reference", found, want)

    def _check_program(self, inputs: Sequence[Any], known: Known) -> None:
        """The fused program end to end, from its first state on, in poisoned memory."""
        self._whole.restart()
        self._whole.poison()
        results = self._whole.execute(inputs)
        for place, (value, got) in enumerate(zip(self.graph.outputs, results, strict=True)):
            want = known.get(value) if isinstance(value, Value) else None
            if want is None:
                continue
            dtype = value.dtype if isinstance(value, Tensor) else "int64"
            found = difference(got, want, dtype, self._program_tolerance)
            if found is not None and PROGRAM not in self._wrong:
                self._wrong.add(PROGRAM)
                shapes = {value.name: np.shape(given) for value, given in zip(self.graph.inputs, inputs, strict=True)}
                reason = "the whole program differs from the reference"
                self.found.divergences.append(
                    Divergence(PROGRAM, self.graph.name, "", (), (), shapes, f"output {place}", reason, found)
                )

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
        case = Case(node, {each: known[each] for each in single.reads}, want, self.tolerance)
        shapes = {each.name: np.shape(known[each]) for each in node.inputs}
        sources, kernels = tuple(str(source) for source in node.sources), tuple(single.kernels)
        self.found.divergences.append(
            Divergence(kind, node.label, node.name, sources, kernels, shapes, value.name, reason, found, case)
        )
