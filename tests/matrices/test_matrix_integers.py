"""Layers and convolutions between integers by matrix units, exact: ragged sizes, each live, poisoned tails."""

from __future__ import annotations

import pytest

from tests.matrices.integers import LAYERS, OTHERS
from tests.matrices.opened import kernels_of, with_matrices
from tests.support.graphs import OpCase, sweep

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", LAYERS, ids=lambda case: case.name)
def test_layer(case: OpCase) -> None:
    device, limits = with_matrices()
    sweep(case, limits, device)
    # Matrices of fewer integers than a vector of 16 bytes, which software drivers have, are not taken.
    whole = any(each.k % 16 == 0 and each.m == each.n for each in limits.matrices_of("int8"))
    taken = {name.partition("+")[0] for name in kernels_of(device)}
    assert ("int8/matrix_convolution" if "conv2d" in case.name else "int8/matrix_tiles") in taken or not whole


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_layers_that_take_none(case: OpCase) -> None:
    device, limits = with_matrices()
    sweep(case, limits, device)
