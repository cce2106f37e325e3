"""Programs that say something else than what was exported, through all of a load that needs no device.

Each is refused with an error of ours or planned, with limits of every device and with those of a GPU, and its dynamic
dimensions are found. LIVESHAPE_FUZZ sets the number of programs, LIVESHAPE_FUZZ_SEED the seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import liveshape
from liveshape.errors import LiveshapeError
from liveshape.formats import open_program, vkgraph
from liveshape.graph import Limits
from liveshape.lower import lowering
from liveshape.lower.lowering import examine, simplified
from liveshape.plan.compiling import compile
from liveshape.plan.dimensions import dimensions, literals_like
from liveshape.plan.plan import Choices
from tests.formats.exercise import AnyData, guarded
from tests.formats.structures import changed_graph, changed_plan
from tests.formats.test_fuzz import SEED, mutants, regions_of

COUNT = int(os.environ.get("LIVESHAPE_FUZZ", "320"))
MANY = max(COUNT, 8000)
NAMES = ("rms_norm", "split", "kv_cache", "methods", "portable", "external", "fp16", "block")
DEMO = Path(liveshape.__file__).parent / "demo" / "block.pte"
GPU = Limits(1 << 31, 1024, 1 << 40, 1 << 40, 64, 49152, subgroup=32)

PathOf = Callable[[str], Path]


def planned(data: bytes | Path, limits: Limits, warm: bool, change: Callable[[Any], Any] = lambda plan: plan) -> None:
    """Build, fuse and plan every method, and find what may be smaller."""
    with open_program(data) as program:
        program.plans = tuple(change(plan) for plan in program.plans)
        for plan in program.plans:
            graph, _ = examine(program, plan.name, AnyData())
            made = compile(simplified(graph, limits), limits, Choices(warm=warm))
            places = [(tensor, axis) for tensor in dimensions(made) for axis in range(tensor.rank)]
            literals_like(made.graph, places)


def check_structures(name: str, path: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = refused = 0
    for number in range(count):
        chance = random.Random(f"{SEED} {name} {number}")

        def parsed(blob: memoryview, chance: random.Random = chance) -> Any:
            graph = vkgraph.parse_vkgraph(blob)
            return changed_graph(chance, graph) if chance.random() < 0.6 else graph

        monkeypatch.setattr(lowering, "parse_vkgraph", parsed)

        def change(plan: Any, chance: random.Random = chance) -> Any:
            rate = 0.4 if plan.delegates else 1.0
            return changed_plan(chance, plan) if plan.instructions and chance.random() < rate else plan

        try:
            with guarded(f"structure {number} of {name}, seed {SEED}"):
                planned(path, chance.choice((Limits(), GPU)), number % 8 == 0, change)
                done += 1
        except LiveshapeError:
            refused += 1
    # Some must get through, or they only ever break the first check.
    assert done
    assert refused


def path_of(name: str, program_path: PathOf) -> Path:
    return DEMO if name == "block" else program_path(name)


@pytest.mark.parametrize("name", NAMES)
def test_programs_that_say_something_else(name: str, program_path: PathOf, monkeypatch: pytest.MonkeyPatch) -> None:
    check_structures(name, path_of(name, program_path), COUNT // len(NAMES), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_programs_that_say_something_else(
    name: str, program_path: PathOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_structures(name, path_of(name, program_path), MANY // len(NAMES), monkeypatch)


def check_bytes(name: str, path: Path, count: int) -> None:
    data, chance = path.read_bytes(), random.Random(f"{SEED} {name} planned")
    for number, mutant in enumerate(mutants(data, regions_of(data), count, chance)):
        try:
            with guarded(f"mutation {number} of {name}, seed {SEED}"):
                planned(mutant, chance.choice((Limits(), GPU)), number % 8 == 0)
        except LiveshapeError:
            continue


@pytest.mark.parametrize("name", NAMES)
def test_damaged_programs_are_planned(name: str, program_path: PathOf) -> None:
    check_bytes(name, path_of(name, program_path), COUNT // len(NAMES))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_damaged_programs_are_planned(name: str, program_path: PathOf) -> None:
    check_bytes(name, path_of(name, program_path), MANY // len(NAMES))
