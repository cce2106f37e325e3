"""Random graphs as a GPU runs them, fused and apart, against float64.

Its driver may round a product and a sum once where they meet in one kernel, and rows of the table of fusions that say
`reorders` move a factor behind a sum: fused is no worse than apart. Whole numbers and what nothing rounds are the same
bytes. `test_random_graphs.py` has all else, bit for bit.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from liveshape.device.backends import open_device
from tests.graphs import structures
from tests.graphs.batches import every_call, run_batch, seeds
from tests.graphs.building import graph_of
from tests.graphs.comparing import check_no_worse
from tests.graphs.program import Program
from tests.graphs.reference import ROUNDING, expected
from tests.graphs.running import Choices, device_of
from tests.graphs.writer import Writer

MORE_OFF = 1.5  # of a batch, on the geometric mean: of a few dozen results chance gives 1.2


@cache
def as_a_gpu() -> Choices:
    """A software adapter contracts nothing, and chooses what suits few threads: there with the choices of a GPU."""
    shared: Any = open_device()
    return Choices(limits="many threads" if shared.adapter.software else "")


class Rounding:
    """How much further from float64 fused results of several programs are than those apart, of those that differ."""

    def __init__(self) -> None:
        self.further: list[float] = []

    def check(self, program: Program, chance: random.Random) -> None:
        truth, (roundings, *_) = expected(program), expected(program, ROUNDING)
        fused = every_call(program, as_a_gpu(), truth)
        apart = every_call(program, replace(as_a_gpu(), fusion=False), truth)
        for turn, each in enumerate(zip(fused, apart, truth[0], roundings, strict=True)):
            self.further += check_no_worse(*each, f"call {turn}")

    def mean(self) -> float:
        """The geometric mean."""
        return math.exp(sum(map(math.log, self.further)) / max(len(self.further), 1))


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(0.01))
def test_fused_graphs_are_no_worse_than_operators_apart(first: int) -> None:
    rounding = Rounding()
    assert run_batch(rounding.check, first)["refused"] == 0
    assert rounding.mean() <= MORE_OFF, (rounding.mean(), len(rounding.further))


def normed_layer(seed: int) -> Program:
    """rms_norm(x) and a 4-bit layer of it, at live rows, the first call with one."""
    w = Writer(seed)
    w.symbols["S"][1] = 1
    x = w.input(w.shapes(1, "S", 24))
    weight = w.constant((24,), "float32", 0.5, 1.5)
    norm = w.emit("et_vk.rms_norm.default", x, weight, 1e-3, dtype="float32", low=-7.5, high=7.5)
    return w.program([structures.layer(w, norm, 10, False)])


def test_a_norm_behind_the_sums_of_a_row() -> None:
    """Of one row every workgroup scales its sums by the norm: bytes differ, which is why the row says `reorders`."""
    rounding = Rounding()
    for seed in range(8):
        program = normed_layer(seed)
        rounding.check(program, random.Random(seed))
    graph, _ = graph_of(normed_layer(0), device_of(as_a_gpu().limits).limits, True)
    assert [node.name for node in graph.nodes] == ["liveshape.rms_norm_linear_q4gsw"]
    assert rounding.further
    assert rounding.mean() <= MORE_OFF, (rounding.mean(), len(rounding.further))
