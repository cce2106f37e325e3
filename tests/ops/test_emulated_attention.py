"""Attention in tiles of matrices, against float64: matrix units are emulated in WGSL, 32 lanes at a time."""

from __future__ import annotations

import pytest

from liveshape.device.backends import open_device
from tests.matrices.masks import HIDDEN, check_masks
from tests.matrices.opened import kernels_of
from tests.support.emulated_attention import emulate


# A compiler for CPUs takes long over the text of a tile: that of one mask, which the others share, is enough.
@pytest.mark.parametrize(
    "hidden",
    [pytest.param(each, id=name, marks=() if name == "least" else pytest.mark.slow) for name, each in HIDDEN.items()],
)
def test_masks(hidden: float, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = emulate(monkeypatch, open_device().limits)
    device = open_device(limits=limits)
    check_masks(device, limits, hidden)
    assert "attention/matrix_tiles" in kernels_of(device)
