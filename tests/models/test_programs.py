"""Exported programs, every one a graph at its bound, run at every live size up and down, against torch."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.webgpu import Device, open_device
from liveshape.errors import UnsupportedError
from liveshape.formats import open_program
from liveshape.lower.lowering import lower
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from tests.support.programs import LIVE_SIZES, TestProgram, programs

PROGRAMS = list(programs().values())


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device()


def live_sizes(program: TestProgram, generator: np.random.Generator) -> list[dict[str, int]]:
    """Every size of the list that the program allows, up, then all again in random order, then down."""
    allowed = {
        name: [size for size in LIVE_SIZES if low <= size <= high] or [low, high]
        for name, (low, high) in program.dims.items()
    }
    for name, (low, high) in program.dims.items():
        allowed[name] = sorted({*allowed[name], low, high})
    if len(allowed) <= 1:
        rows = [dict(zip(allowed, row, strict=True)) for row in itertools.product(*allowed.values())]
    else:  # several dims: each of them takes every size, the others at random
        rows = [
            {name: sizes if name == fixed else int(generator.choice(others)) for name, others in allowed.items()}
            for fixed, choices in allowed.items()
            for sizes in choices
        ]
    return [*rows, *(rows[index] for index in generator.permutation(len(rows))), *reversed(rows)]


def assert_right(program: TestProgram, got: list[Any], expected: list[torch.Tensor], where: str) -> None:
    assert len(got) == len(expected), where
    for position, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        golden = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else np.asarray(theirs)
        ours = np.asarray(ours)
        place = f"{program.name} at {where}, output {position}"
        assert ours.shape == golden.shape, f"{place}: shape {ours.shape}, torch has {golden.shape}"
        if golden.dtype.kind in "biu":
            np.testing.assert_array_equal(ours, golden, err_msg=place)
        else:
            wide = ours.astype(np.float64), golden.astype(np.float64)
            np.testing.assert_allclose(*wide, program.rtol, program.atol, err_msg=place)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program: TestProgram, device: Device) -> None:
    device._pipelines.clear()  # what another program compiled does not count
    with open_program(program.pte()) as file:
        if program.broken:
            with pytest.raises(UnsupportedError, match="arguments"):
                lower(file, "forward", {}, device.limits)
            return
        executor = Executor(compile(lower(file, "forward", {}, device.limits), device.limits), device)
    needed = executor.plan.memory.activation_bytes
    assert needed <= executor.graph.planned_bytes(device.limits.half), "the file's own memory plan is smaller than ours"
    generator = np.random.default_rng(1)
    draws = torch.Generator().manual_seed(2)
    reference = copy.deepcopy(program.module) if program.stateful else None
    made = device.counters.buffers, device.counters.pipelines
    for sizes in live_sizes(program, generator):
        inputs = program.make_inputs(sizes, draws)
        executor.poison()
        got = executor.execute([given.numpy() for given in inputs])
        assert_right(program, got, program.golden(inputs, reference), str(sizes))
        assert made == (device.counters.buffers, device.counters.pipelines), f"buffers or pipelines grew at {sizes}"


def a_sixth(programs: list[TestProgram]) -> list[Any]:
    """Every sixth program; the others only in `make test-all`, since random graphs are run both ways as well."""
    return [pytest.param(each, marks=[pytest.mark.slow] if place % 6 else []) for place, each in enumerate(programs)]


@pytest.mark.parametrize(
    "program", a_sixth([each for each in PROGRAMS if not each.broken]), ids=lambda program: program.name
)
def test_aliasing_changes_nothing(program: TestProgram, device: Device) -> None:
    with open_program(program.pte()) as file:
        graph = lower(file, "forward", {}, device.limits)
        shared = Executor(compile(graph, device.limits), device)
        apart = Executor(compile(graph, device.limits, Choices(aliasing=False)), device)
    draws = torch.Generator().manual_seed(3)
    for sizes in live_sizes(program, np.random.default_rng(2))[:: 3 * len(program.dims)]:
        inputs = [given.numpy() for given in program.make_inputs(sizes, draws)]
        for one, other in zip(shared.execute(inputs), apart.execute(inputs), strict=True):
            np.testing.assert_array_equal(one, other)
