"""Whole models of every kind with random weights, against torch at their bound and at smaller live sizes."""

from __future__ import annotations

import numpy as np
import pytest

from liveshape.device.backends import open_device
from tests.models.zoo import sequences, vision
from tests.support.programs import TestProgram
from tests.support.sweeping import live_rows, loaded, sweep_program

MODELS = (*vision.PROGRAMS, *sequences.PROGRAMS)


@pytest.mark.slow  # most come from packages that only `make test-all` installs
@pytest.mark.parametrize("program", MODELS, ids=lambda program: program.name)
def test_model(program: TestProgram) -> None:
    rows = live_rows(program, np.random.default_rng(1))
    sweep_program(program, loaded(program, open_device()), [*rows, *reversed(rows)])
