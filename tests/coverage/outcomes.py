"""What becomes of a recorded test on our device: passed, not exported, unsupported, refused or wrong, with the reason.

Refused is a test that gives inputs above the bound that it exported; what it gives within the bound must be right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from liveshape.device.backends import open_device
from liveshape.errors import LiveshapeError, ShapeError
from liveshape.formats import open_program
from liveshape.graph import Graph, Tensor
from liveshape.lower.lowering import examine, simplified
from liveshape.ops.registry import callable_by_files
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.coverage.recording import Call, Recorded, Recording

KINDS = ("passed", "not exported", "unsupported", "refused", "wrong")


@dataclass(frozen=True)
class Outcome:
    """A test's name, one of KINDS, and why it did not pass."""

    name: str
    kind: str
    reason: str = ""


def outcome_of(name: str, recording: Recording) -> Outcome:
    """A test passes where all of its programs do; the first that does not decides."""
    for program in recording.programs:
        kind, reason = _run(program)
        if kind != "passed":
            return Outcome(name, kind, reason)
    if recording.failure:
        return Outcome(name, "not exported", recording.failure)
    if not recording.programs:
        return Outcome(name, "not exported", "the test runs no program")
    return Outcome(name, "passed")


def _run(recorded: Recorded) -> tuple[str, str]:
    refused = ""
    try:
        device = open_device()
        with open_program(recorded.pte) as program:
            graph, problems = examine(program, "forward", {})
            if problems:
                return "unsupported", "; ".join(sorted({_reason(each.operator, each.reason) for each in problems}))
            executor = Executor(compile(simplified(graph, device.limits), device.limits), device)
        for call in recorded.calls:
            executor.poison()
            try:
                results = executor.execute(list(call.inputs))
            except ShapeError:
                above = _above_bound(call, executor.graph)
                if not above:
                    raise
                refused = refused or above
                continue
            if mistake := _mistake(results, call.reference, recorded):
                return "wrong", mistake
    except LiveshapeError as error:
        kind = "unsupported" if isinstance(error, NotImplementedError) else "wrong"
        return kind, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ("refused", refused) if refused else ("passed", "")


def _above_bound(call: Call, graph: Graph) -> str:
    """The first input that the file has no room for."""
    for place, (given, tensor) in enumerate(zip(call.inputs, graph.inputs, strict=False)):
        if isinstance(tensor, Tensor) and np.any(np.array(given.shape) > np.array(tensor.max_shape)):
            return f"the test gives input {place} as {given.shape}, above the {tensor.max_shape} that it exports"
    return ""


def _reason(operator: str, reason: str) -> str:
    """The page's test looks for these words: an operator that came since makes the page old."""
    if operator and callable_by_files(operator) is None:
        return f"no operator `{operator}`"
    return f"`{operator}`: {reason}"


def _mistake(results: list[np.ndarray], reference: tuple[np.ndarray, ...], program: Recorded) -> str:
    """As their tests compare, with shapes and the number of results on top."""
    if len(results) < len(reference):
        return f"{len(results)} results instead of {len(reference)}"
    for place, (got, want) in enumerate(zip(results, reference, strict=False)):
        if got.shape != want.shape:
            return f"result {place} has shape {got.shape} instead of {want.shape}"
        ours, theirs = got.astype(np.float64), want.astype(np.float64)
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0.0, np.abs(ours - theirs))
        near, far = program.atol, program.rtol * np.abs(theirs)
        within = (error <= near) | (error <= far) if program.apart else error <= near + far
        right = same if got.dtype.kind in "biu" else same | within
        if not right.all():
            return (
                f"result {place} is off by up to {error[~right].max():.3g} in {(~right).sum()} of {right.size} places"
            )
    return ""
