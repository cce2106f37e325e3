"""How well `liveshape check` sees: kernels broken on purpose, one at a time, and operators and programs that are right.

    python -m tests.check.mutants [--count 60] [--programs .cache/exports]

A mutant counts if it compiles and gives other bytes than the right kernel at one of the live sizes; each operator gives
one, of another kind than the one before, and each kernel two at most. The check must name its node; a right operator
it must not name. Fused nodes are broken in their own way (`broken_fusions.py`), and must be named as fusions.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from liveshape.check.checking import Check
from liveshape.check.single_node import SingleNode
from liveshape.device.backends import open_device
from liveshape.errors import LiveshapeError
from liveshape.kernels import Variant
from liveshape.metadata import is_constant
from liveshape.ops import OPS
from liveshape.program.compile_target import CompileTarget
from liveshape.program.program import load_program
from liveshape.tools.commands.check import calls_of as calls_of_program
from liveshape.tools.commands.check import checked
from tests.check.broken_fusions import curves, gated, llama
from tests.check.broken_fusions import verdicts as fusion_verdicts
from tests.ops.cases import CASES
from tests.support.graphs import In, OpCase, build, flat_specs

# What is broken, and how: the first such text behind the head of the kernel's main function, else the first of all.
KINDS = (
    ("a sum", " += ", " -= "),
    ("a comparison", " < ", " <= "),
    ("a product", " * ", " + "),
    ("an index", "[i]", "[i / 2u]"),
    ("a tail", "- 1u", "- 2u"),
    ("a maximum", "max(", "min("),
    ("a constant", "0u", "1u"),
    ("a barrier", "workgroupBarrier();", ""),
    ("a sign", " - ", " + "),
    ("a parameter", "params.count", "(params.count - 1u)"),
)
MAIN = "@compute"
LOOPS = ("for (", "while (", "loop {", "WG;")
SIZES = 3  # of a case, of which the first is the bound
PER_KERNEL = 2
RIGHT, WRONG, NOT_CHECKED = "right", "named", "not checked"


class Verdict(NamedTuple):
    """A mutant, and whether the check names its node."""

    operator: str
    kind: str
    kernel: str
    named: bool


def mutated(text: str, old: str, new: str) -> str:
    """A text with one line changed: the first such in the main function, else the first of all; but no head of a loop,
    which might never end.

    >>> mutated("fn a() { x += 1; }\n@compute\nfor (;; i += 1) {\ny += 2;", " += ", " -= ").splitlines()[-1]
    'y -= 2;'
    """
    lines = text.splitlines(keepends=True)
    main = next((place for place, line in enumerate(lines) if MAIN in line), 0)
    for place in (*range(main, len(lines)), *range(main)):
        if old in lines[place] and not any(word in lines[place] for word in LOOPS):
            return "".join([*lines[:place], lines[place].replace(old, new, 1), *lines[place + 1 :]])
    return text


@contextmanager
def broken(kernel: str, old: str, new: str) -> Iterator[None]:
    """One kernel with a part of its text replaced."""
    right = Variant.source

    def text(variant: Variant) -> str:
        made: str = right.fget(variant)  # type: ignore[attr-defined]
        if variant.kernel.name != kernel:
            return made
        return mutated(made, old, new)

    open_device()._pipelines.clear()
    Variant.source = property(text)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Variant.source = right  # type: ignore[method-assign]
        open_device()._pipelines.clear()


def calls_of(case: OpCase) -> list[list[Any]]:
    """Inputs at the bound, the least size and one between."""
    sizes = sorted(set(case.sizes))
    chosen = dict.fromkeys((sizes[-1], sizes[len(sizes) // 2], sizes[0] or sizes[1]))
    found = []
    for size in [*chosen][:SIZES]:
        random = np.random.default_rng(size)
        specs = flat_specs(case.args_at(size))
        found.append([spec.draw(random) if isinstance(spec, In) else spec.value for spec in specs])
    return found


def bytes_of(case: OpCase) -> tuple[list[bytes], list[str]]:
    """What the operator of a case gives, and its kernels."""
    graph, device = build(case, max(case.sizes)), open_device()
    single = SingleNode(graph, graph.nodes[0], device, device.limits)
    found, kernels = [], []
    try:
        for inputs in calls_of(case):
            given = dict(zip(graph.inputs, inputs, strict=True))
            found += [np.asarray(array).tobytes() for array in single.run(given).values()]
            kernels += [variant.kernel.name for route in single.executor.plan.routes for variant, _ in route.dispatched]
    finally:
        single.close()
    return found, list(dict.fromkeys(kernels))


def is_named(case: OpCase) -> bool | None:
    """Whether the check names the node of a case; None where it has no reference."""
    graph, device = build(case, max(case.sizes)), open_device()
    check = Check(graph, device, device.limits)
    try:
        for inputs in calls_of(case):
            check.call(inputs)
    finally:
        check.close()
    if not check.found.checked and check.found.unknown:
        return None
    return any(each.node == graph.nodes[0].label for each in check.found.divergences)


def mutant_of(case: OpCase, before: Sequence[Verdict]) -> Verdict | None:
    """A mutant of a kernel of a case that changes what it gives, of the first kind that can be had.

    No kernel gives more than PER_KERNEL, and none twice the same.
    """
    counts = Counter(verdict.kernel for verdict in before)
    taken = {(verdict.kernel, verdict.kind) for verdict in before}
    right, kernels = bytes_of(case)
    for turn in range(len(KINDS)):
        what, old, new = KINDS[(len(before) + turn) % len(KINDS)]
        for kernel in kernels:
            if counts[kernel] >= PER_KERNEL or (kernel, what) in taken:
                continue
            try:
                with broken(kernel, old, new):
                    if right in (bytes_of(case)[0], bytes_of(case)[0]):
                        continue  # nothing, or only now and then: it read memory that nobody wrote
                    return Verdict(case.op, what, kernel, bool(is_named(case)))
            except LiveshapeError:
                continue  # it does not compile
    return None


def program_of(path: Path) -> str:
    """Whether all methods of a program are right, or why it was not checked."""
    target = CompileTarget(open_device())
    try:
        with load_program(target, path) as program:
            for plan in program.file.plans:
                if not is_constant(plan):
                    found = checked(program, plan.name, target, calls_of_program(program, plan.name))
                    if not found.right:
                        return f"{WRONG}: {found.divergences[0]}"
    except LiveshapeError as error:
        return f"{NOT_CHECKED}: {error}"
    return RIGHT


def operators() -> list[OpCase]:
    """One case of every generator that writes a tensor from data."""
    return [case for case in {OPS[case.op].run: case for case in reversed(CASES)}.values() if case.sizes]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="mutants (default 60)")
    parser.add_argument("--programs", type=Path, help="a folder of .pte files that are right, as tests leave them")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    print(f"{'operator':56}{'broken':14}{'kernel':44}named")
    right, alarms, unknown = 0, [], []
    counts: Counter[str] = Counter()
    verdicts: list[Verdict] = []
    for case in operators():
        named = is_named(case)
        if named is None:
            unknown.append(case.op)
            continue
        right += 1
        if named:
            alarms.append(case.name)
            print(f"false alarm: {case.name}", flush=True)
        elif len(verdicts) < options.count:
            verdict = mutant_of(case, verdicts)
            if verdict is not None:
                verdicts.append(verdict)
                row = f"{verdict.operator:56}{verdict.kind:14}{verdict.kernel:44}"
                print(f"{row}{'yes' if verdict.named else 'NO'}", flush=True)
    named_count = sum(verdict.named for verdict in verdicts)
    print(f"{named_count} of {len(verdicts)} mutants named; {len(alarms)} of {right} right operators named")
    print(f"no reference: {len(unknown)}: {', '.join(unknown)}")
    of_fusions = [verdict for made in (curves, gated, llama) for verdict in fusion_verdicts(*made())]
    for row_of in of_fusions:
        print(f"{row_of.operator:56}{row_of.kind:58}{'yes' if row_of.named else 'NO'}", flush=True)
    fusions_named = sum(verdict.named for verdict in of_fusions)
    print(f"{fusions_named} of {len(of_fusions)} mutants of fusions named")
    for path in () if options.programs is None else sorted(options.programs.glob("*.pte")):
        found = program_of(path)
        counts[found.partition(":")[0]] += 1
        if found != RIGHT:
            print(f"{path.name}: {found}", flush=True)
    if counts:
        print("programs: " + ", ".join(f"{count} {what}" for what, count in counts.most_common()))
    enough = named_count >= 0.95 * len(verdicts) and fusions_named == len(of_fusions)
    return 0 if enough and not alarms and not counts[WRONG] else 1


if __name__ == "__main__":
    raise SystemExit(main())
