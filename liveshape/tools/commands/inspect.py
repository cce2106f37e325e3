"""`liveshape inspect`: inputs, operators, memory and missing operators of a program. Nothing runs: it needs no GPU."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from liveshape.device.backends import open_device
from liveshape.errors import LiveshapeError, NoAdapterError, UnsupportedError
from liveshape.formats import DelegateCall, ExecutionPlan, KernelCall, PteFile
from liveshape.formats.signature import DYNAMIC, SIGNATURE, STATIC, UNKNOWN
from liveshape.formats.whole_file import whole_file
from liveshape.graph import Graph, Limits, Tensor
from liveshape.graph.state import states_of
from liveshape.graph.traits import Role
from liveshape.lower.lowering import Problem, examine, simplified
from liveshape.lower.problems import by_operator
from liveshape.metadata import Dim, TensorInfo, inputs_of, is_constant, outputs_of, shape_text
from liveshape.model import program_file
from liveshape.plan.dimensions import Dimension, dimensions, literals_like
from liveshape.plan.plan import Plan
from liveshape.program.compile_target import CompileTarget
from liveshape.program.memory_use import Memory, memory_of
from liveshape.program.program import load_program
from liveshape.run.host import compile_with_host, find_on_host
from liveshape.tools.console import counted, print_json, print_table, print_text, size_text
from liveshape.tools.model_explorer import graph_collection, node_data


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
class Report:
    """Everything about one method. `memory` is None where parts of the method could not be planned at all."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    dynamic: dict[str, tuple[int, ...]]  # dimensions that are proven dynamic
    baked: dict[str, dict[int, str]]  # unknown dimensions whose bound is also a constant in the program
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
    planned_nodes: int  # after fusion
    classes: int  # equivalence classes of nodes that are planned together
    untried: int  # combinations of live sizes whose kernels are not precompiled
    state: tuple[str, ...]  # mutable buffers that persist between calls, such as KV caches


@dataclass(frozen=True)
class Target:
    """The device limits to plan for, and the adapter that has them."""

    name: str | None
    limits: Limits


def inspect(
    program: str,
    *,
    data: Sequence[str] = (),
    method: str | None = None,
    device: str | None = None,
    as_json: bool = False,
    model_explorer: str | None = None,
) -> int:
    """Print a report of every method of a program, or of one; exit code 0 if all of it can run, 4 if not.

    `model_explorer` is a file to write the planned graphs to.

    Example: `inspect("model.pte", method="forward")`.
    """
    program = str(program_file(Path(program)))
    with load_program(CompileTarget(), program, data_path=list(data)) as opened:
        file, tensors = opened.file, opened.data
        if method is not None:
            opened.metadata(method)  # raises an error that lists the methods
        target = _target(device)
        plans = [plan for plan in file.plans if method in (None, plan.name)]
        methods = {
            plan.name: (plan, _planned(file, plan, tensors, target.limits)) for plan in plans if not is_constant(plan)
        }
        reports = [_report(file, *method) for method in methods.values()]
        # The signature is shown with the inputs, not as a method.
        told = [plan.name for plan in plans if is_constant(plan) and (plan.name != SIGNATURE or method == SIGNATURE)]
        constants = {name: opened.load_method(name).execute() for name in told}
        if model_explorer is not None:
            drawn = {name: planned.compiled for name, (_, planned) in methods.items() if planned.compiled is not None}
            _write_graphs(Path(model_explorer), Path(program).name, drawn)
    if as_json:
        print_json(_document(program, target, reports, constants))
    else:
        print_text(f"{program}: {size_text(os.path.getsize(program))}, {counted(len(file.plans), 'method')}")
        print_text(_target_text(target))
        if constants:
            rows = [(name, ", ".join(_short(value) for value in values)) for name, values in constants.items()]
            print_table("\nconstant methods", ("name", "returns"), rows)
        for report in reports:
            _print(report, target)
    return 4 if any(report.problems for report in reports) else 0


def _target(device: str | None) -> Target:
    try:
        opened = open_device(device)
    except NoAdapterError:
        if device is not None:
            raise
        return Target(None, Limits())
    return Target(opened.name, opened.limits)


def _write_graphs(path: Path, label: str, plans: Mapping[str, Plan]) -> None:
    written = {path: graph_collection(label, plans), path.with_suffix(".bytes.json"): node_data(plans)}
    for place, document in written.items():
        with whole_file(place, "a graph") as file:
            file.write(json.dumps(document).encode())


# Study


@dataclass(frozen=True)
class Planned:
    """A method's graph as the file has it, its plan if it has one, and why not if it has none."""

    graph: Graph
    lacking: list[Problem]
    problems: list[Problem]
    compiled: Plan | None


def _planned(file: PteFile, plan: ExecutionPlan, data: Mapping[str, memoryview], limits: Limits) -> Planned:
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


def _report(file: PteFile, plan: ExecutionPlan, planned: Planned) -> Report:
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
        dynamic={info.name: axes for info in (*inputs, *outputs) if (axes := _axes(info, DYNAMIC))},
        baked={} if compiled is None else _baked(compiled, inputs),
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
        classes=0 if compiled is None else len(compiled.classes),
        planned_nodes=0 if compiled is None else len(compiled.graph.nodes),
        untried=0 if compiled is None else compiled.untried,
        state=() if compiled is None else _state(compiled),
    )


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


def _axes(info: TensorInfo, status: str) -> tuple[int, ...]:
    return tuple(axis for axis, dim in enumerate(info.dims) if dim.status == status)


def _baked(plan: Plan, inputs: Sequence[TensorInfo]) -> dict[str, dict[int, str]]:
    """Unknown dimensions whose bound is a constant of the program, so that the size may be baked in."""
    names: dict[Any, str] = {}
    for info, value in zip(inputs, plan.graph.inputs, strict=True):
        names |= {(value, axis): info.name for axis in _axes(info, UNKNOWN)}
    found: dict[str, dict[int, str]] = {}
    for (tensor, axis), reason in literals_like(plan.graph, names).items():
        found.setdefault(names[tensor, axis], {})[axis] = reason
    return found


def _host(graph: Graph) -> list[HostNode]:
    found = [(node, find_on_host(node.name)) for node in graph.nodes if node.host]
    return [HostNode(node.label, node.name, by.library) for node, by in found if not isinstance(by, str)]


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


# Print


def _document(
    program: str, target: Target, reports: Sequence[Report], constants: dict[str, list[Any]]
) -> dict[str, Any]:
    return {
        "program": program,
        "bytes": os.path.getsize(program),
        "device": target.name,
        "limits": asdict(target.limits),
        "constant_methods": {name: [_plain(value) for value in values] for name, values in constants.items()},
        "methods": [asdict(report) for report in reports],
    }


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"{value.dtype} {shape_text(shape)}" if shape is not None and value.size > 8 else str(_plain(value))


def _target_text(target: Target) -> str:
    if target.name is None:
        return "no adapter here: limits are the least that every WebGPU device has"
    return f"limits are those of {target.name}"


def _print(report: Report, target: Target) -> None:
    shown = [
        (info.name, info.dtype, shape_text(info.bounds), _kind(info)) for info in (*report.inputs, *report.outputs)
    ]
    print_table(f"\n{report.name}: inputs and outputs", ("name", "dtype", "bounds", ""), shown)
    _print_unknown(report)
    lacking = {problem.operator for problem in report.problems}
    notes = dict.fromkeys((each.operator for each in report.host), "ON THE HOST: slow") | dict.fromkeys(
        lacking, "NOT SUPPORTED"
    )
    rows = [(name, count, notes.get(name, "")) for name, count in report.operators.items()]
    print_table(
        f"\n{report.name}: {counted(report.nodes, 'operator')}, {counted(report.delegates, 'delegate')}",
        ("operator", "count", ""),
        rows,
    )
    if report.problems:
        parts = counted(len(report.problems), "part")
        print_text(f"\n{report.name}: {parts} CANNOT RUN")
        for missing in by_operator(report.problems):
            print_text(f"  {missing}")
    if report.host:
        listing = [(each.node, each.library) for each in report.host]
        print_table(f"\n{report.name}: no kernel, the device waits for the host", ("node", "computed by"), listing)
    constants = report.constants
    largest = f"; the largest is {constants.largest}, {size_text(constants.largest_bytes)}" if constants.count else ""
    print_text(f"\n{report.name}: {counted(constants.count, 'constant')}, {size_text(constants.nbytes)}{largest}")
    _print_memory(report, target.limits)
    _print_reads(report)
    if report.portable:
        between = sum(report.portable_between_delegates.values())
        names = ", ".join(f"{name} x{count}" for name, count in report.portable.items())
        print_text(f"{report.name}: portable operators ({between} between delegates), in the same graph: {names}")


def _kind(info: TensorInfo) -> str:
    if not info.is_tensor:
        return "number"
    parts = [
        f"{status}: {', '.join(f'dimension {axis} {_sizes(info.dims[axis])}' for axis in axes)}"
        for status in (DYNAMIC, UNKNOWN)
        if (axes := _axes(info, status))
    ]
    return "; ".join(parts) or "static"


def _sizes(dim: Dim) -> str:
    least = f"from {dim.min} to {dim.max}" if dim.min else f"up to {dim.max}"
    steps = f" in steps of {dim.multiple}" if dim.multiple > 1 else ""
    return f"{least}{steps}{f' ({dim.symbol})' if dim.symbol else ''}"


def _print_unknown(report: Report) -> None:
    if not any(_axes(info, UNKNOWN) for info in report.inputs):
        return
    print_text(
        f"{report.name}: the file does not say whether unknown dimensions were dynamic when it was exported: below the "
        "bound of one that was static, results may be wrong. Compare such sizes with the module itself, or export it "
        "with liveshape export, which writes down what is legal"
    )
    for name, places in report.baked.items():
        for axis, reason in places.items():
            print_text(f"  {name}, dimension {axis}: {reason}, which is its bound: most likely it is static")


def _print_memory(report: Report, limits: Limits) -> None:
    memory = report.memory
    if memory is None:
        print_text(f"{report.name}: the memory need is not known while it cannot be planned")
        return
    rows = [
        ("weights", size_text(memory.weights), ""),
        ("state", size_text(memory.state), "caches, kept from call to call"),
        (
            "activations",
            size_text(memory.activations),
            f"{size_text(memory.unshared)} unshared, {size_text(memory.file_plan)} by the plan of the file",
        ),
        ("staging", size_text(memory.staging), "results on their way to the host"),
        ("params", size_text(memory.params), ""),
        ("total", size_text(memory.total), f"{counted(report.kernels, 'kernel')} to compile"),
    ]
    title = "memory" if not report.problems else "memory, at least, without the parts that cannot run"
    print_table(f"\n{report.name}: {title}", ("what", "bytes", ""), rows)
    nodes, classes = counted(report.planned_nodes, "node"), counted(report.classes, "class", "classes")
    planned = f"{nodes} after fusion, planned as {classes}"
    later = f"; untried: {counted(report.untried, 'combination')} of live sizes, whose kernels compile at first use"
    print_text(f"  {planned}{later if report.untried else ''}")
    if report.state:
        opaque = sum(each.endswith("opaque") for each in report.state)
        positional = counted(len(report.state) - opaque, "tensor")
        print_text(f"  state: {positional} with a row per position, {opaque} opaque (can be reset and copied, not cut)")
    allowed = f"allowed are {size_text(limits.max_buffer_bytes)}, and {size_text(limits.max_binding_bytes)} per binding"
    parts = -(-report.largest_buffer // limits.max_binding_bytes)
    verdict = "fits" if parts <= 1 else f"is split over {parts} bindings"
    print_text(f"  the largest buffer has {size_text(report.largest_buffer)}, {allowed}: it {verdict}")


def _print_reads(report: Report) -> None:
    if not report.reads:
        return
    rows = [
        (each.node, each.tensor, "free: the host has it" if each.free else "ROUND TRIP: waits for the device")
        for each in report.reads
    ]
    print_table(f"\n{report.name}: the plan depends on values", ("node", "reads", "cost"), rows)


__all__ = ["ConstantData", "DataRead", "HostNode", "Report", "inspect"]
