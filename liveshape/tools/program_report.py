"""What is in a method and what it needs, found by planning it: the report of `liveshape inspect`. No GPU is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from liveshape.errors import LiveshapeError, UnsupportedError
from liveshape.formats import DelegateCall, ExecutionPlan, KernelCall, PteFile
from liveshape.formats.signature import DYNAMIC, STATIC, UNKNOWN
from liveshape.graph import Graph, Limits, Tensor
from liveshape.graph.decisions import Decision
from liveshape.graph.sources import operators_of
from liveshape.graph.state import states_of
from liveshape.graph.traits import Role
from liveshape.lower.lowering import Problem, examine, simplified
from liveshape.metadata import Dim, TensorInfo, inputs_of, outputs_of, shape_text
from liveshape.plan.dimensions import Dimension, dimensions, literals_like
from liveshape.plan.plan import Plan
from liveshape.program.memory_use import Memory, memory_of
from liveshape.run.host import compile_with_host, find_on_host


@dataclass(frozen=True)
class DataRead:
    """A data-dependent read of the plan: free where the host has the value, else a round trip to the device."""

    node: str
    tensor: str
    free: bool


@dataclass(frozen=True)
class HostNode:
    """A node that falls back to the host, and the library that computes it there."""

    node: str
    operator: str
    library: str


@dataclass(frozen=True)
class ConstantData:
    """The constants of a method: their count, total bytes, and the largest."""

    count: int
    nbytes: int
    largest: str
    largest_bytes: int


@dataclass(frozen=True)
class Decided:
    """A fusion of these operators that pays or not, how often it was asked for, and the seconds of all of them."""

    fusion: str
    operators: str
    pays: bool
    count: int
    apart: float
    together: float


@dataclass(frozen=True)
class Report:
    """Everything about one method. `memory` is None where parts of the method could not be planned at all."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    dynamic: dict[str, tuple[int, ...]]  # dimensions that are proven dynamic
    baked: dict[str, dict[int, str]]  # unknown dimensions whose bound is also a constant in the program
    unread: tuple[str, ...]  # inputs that no operator reads
    signature: bool  # whether the file has a signature of legal shapes
    delegates: int
    nodes: int
    operators: dict[str, int]
    portable: dict[str, int]
    portable_between_delegates: dict[str, int]
    problems: list[Problem]
    host: list[HostNode]  # host fallback
    constants: ConstantData
    reads: list[DataRead]
    memory: Memory | None
    largest_buffer: int
    kernels: int
    splits_floats: bool  # whether large float32 products are three products of halves by matrix units
    planned_nodes: int  # after fusion
    fused: dict[str, int]  # how often operators of the file, joined by +, are one node
    decisions: list[Decided]  # the fusions that were decided by cost, and what both ways are expected to take
    classes: int  # equivalence classes of nodes that are planned together
    untried: int  # combinations of live sizes whose kernels are not precompiled
    state: tuple[str, ...]  # mutable buffers that persist between calls, such as KV caches


@dataclass(frozen=True)
class Planned:
    """A method's graph as the file has it, its plan if it has one, and why not if it has none."""

    graph: Graph
    lacking: list[Problem]
    problems: list[Problem]
    compiled: Plan | None


def planned_method(file: PteFile, plan: ExecutionPlan, data: Mapping[str, memoryview], limits: Limits) -> Planned:
    """Plan a method of a file for a device with these limits, as far as that can be.

    Example: `planned_method(program.file, program.file.plans[0], program.data, Limits()).problems`.
    """
    graph, lacking = examine(file, plan.name, data, find_on_host)
    problems = lacking
    compiled: Plan | None = None
    try:
        compiled = compile_with_host(simplified(graph, limits), limits)
    except UnsupportedError as error:
        names = {node.label: node.name for node in graph.nodes}
        problems = lacking + [Problem(node, names.get(node, ""), reason) for node, reason in error.details]
    except LiveshapeError as error:
        problems = [*lacking, Problem(graph.name, "", str(error))]
    return Planned(graph, lacking, problems, compiled)


def report_of(file: PteFile, plan: ExecutionPlan, planned: Planned) -> Report:
    """The report of a planned method.

    Example: `report_of(file, plan, planned_method(file, plan, data, Limits())).memory`.
    """
    graph, lacking, problems, compiled = planned.graph, planned.lacking, planned.problems, planned.compiled
    # Scalar arithmetic runs on the host for free; the rest are operators that the partitioner left out.
    portable = [
        (at, each.op)
        for at, each in enumerate(plan.instructions)
        if isinstance(each, KernelCall) and not each.op.startswith("executorch_prim::")
    ]
    calls = [at for at, each in enumerate(plan.instructions) if isinstance(each, DelegateCall)]
    between = [name for at, name in portable if calls and calls[0] < at < calls[-1]]
    named = [node.name for node in graph.nodes] + [problem.operator for problem in lacking if problem.operator]
    signature = file.signatures.get(plan.name)
    inputs, outputs = inputs_of(plan, signature), outputs_of(plan)
    known = {} if compiled is None else dimensions(compiled, signature)
    if compiled is not None:
        if signature is None:
            inputs = _with_dims(inputs, compiled.graph.inputs, known)
        outputs = _with_dims(outputs, compiled.graph.outputs, known)
    return Report(
        name=plan.name,
        inputs=inputs,
        outputs=outputs,
        dynamic={info.name: axes for info in (*inputs, *outputs) if (axes := axes_of(info, DYNAMIC))},
        baked={} if compiled is None else _baked(compiled, inputs),
        unread=unread_inputs(graph, [info.name for info in inputs]),
        signature=signature is not None,
        delegates=len(plan.delegates),
        nodes=len(graph.nodes),
        operators=dict(Counter(named).most_common()),
        portable=dict(Counter(name for _, name in portable).most_common()),
        portable_between_delegates=dict(Counter(between).most_common()),
        problems=problems,
        host=_host(graph if compiled is None else compiled.graph),
        constants=_constants(graph),
        reads=_reads(graph),
        memory=None if compiled is None else memory_of(compiled),
        largest_buffer=0 if compiled is None else max(compiled.memory.blocks, default=0),
        kernels=0 if compiled is None else len(compiled.kernels),
        splits_floats=compiled is not None and any("split" in each.kernel.others for each in compiled.kernels),
        classes=0 if compiled is None else len(compiled.classes),
        planned_nodes=0 if compiled is None else len(compiled.graph.nodes),
        fused={} if compiled is None else _fused(compiled.graph),
        decisions=[] if compiled is None else _decisions(compiled.graph),
        untried=0 if compiled is None else compiled.untried,
        state=() if compiled is None else _state(compiled),
    )


def unread_inputs(graph: Graph, names: Sequence[str]) -> tuple[str, ...]:
    """The names of inputs that nothing reads, whose values change nothing.

    Example: `unread_inputs(graph, ["query", "key"]) == ("key",)`.
    """
    read = graph.consumers.keys() | set(graph.outputs)
    return tuple(name for name, value in zip(names, graph.inputs, strict=True) if value not in read)


def _with_dims(
    infos: Sequence[TensorInfo], values: Sequence[Any], known: Mapping[Tensor, tuple[Dimension, ...]]
) -> tuple[TensorInfo, ...]:
    """Tensor infos with the status of each dimension as planning inferred it."""
    found = []
    for info, value in zip(infos, values, strict=True):
        if isinstance(value, Tensor) and info.dynamic:
            dims = zip(info.bounds, known[value], strict=True)
            made = (Dim(each.status, most if each.status == STATIC else 0, most, each.multiple) for most, each in dims)
            info = replace(info, dims=tuple(made))
        found.append(info)
    return tuple(found)


def axes_of(info: TensorInfo, status: str) -> tuple[int, ...]:
    """The dimensions of an input or output that have a status.

    Example: `axes_of(info, "dynamic") == (1,)`.
    """
    return tuple(axis for axis, dim in enumerate(info.dims) if dim.status == status)


def _baked(plan: Plan, inputs: Sequence[TensorInfo]) -> dict[str, dict[int, str]]:
    """Unknown dimensions whose bound is a constant of the program, so that the size may be baked in."""
    names: dict[Any, str] = {}
    for info, value in zip(inputs, plan.graph.inputs, strict=True):
        names |= {(value, axis): info.name for axis in axes_of(info, UNKNOWN)}
    found: dict[str, dict[int, str]] = {}
    for (tensor, axis), reason in literals_like(plan.graph, names).items():
        found.setdefault(names[tensor, axis], {})[axis] = reason
    return found


def _host(graph: Graph) -> list[HostNode]:
    found = [(node, find_on_host(node.name)) for node in graph.nodes if node.host]
    return [HostNode(node.label, node.name, by.library) for node, by in found if not isinstance(by, str)]


def _fused(graph: Graph) -> dict[str, int]:
    found = Counter(" + ".join(operators) for node in graph.nodes if len(operators := operators_of(node)) > 1)
    return dict(found.most_common())


def _decisions(graph: Graph) -> list[Decided]:
    found: dict[tuple[str, str, bool], list[Decision]] = {}
    for each in graph.decisions:
        found.setdefault((each.fusion, each.what, each.pays), []).append(each)
    return [
        Decided(*key, len(each), sum(one.apart for one in each), sum(one.together for one in each))
        for key, each in found.items()
    ]


def _state(plan: Plan) -> tuple[str, ...]:
    return tuple(
        f"{state.tensor.name} ({state.tensor.dtype} {shape_text(state.tensor.max_shape)}), "
        + ("opaque" if state.axis is None else f"a row per position along axis {state.axis}")
        for state in states_of(plan.graph)
    )


def _constants(graph: Graph) -> ConstantData:
    held = [tensor for tensor in graph.tensors if tensor.constant is not None]
    largest = max(held, key=lambda tensor: len(tensor.constant or b""), default=None)
    return ConstantData(
        count=len(held),
        nbytes=sum(len(tensor.constant or b"") for tensor in held),
        largest="" if largest is None else f"{largest.name} ({largest.dtype} {shape_text(largest.max_shape)})",
        largest_bytes=0 if largest is None else len(largest.constant or b""),
    )


def _reads(graph: Graph) -> list[DataRead]:
    return [
        DataRead(
            node.label,
            tensor.name,
            # An output with a data-dependent size is counted by the node's own kernels.
            not any(isinstance(value, Tensor) for value in node.written)
            and not graph.writers[tensor]
            and (tensor in graph.given or tensor.constant is not None),
        )
        for node in graph.nodes
        if (node.reads_data or node.control)
        and not node.host
        and node.traits.role is not Role.DRAW
        and isinstance(tensor := node.args[0], Tensor)
    ]


__all__ = [
    "ConstantData",
    "DataRead",
    "Decided",
    "HostNode",
    "Planned",
    "Report",
    "axes_of",
    "planned_method",
    "report_of",
]
