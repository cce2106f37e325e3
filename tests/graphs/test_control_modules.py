"""Programs with branches and loops, as torch exports them, at random sizes up and down on one graph, against torch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from executorch.exir.pass_base import ExportPassBaseError

import liveshape
from liveshape.errors import ShapeError
from tests.graphs import control_modules
from tests.graphs.control_modules import ROWS, WIDTH, ControlModule, exported
from tests.support.exporting import cached, source_text

SIZES = (12, 2, 7, 3, 11, 12, 5, 2)


def compared(seed: int) -> Counter[str]:
    """Calls of one program at every size, with the flag on and off: right, or refused where maps made rows static."""
    module = ControlModule(seed)
    path = cached(f"control.{seed}", (control_source(), str(seed)), lambda: exported(seed))
    seen: Counter[str] = Counter()
    random = np.random.default_rng(seed)
    with liveshape.load(path) as program:
        for rows in SIZES:
            for flag in (True, False):
                x = torch.from_numpy(3 * random.standard_normal((rows, WIDTH)).astype(np.float32))
                want = module(x, torch.tensor(flag)).detach()
                try:
                    got = program(x, torch.tensor(flag))
                except ShapeError:
                    assert rows < ROWS, "the bound is legal"
                    assert "map" in module.written
                    seen["refused"] += 1
                    continue
                torch.testing.assert_close(
                    got, want, rtol=1e-4, atol=1e-4, msg=lambda text: f"{module.written}: {text}"
                )
                seen["right"] += 1
    return seen


def control_source() -> str:
    return source_text(control_modules)


@pytest.mark.parametrize(
    "seed", [1, 2], ids=["loop, nested branches, delegates", "loop whose result lies over its input"]
)
def test_a_program_with_branches_and_loops(seed: int) -> None:
    assert compared(seed) == {"right": 2 * len(SIZES)}


# Two programs of all these are not exported, and two come out static.
@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 140, 10))
def test_many_programs_with_branches_and_loops(first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, first + 10):
        try:
            seen += compared(seed)
            seen["programs"] += 1
        except ExportPassBaseError:
            seen["not exported"] += 1
    assert seen["programs"] >= 9, seen
    assert seen["refused"] <= 12, seen
    assert seen["right"] + seen["refused"] == 2 * len(SIZES) * seen["programs"], seen
