"""Threads that cooperate on a unit add up all of it, whatever number of them a device is said to have to spare."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Limits
from liveshape.plan.compiling import compile
from liveshape.plan.plan_state import PlanState
from tests.support.chains import Chain, executor_of


@pytest.mark.parametrize("cooperating", [1, 3, 5, 7, 12])
def test_a_number_of_threads_that_is_no_power_of_two(cooperating: int) -> None:
    device = open_device(limits=replace(open_device().limits, max_cooperating_threads=cooperating))
    chain = Chain()
    x = chain.input((3, 40))
    out = chain.node("aten.var.correction", x, (1,), 0, False, chain.tensor((3,)))
    executor = executor_of(chain.graph(out), device)
    for size in (40, 17, 9):
        data = np.random.default_rng(size).integers(-9, 9, (3, size)).astype(np.float32)
        np.testing.assert_allclose(executor.execute([data])[0], data.astype(np.float64).var(1), 1e-5)


def test_threads_that_do_not_meet_sum_where_they_are_few_or_units_are_neighbours() -> None:
    """Barriers and scalar loads are expensive where threads are few; a part of many columns is one load everywhere."""
    chain = Chain()
    x = chain.input((16, 32000))
    along = chain.node("aten.sum.dim_IntList", x, (1,), False, None, chain.tensor((16,)))
    across = chain.node("aten.mean.dim", x, (0,), False, None, chain.tensor((32000,)))
    kernels = {}
    for limits in (Limits(max_cooperating_threads=4), Limits()):
        live = PlanState(compile(chain.graph(along, across), limits))
        kernels[limits.has_many_threads] = [
            step[0].kernel.name for node in live.nodes for step in live.steps(node, lambda node, request: 0)
        ]
    apart = "reduction/lane_reduce"
    assert kernels[False] == [apart, f"{apart}+units", f"{apart}+units"], "16 rows go in parts, 8,000 vectors do not"
    assert kernels[True] == ["reduction/reduce", f"{apart}+units"]
