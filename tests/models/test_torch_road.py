"""Every test program, lowered by torch alone: right at every live size, as the file of ExecuTorch's exporter is."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import UnsupportedError
from liveshape.export.module.torch_export import ModuleSource, lower
from tests.models import test_dtypes, test_programs, test_zoo
from tests.support.programs import TestProgram
from tests.support.sweeping import live_rows, live_sizes, loaded, sweep_program

# What it leaves to `--via executorch`, and what it says of it.
REFUSED = {
    "branch": "cond has no kernel",
    "sum_branch": "cond has no kernel",
    "undelegated": "torch.float64 is no dtype of a device",
    "passthrough": "output 3 is a live number",
    "attention/cached_layers": "auto_functionalized_v2 has no kernel",
}
SMALL = [*test_programs.PROGRAMS, *test_dtypes.PROGRAMS]
RIGHT = [program for program in SMALL if program.name not in REFUSED]
EVERY = 4  # of which one runs in `make test`


def lowered(program: TestProgram, folder: Path) -> Path:
    module = copy.deepcopy(program.module)
    path = folder / "model.pte"
    lower(ModuleSource(module, program.make_inputs(program.bound), program.dynamic_shapes), path)
    return path


@pytest.mark.parametrize(
    "program",
    [pytest.param(each, marks=pytest.mark.slow if place % EVERY else ()) for place, each in enumerate(RIGHT)],
    ids=lambda program: program.name,
)
def test_program(program: TestProgram, tmp_path: Path) -> None:
    executor = loaded(program, open_device(), lowered(program, tmp_path))
    sweep_program(program, executor, live_sizes(program, np.random.default_rng(1)))


@pytest.mark.slow
@pytest.mark.parametrize("program", test_zoo.MODELS, ids=lambda program: program.name)
def test_model(program: TestProgram, tmp_path: Path) -> None:
    rows = live_rows(program, np.random.default_rng(1))
    sweep_program(program, loaded(program, open_device(), lowered(program, tmp_path)), [*rows, *reversed(rows)])


@pytest.mark.parametrize("program", [each for each in SMALL if each.name in REFUSED], ids=lambda program: program.name)
def test_what_is_refused_says_why_and_what_to_do(program: TestProgram, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        lowered(program, tmp_path)
    assert REFUSED[program.name] in str(caught.value)
    assert "--via executorch" in str(caught.value)
    assert not list(tmp_path.iterdir())
