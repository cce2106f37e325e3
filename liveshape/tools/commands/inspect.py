"""`liveshape inspect`: inputs, operators, memory and missing operators of a program. Nothing runs: it needs no GPU."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from liveshape.device.backends import open_device
from liveshape.errors import InputError, NoAdapterError
from liveshape.formats.signature import DYNAMIC, SIGNATURE, UNKNOWN, Signature
from liveshape.formats.whole_file import whole_file
from liveshape.graph import Limits
from liveshape.lower.problems import by_operator
from liveshape.metadata import Dim, TensorInfo, is_constant, shape_text
from liveshape.plan.plan import Plan
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import program_file
from liveshape.program.program import load_program
from liveshape.tools.console import check_writable, counted, print_json, print_table, print_text, size_text, work_bar
from liveshape.tools.model_explorer import graph_collection, node_data
from liveshape.tools.program_page.document import method_document
from liveshape.tools.program_page.measured import add_check, add_profile
from liveshape.tools.program_page.program_html import page
from liveshape.tools.program_report import Planned, Report, axes_of, planned_method, report_of

_STEPS = 256  # live sizes that a page plans at, for the bar


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
    html: str | None = None,
    profile: str | None = None,
    check: str | None = None,
) -> int:
    """Print a report of every method of a program, or of one; exit code 0 if all of it can run, 4 if not.

    `model_explorer` is a file to write the planned graphs to, `html` one for the page of the program, with the times of
    a `profile` and the errors of a `check`, which are files of these commands' JSON.

    Example: `inspect("model.pte", method="forward")`.
    """
    if html is None and (profile is not None or check is not None):
        raise InputError("--profile and --check are shown on the page: give --html FILE, too")
    check_writable("--html", html)
    program = str(program_file(Path(program)))
    with load_program(CompileTarget(), program, data_path=list(data)) as opened:
        file, tensors = opened.file, opened.data
        if method is not None:
            opened.metadata(method)  # raises an error that lists the methods
        target = _target(device)
        plans = [plan for plan in file.plans if method in (None, plan.name)]
        methods = {
            plan.name: (plan, planned_method(file, plan, tensors, target.limits))
            for plan in plans
            if not is_constant(plan)
        }
        reports = [report_of(file, *method) for method in methods.values()]
        # The signature is shown with the inputs, not as a method.
        told = [plan.name for plan in plans if is_constant(plan) and (plan.name != SIGNATURE or method == SIGNATURE)]
        constants = {name: opened.load_method(name).execute() for name in told}
        if model_explorer is not None:
            drawn = {name: planned.compiled for name, (_, planned) in methods.items() if planned.compiled is not None}
            _write_graphs(Path(model_explorer), Path(program).name, drawn)
        if html is not None:
            signatures = {name: file.signatures.get(name) for name in methods}
            drawn_methods = [(methods[name][1], signature) for name, signature in signatures.items()]
            _write_page(Path(html), program, target, drawn_methods, profile, check)
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


def _write_page(
    path: Path,
    program: str,
    target: Target,
    methods: Sequence[tuple[Planned, Signature | None]],
    profile: str | None,
    check: str | None,
) -> None:
    documents = []
    with work_bar(len(methods) * _STEPS) as begin:
        for planned, signature in methods:
            documents.append(method_document(planned.graph, planned.compiled, planned.problems, signature, begin))
    if profile is not None:
        add_profile(documents, profile)
    if check is not None:
        add_check(documents, check)
    about = {"program": Path(program).name, "bytes": os.path.getsize(program), "device": target.name}
    with whole_file(path, "a page") as file:
        file.write(page({**about, "methods": documents}))


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
    if report.unread:
        print_text(
            f"{report.name}: {', '.join(report.unread)}: NEVER READ, what is given there changes nothing. torch.export "
            "takes one tensor that is given as two inputs for one: export with a tensor of its own for each"
        )
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
    if report.fused:
        one_node = list(report.fused.items())
        print_table(f"\n{report.name}: operators that are one node", ("fused", "count"), one_node)
    if report.decisions:
        chosen = [
            (
                *(each.operators, each.fusion, "fused" if each.pays else "left apart", each.count),
                *(f"{1e6 * each.apart:.1f}", f"{1e6 * each.together:.1f}"),
            )
            for each in report.decisions
        ]
        title = "decided by cost, and the microseconds at the bounds"
        print_table(f"\n{report.name}: {title}", ("operators", "fusion", "", "count", "apart", "together"), chosen)
    constants = report.constants
    largest = f"; the largest is {constants.largest}, {size_text(constants.largest_bytes)}" if constants.count else ""
    print_text(f"\n{report.name}: {counted(constants.count, 'constant')}, {size_text(constants.nbytes)}{largest}")
    _print_memory(report, target.limits)
    _print_reads(report)
    if report.splits_floats:
        print_text(
            f"{report.name}: large float32 products are three products of halves by matrix units, which keep 22 bits "
            "of each factor; with deterministic=True, or through wgpu, they are products of float32"
        )
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
        if (axes := axes_of(info, status))
    ]
    return "; ".join(parts) or "static"


def _sizes(dim: Dim) -> str:
    least = f"from {dim.min} to {dim.max}" if dim.min else f"up to {dim.max}"
    steps = f" in steps of {dim.multiple}" if dim.multiple > 1 else ""
    return f"{least}{steps}{f' ({dim.symbol})' if dim.symbol else ''}"


def _print_unknown(report: Report) -> None:
    if not any(axes_of(info, UNKNOWN) for info in report.inputs):
        return
    print_text(
        f"{report.name}: the file does not say whether unknown dimensions were dynamic when it was exported: below the "
        "bound of one that was static, results may be wrong. Nor does it say whether a bound is the one that was asked "
        "for: ExecuTorch's own passes may have left the size of the example. Compare such sizes with the module "
        "itself, or export it with liveshape export, which keeps bounds and writes down what is legal"
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


__all__ = ["inspect"]
