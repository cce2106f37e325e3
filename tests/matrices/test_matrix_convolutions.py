"""Convolutions by matrix units, against float64: windows of every kind, live sizes up and down, poisoned tails."""

from __future__ import annotations

import pytest

from tests.matrices.convolutions import CONVOLUTIONS, SCALED
from tests.matrices.opened import kernels_of, with_matrices
from tests.support.graphs import OpCase, sweep

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", [*CONVOLUTIONS, *SCALED], ids=lambda case: case.name)
def test_convolution(case: OpCase) -> None:
    device, limits = with_matrices()
    sweep(case, limits, device)
    assert any("/matrix_tiles" in name for name in kernels_of(device))
