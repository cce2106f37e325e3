"""Products and convolutions in tiles of matrices, against float64 or exact; matrix units are emulated in WGSL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from liveshape.device.backends import open_device
from tests.matrices import convolutions, integers, products
from tests.matrices.opened import kernels_of
from tests.support.emulated_matrices import emulate
from tests.support.graphs import OpCase, sweep

# A compiler for CPUs takes long over the text of a tile: one of them, the others are slow.
QUICK = ("convolution dilation",)
CASES = [
    *products.PRODUCTS,
    *products.SCALED,
    *convolutions.CONVOLUTIONS,
    *convolutions.SCALED,
    *integers.LAYERS,
]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if any(name in case.name for name in QUICK) else pytest.mark.slow)
        for case in CASES
    ],
)
def test_matrices(case: OpCase, monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_device()
    sweep(replace(case, sizes=case.sizes[:3]), emulate(monkeypatch, device.limits), device, rounds=1)
    assert any("/matrix_" in name for name in kernels_of(device))
