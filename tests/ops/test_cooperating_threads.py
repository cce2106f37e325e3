"""Threads that cooperate on a unit add up all of it, whatever number of them a device is said to have to spare."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from liveshape.device.backends import open_device
from tests.support.chains import Chain, executor_of


@pytest.mark.parametrize("cooperating", [1, 3, 5, 7, 12])
def test_a_number_of_threads_that_is_no_power_of_two(cooperating: int) -> None:
    device = open_device(limits=replace(open_device().limits, max_cooperating_threads=cooperating))
    chain = Chain()
    x = chain.input((3, 40))
    out = chain.node("aten.sum.dim_IntList", x, (1,), False, None, chain.tensor((3,)))
    executor = executor_of(chain.graph(out), device)
    for size in (40, 17, 9):
        data = np.random.default_rng(size).integers(-9, 9, (3, size)).astype(np.float32)
        np.testing.assert_array_equal(executor.execute([data])[0], data.sum(1))
