"""Digests of every plan, to compare with another tree's: a refactoring must not change a single byte of them.

Run: python -m bench.plans --write BEFORE.json       in the one tree
     python -m bench.plans --write AFTER.json        in the other
     python -m bench.plans --compare BEFORE.json AFTER.json
     python -m bench.plans --show NAME               what one digest is of, to diff where two differ

Every operator case of the tests at each of its live sizes, the programs that the package ships, and every program that
the tests exported here (.cache/exports), on three kinds of device. A digest has two halves: `plan` is the memory, and
of each dispatch its bindings, params and grid; `text` is the WGSL, so that a change of kernels alone is told apart.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.progress import track

from liveshape.errors import LiveshapeError
from liveshape.graph import Graph, Limits, SymInt, Tensor
from liveshape.graph.activation_kinds import ACTIVATIONS
from liveshape.kernels import Variant
from liveshape.kernels.requests import Read
from liveshape.llm.language_model import LanguageModel
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices, Plan
from liveshape.plan.plan_state import PlanState
from liveshape.run.host import compile_with_host
from liveshape.runtime import Runtime
from tests.ops.cases import CASES
from tests.support.exporting import CACHE
from tests.support.graphs import OpCase, build, flat_specs
from tests.support.paper import PaperDevice

ROOT = Path(__file__).parents[1]
DEVICES = {
    "gpu": Limits(max_invocations=1024, max_bindings=16, max_workgroup_bytes=32768, subgroup=32),
    "software": Limits(max_invocations=32, max_cooperating_threads=4, lanes=8),
    "least": Limits(half=False, max_binding_bytes=1 << 16, max_buffer_bytes=1 << 17),
}
Planned = tuple[Any, set[Variant]]  # what is digested as `plan`, and the kernels that `text` is made of
SIZES = (1, 2, 7, 16)  # live lengths of programs, beside the bound
POSITIONS = (0, 9)


def digest(found: Any) -> str:
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def text_of(source: str) -> str:
    """WGSL with whitespace collapsed."""
    return re.sub(r"\s+", " ", source).strip()


class Numbers(dict[Any, int]):
    """Numbers in order of first use: a plan's own follow sets, which differ from run to run."""

    def __missing__(self, key: Any) -> int:
        self[key] = len(self)
        return self[key]


def steps(live: PlanState, storages: Numbers) -> list[Any]:
    """Every dispatch at the live shapes: storages of its tensors, params and grid."""
    return [
        [([storages[node.tensors[place].storage] for place in places], slot.params.hex(), slot.grid)]
        for node in live.nodes
        for (_, places), slot in zip(node.group.route.dispatched, node.group.route.slots, strict=True)
    ]


def layout(plan: Plan, numbers: Numbers) -> list[Any]:
    """The memory plan: blocks, and the block of each tensor, in the order in which nodes touch them."""
    blocks = Numbers()
    storages = {tensor: plan.memory.storages.get(tensor) for node in plan.graph.nodes for tensor in node.written}
    lies = [
        None if found is None else (numbers[found.number], blocks[found.block], found.nbytes)
        for found in storages.values()
    ]
    touched = [(number, plan.memory.blocks[block]) for block, number in blocks.items() if block is not None]
    return [
        sorted(plan.memory.blocks),
        touched,
        lies,
        plan.param_bytes,
        plan.untried,
        [each.members for each in plan.routes],
    ]


def resized(live: PlanState, storages: Numbers, sizes: dict[Any, Any], number: int) -> Any:
    """The dispatches at live sizes, or the error of a refusal."""
    for value, size in sizes.items():
        live.set(value, size)
    live.begin()
    try:
        live.walk(0, len(live.nodes), lambda _, request: number if isinstance(request, Read) else None)
    except LiveshapeError as error:
        return type(error).__name__
    return steps(live, storages)


def walked(plan: Plan, live: PlanState, walks: Iterator[tuple[dict[Any, Any], int]]) -> Planned:
    """A plan at live sizes, and its kernels: those that are compiled at load, and those that were taken."""
    storages = Numbers()
    memory = layout(plan, storages)
    found = [resized(live, storages, sizes, number) for sizes, number in walks]
    taken = {variant for node in live.nodes for route in node.group.routes for variant, _ in route}
    return [memory, found], taken.union(plan.kernels)


def of_graph(graph: Graph, limits: Limits) -> Planned:
    """A program at its bound and below, all dynamic dimensions at once."""
    plan = compile_with_host(graph, limits)

    tensors = [value for value in graph.inputs if isinstance(value, Tensor) and not value.static]
    scalars = [value for value in graph.inputs if isinstance(value, SymInt)]

    def walks() -> Iterator[tuple[dict[Any, Any], int]]:
        for most in (1 << 30, *SIZES):
            sizes = {value: tuple(min(size, most) for size in value.max_shape) for value in tensors}
            for number in POSITIONS:
                yield sizes | dict.fromkeys(scalars, number), number

    return walked(plan, PlanState(plan), walks())


def of_cases(limits: Limits) -> Iterator[tuple[str, Any]]:
    """Every operator case."""
    for case in CASES:
        yield f"case {case.name}", lambda case=case: of_case(case, limits)


def of_case(case: OpCase, limits: Limits) -> Planned:
    """An operator case at its sizes, up and down."""
    graph = build(case, max(case.sizes))
    plan = compile(graph, limits, Choices(warm=False))

    def walks() -> Iterator[tuple[dict[Any, Any], int]]:
        for size in (*case.sizes, *reversed(case.sizes)):
            specs = zip(graph.inputs, flat_specs(case.args_at(size)), strict=True)
            yield (
                {
                    value: tuple(spec.shape) if isinstance(value, Tensor) else spec.value
                    for value, spec in specs
                    if isinstance(value, (Tensor, SymInt))
                },
                0,
            )

    return walked(plan, PlanState(plan), walks())


def of_programs(limits: Limits) -> Iterator[tuple[str, Any]]:
    """The shipped programs, and those that the tests exported: as they are, and as language models where they are."""
    files = [*sorted((ROOT / "liveshape" / "demo").rglob("*.pte")), *sorted(CACHE.glob("*.pte"))]
    for path in files:
        for activations in ACTIVATIONS:
            yield (
                f"program {path.parent.name}/{path.stem} {activations}",
                lambda path=path, activations=activations: of_program(path, limits, activations),
            )


def of_program(path: Path, limits: Limits, activations: str) -> Planned:
    device = PaperDevice(limits)
    data = sorted(path.parent.glob(f"{path.stem}*.ptd"))
    plans: list[Any] = []
    kernels: set[Variant] = set()
    with Runtime(device, activations=activations).load_program(path, data_path=data or None) as program:
        for name in sorted(program.method_names):
            found: Any
            try:
                found, used = of_graph(program.graph(name), limits)
            except LiveshapeError as error:  # int8 of a method without layers
                found, used = f"{type(error).__name__}: {error}", set()
            plans.append(found)
            kernels |= used
    try:
        model = LanguageModel.load(path, device=device, activations=activations, half_cache=activations == "int8")
    except LiveshapeError:
        return plans, kernels
    plan = model._engine.executor.plan
    tokens, position = plan.graph.inputs

    def walks() -> Iterator[tuple[dict[Any, Any], int]]:
        bound = tokens.max_shape[1]
        for rows in sorted({min(size, bound) for size in (*SIZES, bound)}):
            for number in POSITIONS:
                yield {tokens: (1, rows), position: (min(position.max_shape[0], rows),)}, number

    found, used = walked(plan, PlanState(plan), walks())
    model.close()
    return [*plans, found], kernels | used


def jobs() -> Iterator[tuple[str, Any]]:
    for kind, limits in DEVICES.items():
        for name, made in (*of_cases(limits), *of_programs(limits)):
            yield f"{kind}: {name}", made


def attempted(made: Any) -> dict[str, Any]:
    """The result of a job, or its error: refusals are compared as well."""
    try:
        plan, kernels = made()
    except LiveshapeError as error:
        return {"plan": f"{type(error).__name__}: {error}", "text": ""}
    return {"plan": plan, "text": sorted({text_of(variant.source) for variant in kernels})}


def compared(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print the differences; returns how many plans differ."""
    for name in sorted(before.keys() ^ after.keys()):
        print(f"only {'before' if name in before else 'after'}: {name}")
    both = sorted(before.keys() & after.keys())
    plans = [name for name in both if before[name]["plan"] != after[name]["plan"]]
    texts = [name for name in both if before[name]["text"] != after[name]["text"]]
    for name in plans:
        print(f"plan differs: {name}")
    print(f"{len(both):,} in both: {len(plans):,} plans differ, {len(texts):,} have other WGSL")
    return len(plans)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--compare", nargs=2, metavar="FILE")
    parser.add_argument("--show", metavar="NAME")
    parser.add_argument("--only", default="", help="names with this in them")
    given = parser.parse_args()
    if given.compare:
        before, after = (json.loads(Path(name).read_text()) for name in given.compare)
        sys.exit(bool(compared(before, after)))
    if given.show:
        found = attempted(dict(jobs())[given.show])
        print(json.dumps(found, indent=1, default=str))
        return
    rows = [(name, made) for name, made in jobs() if given.only in name]
    found = {}
    for name, made in track(rows, "Planning"):
        found[name] = {half: digest(value) for half, value in attempted(made).items()}
    Path(given.write or "plans.json").write_text(json.dumps(found, indent=1))
    print(f"{len(found):,} plans, {digest(sorted((name, each['plan']) for name, each in found.items()))}")


if __name__ == "__main__":
    main()
