"""`liveshape profile`: time per kernel and operator for prefill, decode and calls, on the device and on the host."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from liveshape.device.protocol import Device
from liveshape.errors import InputError
from liveshape.export.runnable import Conversion
from liveshape.graph.activation_kinds import AUTO, resolve_activations
from liveshape.program.compile_target import CompileTarget
from liveshape.program.program import load_program, tell_host
from liveshape.run.constant_norms import compile_measured
from liveshape.run.executor import Executor
from liveshape.shipped import shipped
from liveshape.tools.commands.devices import rate_text
from liveshape.tools.commands.run import make_inputs
from liveshape.tools.console import check_writable, print_json, print_table, size_text, status, upload_bar, work_bar
from liveshape.tools.measuring.profiling import AGREES, PHASES, Executed, Line, Profile, profiled
from liveshape.tools.measuring.rates import MEASURED, Rates, rates_of
from liveshape.tools.measuring.subject import Subject, Work, call_name, check_calls, do, go_to_depth, is_program, works
from liveshape.tools.measuring.trace import trace as trace_of


def profile(
    model: str | None = None,
    *,
    shape: str | None = None,
    prompts: Sequence[int] = (512,),
    tokens: Sequence[int] = (32,),
    depths: Sequence[int] = (0,),
    repeats: int = 3,
    trace: str | None = None,
    as_json: bool = False,
    remeasure: bool = False,
    device: str | None = None,
    half_cache: bool = False,
    activations: str = AUTO,
    data: Sequence[str] = (),
    method: str = "forward",
    input_shapes: Sequence[str] = (),
    input_files: Sequence[str] | None = None,
    conversion: Conversion | None = None,
) -> int:
    """Print a profile by kernel and operator, and optionally write a trace file; exit code 0 if everything ran.

    Example: `profile(shape="1b", prompts=[512], tokens=[32], trace="trace.json")`.
    """
    check_writable("--trace", trace)
    if (model is None or not is_program(model)) and (input_shapes or input_files or data):
        raise InputError("--input-shapes, --inputs and --data are for a .pte file; language models take -p, -n and -d")
    if model is not None and is_program(model):
        check_calls(model, conversion)
        target = CompileTarget(device, activations=activations)
        with load_program(target, shipped(model) or model):
            opened = target.device
        rates = _rates(opened, remeasure)
        found = list(_of_program(model, data, method, target, input_shapes, input_files, repeats))
    else:
        rows, conversion = works(prompts, tokens, depths), conversion or Conversion()
        named = Subject(model, shape, half_cache, activations, conversion.max_context)
        with named.converted(conversion, rows) as subject:
            subject.context(rows)
            opened = subject.device(device)
            rates = _rates(opened, remeasure)
            found = list(_of_language_model(subject, rows, opened, repeats))
    if trace is not None:
        Path(trace).write_text(trace_of(found), encoding="utf-8")
    kind = resolve_activations(activations, opened.limits)
    if as_json:
        about = {"device": opened.name, "activations": kind, "rates": asdict(rates)}
        print_json({**about, "profiles": [_document(each) for each in found]})
    else:
        for each in found:
            _print(each, f"{opened.name}, {kind} activations", rates)
    if trace is not None:
        print(f"trace written to {trace}: open it in ui.perfetto.dev", file=sys.stderr)
    return 0


def _rates(device: Device, remeasure: bool) -> Rates:
    with work_bar(len(MEASURED)) as begin:
        return rates_of(device, remeasure, lambda what: begin(f"{device.name}: {what}"))


def _of_language_model(subject: Subject, rows: Sequence[Work], device: Device, repeats: int) -> Iterator[Profile]:
    status(f"loading {subject.name}: weights, then kernels")
    with upload_bar() as progress:
        opened = subject.open(rows, device, progress)
    with opened as model, work_bar(len(rows)) as begin:
        for work in rows:
            begin(work.name)
            yield profiled(
                model.engine.executor,
                work.name,
                max(work.tokens, 1),
                lambda work=work: go_to_depth(model, work.depth),  # type: ignore[misc]
                lambda work=work: do(model, work),  # type: ignore[misc]
                repeats,
            )


def _of_program(
    program: str,
    data: Sequence[str],
    method: str,
    target: CompileTarget,
    shapes: Sequence[str],
    files: Sequence[str] | None,
    repeats: int,
) -> Iterator[Profile]:
    device = target.device
    with upload_bar() as progress, load_program(target, shipped(program) or program, data_path=list(data)) as opened:
        wanted: Sequence[str | None] = shapes or [None]
        calls = [make_inputs(opened.inputs(method), each, files) for each in wanted]
        graph = opened.graph(method)
        if not graph.nodes:
            raise InputError(f"{method} of {program} computes nothing: its outputs are constants")
        tell_host(graph)
        with _closing(Executor(compile_measured(graph, target.limits), device, progress=progress)) as executor:
            for inputs in calls:

                def call(inputs: list[Any] = inputs) -> None:
                    executor.execute(inputs)

                yield profiled(executor, call_name(method, inputs), 1, device.flush, call, repeats)


@contextmanager
def _closing(executor: Executor) -> Iterator[Executor]:
    try:
        yield executor
    finally:
        executor.close()


# Output


def _lines(found: Profile) -> dict[str, list[Line]]:
    tables = {"kernel": found.by(lambda each: each.kernel), "operator": found.by(lambda each: each.operator)}
    if any(each.layer for each in found.executed):
        tables["layer"] = found.by(lambda each: each.layer)
    return tables


def _document(found: Profile) -> dict[str, Any]:
    nodes = {str(each.node): each for each in found.executed}
    return {
        "name": found.name,
        "turns": found.turns,
        "seconds": found.seconds,
        "host": found.host,
        "submits": found.submits,
        "dispatches": found.dispatches,
        "param_bytes": found.param_bytes,
        "cost": asdict(found.cost),
        "device_seconds": found.device if found.executed else None,
        "device_seconds_whole": found.whole if found.executed else None,
        "tick_seconds": found.tick if found.executed else None,
        **{f"by_{name}": [asdict(line) for line in lines] for name, lines in _lines(found).items()},
        # By number, since several nodes may stand for the same ones of the file; with the source nodes of each.
        "by_node": [_of_node(nodes[line.name], line) for line in found.by(lambda each: str(each.node))],
    }


def _of_node(node: Executed, line: Line) -> dict[str, Any]:
    about = {"node": node.node, "operator": node.operator, "sources": node.sources}
    return {**asdict(line), "name": node.label, **about}


def _print(found: Profile, device: str, rates: Rates) -> None:
    turns, each = found.turns, " per token" if found.turns > 1 else ""
    print(f"{found.name} on {device}: {_time(found.seconds / turns)}{each}")
    phases = [f"{phase} {_time(found.host[phase] / turns)}" for phase in PHASES]
    other = max(found.seconds - sum(found.host.values()), 0.0)
    print(f"  host{each}: {', '.join(phases)}, other {_time(other / turns)}")
    moved = f"{size_text(found.cost.read // turns)} read, {size_text(found.cost.written // turns)} written"
    written = f"{found.param_bytes / turns:,.0f} bytes of params written"
    print(f"  work{each}: {found.dispatches / turns:,.1f} dispatches, {written}, {moved}")
    if not found.executed:
        print("  device: this adapter has no timestamps, so the time of its kernels is not known\n")
        return
    print(f"  device{each}: {_time(found.device / turns)} by kernels, {_time(found.whole / turns)} as a whole")
    if found.tick:
        taken = _time(found.tick * len(found.executed) / turns)
        print(f"  without {_time(found.tick)} for each command, {taken} in all, which reading the clock takes here")
    if abs(found.device - found.whole) > AGREES * found.whole:
        print(f"  the two are {found.device / found.whole:.2f} to 1: the clock, or the machine, is in the way")
    for name, lines in _lines(found).items():
        if name != "layer":
            lines.sort(key=lambda line: -line.seconds)
        _print_lines(f"by {name}{each}", name, lines, found, rates)
    print()


def _print_lines(title: str, name: str, lines: Sequence[Line], found: Profile, rates: Rates) -> None:
    rows = []
    for line in lines:
        cost, rated = line.cost, ("-",) * 4  # no rates below the clock's resolution
        if line.seconds:
            moved, computed = cost.nbytes / line.seconds, cost.operations / line.seconds
            near = f"{moved / rates.copy:.1%}", f"{computed / rates.f32:.1%}"
            rated = rate_text(moved, "B/s"), near[0], rate_text(computed, "op/s"), near[1]
        rows.append(
            (
                line.name,
                f"{line.times / found.turns:g}",
                _time(line.seconds / line.times),
                _time(line.seconds / found.turns),
                f"{line.seconds / found.device:.1%}",
                size_text(cost.nbytes // found.turns),
                *rated,
            )
        )
    columns = (name, "times", "each", "time", "share", "bytes", "rate", "of copy", "operations", "of f32")
    print_table(title, columns, rows)


def _time(seconds: float) -> str:
    """Human-readable duration.

    >>> _time(1.09e-3), _time(8.1e-6)
    ('1.090 ms', '8.1 us')
    """
    return f"{1e3 * seconds:,.3f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.1f} us"
