"""Products of few rows with a weight [N, K] on devices with many threads: all of up to 16 rows by shuffles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from liveshape.device.backends import open_device
from tests.matrices.opened import kernels_of
from tests.matrices.products import linear
from tests.support.graphs import OpCase, sweep

# Of the threads of a unit 256, 128, 64 and 16; a depth of fours and of none.
QUICK = linear(780, 70, sizes=(16, 5, 1, 9, 3))
MORE = [
    linear(263, 37, sizes=(16, 2, 7, 1)),
    linear(1600, 1100, sizes=(12, 4, 8)),
    linear(52, 300, dtype="float16", sizes=(16, 3, 10)),
    linear(3000, 9, bias=False, sizes=(16, 6, 1)),
]


@pytest.mark.parametrize("shuffles", [True, False], ids=["shuffles", "memory"])
@pytest.mark.parametrize(
    "case", [QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)], ids=lambda case: case.name
)
def test_few_rows(case: OpCase, shuffles: bool) -> None:
    shared = open_device().limits
    size = (shared.subgroup or shared.lanes) if shuffles else 0
    device = open_device(
        limits=replace(shared, max_invocations=256, max_cooperating_threads=256, subgroup=size, lanes=0)
    )
    exact = case if "float16" in case.name else replace(case, atol=1e-4, rtol=1e-5)
    sweep(exact, device.limits, device, rounds=1)
    names = {name.partition("+")[0] for name in kernels_of(device)}
    assert "matmul/few_rows" in names
    assert ("matmul/register_tiles" in names) is (size == 0), "16 rows take tiles where there are no shuffles"
