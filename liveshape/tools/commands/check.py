"""`liveshape check`: compare every node of a program with an independent reference, at several live shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from liveshape.check.cases import Case
from liveshape.check.checking import Check
from liveshape.check.findings import Divergence, Found
from liveshape.check.differences import TOLERANCE
from liveshape.check.live_shapes import parse_sizes, shapes_of_calls
from liveshape.device.backends import open_device
from liveshape.errors import InputError, LiveshapeError
from liveshape.lower.lowering import examine
from liveshape.lower.problems import unsupported
from liveshape.metadata import is_constant
from liveshape.model import program_file
from liveshape.program.compile_target import CompileTarget
from liveshape.program.program import Program, load_program
from liveshape.run.host import find_on_host
from liveshape.tools.commands.run import legal, make_inputs, parse_shapes
from liveshape.tools.console import check_writable, counted, print_json, print_text, work_bar


def check(
    program: str,
    *,
    data: Sequence[str] = (),
    method: str | None = None,
    device: str | None = None,
    input_shapes: Sequence[str] = (),
    shapes: str | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    save: str | None = None,
    as_json: bool = False,
) -> int:
    """Check a program and print what was found; 1 where values differ. `save` is a file for the first divergence.

    Example: `check("model.pte", input_shapes=["1x7x64", "1x64x64"])`.
    """
    if not 0 < tolerance < 1:
        raise InputError(f"--tol {tolerance}: it is relative to the largest number of a tensor, between 0 and 1")
    if input_shapes and shapes is not None:
        raise InputError("--input-shapes and --shapes: give one of the two")
    check_writable("--save", save)
    target = CompileTarget(open_device(device))
    found: dict[str, Found] = {}
    with load_program(target, program_file(Path(program)), data_path=list(data)) as opened:
        names = [plan.name for plan in opened.file.plans if not is_constant(plan)] if method is None else [method]
        for name in names:
            calls = calls_of(opened, name, input_shapes, shapes, seed)
            found[name] = checked(opened, name, target, calls, tolerance)
    if as_json:
        print_json({"program": program, "device": target.device.name, "methods": _documents(found)})
    else:
        for name, each in found.items():
            _print(name, each)
    case = next((row.case for each in found.values() for row in each.divergences if row.case is not None), None)
    if case is not None and save is not None:
        case.save(Path(save))
    if case is not None and not as_json:
        print_text(
            "  --save FILE keeps what the first one reads, for --replay and for a bug report"
            if save is None
            else f"  {case.node.label} was written to {save}: liveshape check --replay {save} runs it alone"
        )
    return 0 if all(each.right for each in found.values()) else 1


def replay(file: str, *, device: str | None = None, as_json: bool = False) -> int:
    """Run a saved node alone; 1 where it still differs.

    Example: `replay("case.npz")`.
    """
    case, opened = Case.load(Path(file)), open_device(device)
    kernels, found = case.replay(opened)
    wrong = {name: each for name, each in found.items() if each is not None}
    if as_json:
        rows = {name: None if each is None else asdict(each) for name, each in found.items()}
        print_json({"node": case.node.label, "device": opened.name, "kernels": kernels, "values": rows})
        return 1 if wrong else 0
    print_text(f"{case.node.label} on {opened.name}\n  kernels {', '.join(kernels)}")
    for name, each in found.items():
        print_text(f"  {name}: {'as expected' if each is None else each}")
    return 1 if wrong else 0


def calls_of(
    program: Program, method: str, input_shapes: Sequence[str] = (), shapes: str | None = None, seed: int = 0
) -> list[list[Any]]:
    """Random inputs for each call of a check, at the live shapes that were asked for or that the signature allows.

    Example: `calls_of(program, "forward", ["1x7x64"])`.
    """
    takes, signature = program.inputs(method), program.file.signatures.get(method)
    if input_shapes:
        rows = [parse_shapes(text, takes) for text in input_shapes]
    else:
        asked = None if shapes is None else parse_sizes(shapes)
        rows = list(shapes_of_calls(signature, [info.bounds for info in takes], asked))
    calls = []
    for turn, row in enumerate(rows):
        drawn = [replace(info, bounds=shape) for info, shape in zip(takes, row, strict=True)]
        inputs = make_inputs(drawn, None, None, seed + turn)
        try:
            calls.append(legal(inputs, signature, given=False))
        except LiveshapeError:
            if input_shapes or shapes is not None:
                raise  # else sizes of two symbols that a guard keeps apart
    return calls


def checked(
    program: Program, method: str, target: CompileTarget, calls: Sequence[Sequence[Any]], tolerance: float = TOLERANCE
) -> Found:
    """Check one method at these calls.

    Example: `checked(program, "forward", target, calls_of(program, "forward")).right`.
    """
    graph, problems = examine(program.file, method, program.data, find_on_host)
    if problems:
        raise unsupported(method, problems)
    checking = Check(graph, target.device, target.limits, tolerance)
    try:
        with work_bar(len(calls) * checking.steps) as begin:
            for inputs in calls:
                checking.call(inputs, begin)
        return checking.found
    finally:
        checking.close()


def _documents(found: dict[str, Found]) -> dict[str, Any]:
    return {
        name: {
            "right": each.right,
            "calls": each.calls,
            "checked": len(each.checked),
            "fused": len(each.fused),
            "unknown": each.unknown,
            "divergences": [asdict(replace(divergence, case=None)) for divergence in each.divergences],
        }
        for name, each in found.items()
    }


def _print(name: str, found: Found) -> None:
    sizes = f"{counted(found.calls, 'call')} at {'its' if found.calls == 1 else 'their'} live shapes"
    print_text(
        f"{name}: {counted(len(found.checked), 'node')} and {len(found.fused)} fused compared with a reference, {sizes}"
    )
    for reason, count in Counter(found.unknown.values()).items():
        print_text(f"  not compared, {count}: {reason}")
    for each in found.divergences:
        print_text(_told(each))
    print_text("  no value differs" if found.right else f"  {counted(len(found.divergences), 'divergence')}")


def _told(each: Divergence) -> str:
    rows = [f"  {each.kind} {each.node}: {each.reason}"]
    if each.difference is not None:
        rows.append(f"    {each.value}: {each.difference}")
    rows.append(f"    reads {', '.join(f'{name} {shape}' for name, shape in each.shapes.items())}")
    if each.kernels:
        rows.append(f"    kernels {', '.join(each.kernels)}")
    if each.sources:
        rows.append(f"    of the file: {', '.join(each.sources)}")
    return "\n".join(rows)
