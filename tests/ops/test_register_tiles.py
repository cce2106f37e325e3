"""Products of floats in tiles in registers and with split-K, as devices with many threads take them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.ops.product_tiles import takes_register_tiles
from tests.matrices.opened import kernels_of
from tests.matrices.products import bmm, linear, mm
from tests.support.graphs import OpCase, sweep

# A compiler for CPUs takes long over the text of a tile: two of them, the others are slow.
QUICK = [
    linear(300, 70, sizes=(33, 5, 7)),
    mm("plain", lambda s: ((s, 263), (263, 66), (s, 66)), 263, sizes=(9, 6)),
]
MORE = [
    linear(260, 132, sizes=(70, 5, 33, 64)),
    linear(68, 36, dtype="float16", sizes=(65, 33, 5)),
    linear(65, 33, bias=False, sizes=(40, 1, 17)),
    mm("columns", lambda s: ((70, 132), (132, s), (70, s)), 132, sizes=(132, 1, 64, 67)),
    mm("depth", lambda s: ((40, s), (s, 68), (40, 68)), 600, sizes=(600, 1, 31, 64, 260)),
    mm("large", lambda s: ((s, 20), (20, 1300), (s, 1300)), 20, sizes=(3300, 130, 129)),
    linear(20, 1300, sizes=(1700, 130)),
    linear(1600, 600, sizes=(200, 3, 40, 1)),
    bmm("batch", lambda s: ((s, 37, 65), (s, 65, 70), (s, 37, 70)), 65, sizes=(7, 1, 3)),
]


@pytest.fixture(scope="module")
def many() -> Device:
    limits = replace(open_device().limits, max_invocations=256, max_cooperating_threads=256)
    assert takes_register_tiles(limits)
    return open_device(limits=limits)


@pytest.mark.parametrize(
    "case", [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)], ids=lambda case: case.name
)
def test_tiles(case: OpCase, many: Device) -> None:
    exact = case if "float16" in case.name else replace(case, atol=1e-4, rtol=1e-5)
    sweep(exact, many.limits, many, rounds=1)
    assert any(name.startswith("matmul/register_tiles") for name in kernels_of(many))
