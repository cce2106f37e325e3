"""Exported programs, every one a graph at its bound, run at every live size up and down, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.errors import UnsupportedError
from liveshape.formats import open_program
from liveshape.lower.lowering import lower
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from tests.support.programs import TestProgram, programs
from tests.support.sweeping import live_sizes, loaded, sweep_program

PROGRAMS = list(programs().values())


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device()


def half(programs: list[TestProgram]) -> list[Any]:
    """Every other one; `make test-all` exports all: the sweeps of operators have what is in them, too."""
    marks = [[pytest.mark.slow] if place % 2 else [] for place in range(len(programs))]
    return [pytest.param(each, marks=mark) for each, mark in zip(programs, marks, strict=True)]


@pytest.mark.parametrize("program", half(PROGRAMS), ids=lambda program: program.name)
def test_program(program: TestProgram, device: Device) -> None:
    if program.broken:
        with open_program(program.pte()) as file, pytest.raises(UnsupportedError, match="arguments"):
            lower(file, "forward", {}, device.limits)
        return
    sweep_program(program, loaded(program, device), live_sizes(program, np.random.default_rng(1)))


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
        copied = Executor(compile(graph, device.limits, Choices(aliasing=False)), device)
    draws = torch.Generator().manual_seed(3)
    for sizes in live_sizes(program, np.random.default_rng(2))[:: 3 * len(program.dims)]:
        inputs = [given.numpy() for given in program.make_inputs(sizes, draws)]
        for one, other in zip(shared.execute(inputs), copied.execute(inputs), strict=True):
            np.testing.assert_array_equal(one, other)
