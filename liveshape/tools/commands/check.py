"""`liveshape check`: compare every node of a program with an independent reference, at several live shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from liveshape.check.against import against_of
from liveshape.check.cases import Case
from liveshape.check.checking import Check
from liveshape.check.differences import TOLERANCE
from liveshape.check.findings import Found
from liveshape.check.generation import compare_ways
from liveshape.check.language_models import Language, LanguageCall, language_of
from liveshape.check.layer_sample import layer_sample
from liveshape.check.live_shapes import parse_sizes, shapes_of_calls
from liveshape.device.backends import open_device
from liveshape.errors import InputError, LiveshapeError
from liveshape.export.runnable import Conversion
from liveshape.graph import Graph
from liveshape.graph.activation_kinds import FLOAT16, FLOAT32, check_activations
from liveshape.llm.program.token_graph import constants_of
from liveshape.lower.lowering import examine
from liveshape.lower.problems import unsupported
from liveshape.metadata import is_constant
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import program_file
from liveshape.program.program import Program, load_program
from liveshape.run.host import find_on_host
from liveshape.tools.check_report import CheckedMethod, document, print_found
from liveshape.tools.commands.run import legal, make_inputs, parse_shapes
from liveshape.tools.console import check_writable, print_json, print_text, work_bar
from liveshape.tools.model_argument import runnable_model

ALL_LAYERS = 1 << 30
TOKENS = "tokens"  # the dimension of a language model that --shapes names
_EXACT = 10  # times the tolerance, for logits of float32: errors of all nodes add up


@dataclass(frozen=True)
class Calls:
    """What a check of one method runs: the inputs of its calls, and the steps of a language model that they are."""

    inputs: list[list[Any]]
    language: Language | None = None
    steps: tuple[LanguageCall, ...] = ()


def check(
    program: str,
    *,
    data: Sequence[str] = (),
    method: str | None = None,
    device: str | None = None,
    activations: str = FLOAT32,
    input_shapes: Sequence[str] = (),
    shapes: str | None = None,
    tolerance: float = TOLERANCE,
    against: str | None = None,
    layers: int | None = None,
    seed: int = 0,
    save: str | None = None,
    as_json: bool = False,
    conversion: Conversion | None = None,
) -> int:
    """Check a program and print what was found; 1 where values differ. `save` is a file for the first divergence.

    `program` is a `.pte`, a folder with one, a shipped model, or a checkpoint that is converted as `conversion` says.
    `layers` is how many layers of a model are checked; None takes a few of many. With float16 `activations` the graph
    that matrix units run is checked.

    Example: `check("model.pte", input_shapes=["1x7x64", "1x64x64"])`.
    """
    if not 0 < tolerance < 1:
        raise InputError(f"--tol {tolerance}: it is relative to the largest number of a tensor, between 0 and 1")
    if input_shapes and shapes is not None:
        raise InputError("--input-shapes and --shapes: give one of the two")
    check_writable("--save", save)
    target = _target(device, activations)
    found: dict[str, CheckedMethod] = {}
    with runnable_model(program, conversion or Conversion()) as path:
        file = program_file(path)
        with load_program(target, file, data_path=list(data)) as opened:
            names = [plan.name for plan in opened.file.plans if not is_constant(plan)] if method is None else [method]
            for name in names:
                calls = language_calls(opened, name, target, input_shapes, shapes, seed)
                if calls is None:
                    calls = Calls(calls_of(opened, name, input_shapes, shapes, seed))
                function = None
                if against is not None:
                    function = against_of(against, [info.dtype for info in opened.inputs(name)])
                found[name] = _checked(opened, name, target, calls, tolerance, layers, function, None if data else file)
    if as_json:
        methods = {name: document(each) for name, each in found.items()}
        print_json({"program": program, "device": target.device.name, "methods": methods})
    else:
        for name, each in found.items():
            print_found(name, each)
    case = next((row.case for each in found.values() for row in each.found.divergences if row.case is not None), None)
    if case is not None and save is not None:
        case.save(Path(save))
    if case is not None and not as_json:
        print_text(
            "  --save FILE keeps what the first one reads, for --replay and for a bug report"
            if save is None
            else f"  {case.node.label} was written to {save}: liveshape check --replay {save} runs it alone"
        )
    return 0 if all(each.right for each in found.values()) else 1


def _target(device: str | None, activations: str) -> CompileTarget:
    """The device; where activations are rounded, one that has matrix units for it."""
    if activations == FLOAT32:
        return CompileTarget(open_device(device))
    check_activations(activations, (FLOAT32, FLOAT16))
    target = CompileTarget(device, activations=activations)
    if not target.limits.matrices_of(FLOAT16):
        raise InputError(
            f"--activations {activations}: {target.device.name} offers no matrix units that multiply float16, so a "
            f"program is what it is with {FLOAT32}; leave it out, or name a device that has some (docs/dawn.md)"
        )
    return target


def replay(file: str, *, device: str | None = None, as_json: bool = False) -> int:
    """Run a saved node alone; 1 where it still differs.

    Example: `replay("case.npz")`.
    """
    case = Case.load(Path(file))
    opened = _target(device, case.activations).device
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


def language_calls(
    program: Program,
    method: str,
    target: CompileTarget,
    input_shapes: Sequence[str] = (),
    shapes: str | None = None,
    seed: int = 0,
) -> Calls | None:
    """Calls of a language model: legal tokens, each call where the one before ended. None where it is another program.

    Example: `language_calls(program, "forward", target, shapes="tokens=1,7,MAX")`.
    """
    language = language_of(_graph(program, method), constants_of(program), target.limits)
    if language is None:
        return None
    lengths: list[int | None] | None = None
    if shapes is not None:
        asked = parse_sizes(shapes)
        if asked.keys() != {TOKENS}:
            most = language.description.max_seq_len
            raise InputError(
                f"--shapes {shapes!r}: the dimension of a language model is {TOKENS}, from 1 to {most:,}; for example: "
                f"--shapes {TOKENS}=7,1,MAX"
            )
        lengths = asked[TOKENS]
    elif input_shapes:
        place = language.graph.inputs.index(language.tokens)
        lengths = [parse_shapes(text, program.inputs(method))[place][1] for text in input_shapes]
    steps = language.steps(lengths, seed)
    return Calls([language.inputs(step) for step in steps], language, tuple(steps))


def checked(
    program: Program, method: str, target: CompileTarget, calls: Sequence[Sequence[Any]], tolerance: float = TOLERANCE
) -> Found:
    """Check one method at these calls, all of its layers.

    Example: `checked(program, "forward", target, calls_of(program, "forward")).right`.
    """
    made = Calls([list(inputs) for inputs in calls])
    return _checked(program, method, target, made, tolerance, ALL_LAYERS).found


def _checked(
    program: Program,
    method: str,
    target: CompileTarget,
    calls: Calls,
    tolerance: float,
    layers: int | None,
    against: Any = None,
    file: Path | None = None,
) -> CheckedMethod:
    graph = _graph(program, method) if calls.language is None else calls.language.graph
    sample = layer_sample(graph, target.limits, layers)
    checking = Check(graph, target.device, target.limits, tolerance, sample, against)
    expected: list[Any] = []
    try:
        with work_bar(len(calls.inputs) * checking.steps) as begin:
            for turn, inputs in enumerate(calls.inputs):
                checking.call(inputs, begin, goes_on=bool(calls.steps) and calls.steps[turn].goes_on)
                expected.append(checking.expected[0] if checking.expected else None)
    finally:
        checking.close()
    if calls.language is None or file is None or any(each is None for each in expected):
        return CheckedMethod(checking.found, calls.steps)
    wanted = [np.asarray(each).reshape(-1, each.shape[-1])[-1] for each in expected]
    with work_bar(4) as begin:
        rows, left = compare_ways(file, target.device, calls.steps, wanted, _EXACT * tolerance, begin)
    return CheckedMethod(checking.found, calls.steps, tuple(rows), left)


def _graph(program: Program, method: str) -> Graph:
    graph, problems = examine(program.file, method, program.data, find_on_host)
    if problems:
        raise unsupported(method, problems)
    return graph
