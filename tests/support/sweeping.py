"""An exported program on one graph at its bound, at every live size up and down, against torch."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from liveshape.device.protocol import Device
from liveshape.formats import open_program
from liveshape.graph.elements import prod, storage_bytes
from liveshape.lower.live_sizes import LiveSizes
from liveshape.lower.lowering import lower
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.live_sizes import check_live_sizes
from tests.support.programs import LIVE_SIZES, Sizes, TestProgram


def live_rows(program: TestProgram, generator: np.random.Generator) -> list[dict[str, int]]:
    """Every size of the list that the program allows, in order."""
    allowed = {
        name: sorted({*(size for size in LIVE_SIZES if low <= size <= high), low, high})
        for name, (low, high) in program.dims.items()
    }
    if len(allowed) <= 1:
        return [dict(zip(allowed, row, strict=True)) for row in itertools.product(*allowed.values())]
    # Several dims: each of them takes every size, the others at random.
    return [
        {name: sizes if name == fixed else int(generator.choice(others)) for name, others in allowed.items()}
        for fixed, choices in allowed.items()
        for sizes in choices
    ]


def live_sizes(program: TestProgram, generator: np.random.Generator) -> list[dict[str, int]]:
    """All rows up, then all again in random order, then down."""
    rows = live_rows(program, generator)
    return [*rows, *(rows[index] for index in generator.permutation(len(rows))), *reversed(rows)]


def assert_right(program: TestProgram, got: list[Any], expected: list[torch.Tensor], where: str) -> None:
    """Shapes and integers equal, floats within the tolerance of the program."""
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


def loaded(program: TestProgram, device: Device, path: Path | None = None) -> Executor:
    """The program, with no kernel of another one, in no more memory than its file planned, but for scratch.

    Of another file than ExecuTorch's where `path` names one.
    """
    device._pipelines.clear()
    with open_program(path or program.pte()) as file:
        executor = Executor(compile(lower(file, "forward", {}, device.limits), device.limits), device)
    scratch = max(sum(storage_bytes(each.dtype, prod(each.max_shape)) for each in row) for row in executor.plan.scratch)
    allowed = executor.graph.planned_bytes(device.limits.half) + scratch
    assert executor.plan.memory.activation_bytes <= allowed, "the file's own memory plan is smaller than ours"
    return executor


def sweep_program(program: TestProgram, executor: Executor, rows: Iterable[Sizes]) -> None:
    """Run at each of the sizes, tails poisoned; nothing is allocated or compiled meanwhile."""
    device = executor.device
    draws = torch.Generator().manual_seed(2)
    reference = copy.deepcopy(program.module) if program.stateful else None
    made = device.counters.buffers, device.counters.pipelines
    said = None if executor.graph.controls else LiveSizes(executor.graph)
    for sizes in rows:
        inputs = program.make_inputs(sizes, draws)
        executor.poison()
        got = executor.execute([given.numpy() for given in inputs])
        assert_right(program, got, program.golden(inputs, reference), str(sizes))
        if said is not None:
            check_live_sizes(executor.graph, said, executor.live, f"{program.name} at {sizes}")
        assert made == (device.counters.buffers, device.counters.pipelines), f"buffers or pipelines grew at {sizes}"
